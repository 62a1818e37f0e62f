"""Where the ranks of a new mesh will live: the engine that `%mesh up` means, and hosts that are kept for the next."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from IPython.core.error import UsageError

from ..runtime.engines.allocations import Allocation, Shelf
from ..runtime.engines.jobs import KINDS, read_options
from ..runtime.engines.seating import wanted_hosts
from ..runtime.errors import MeshbookError
from ..runtime.session import session
from ..runtime.system.devices import choose_device
from ..widgets.status import MeshList
from . import grammar
from .terms import near


def engine_of(args: grammar.Up, axes: Mapping[str, int], names: Mapping[str, Any]) -> str:
    """The name of the engine; one of several hosts is made for them. `names` are those of the notebook.

    Raises `ValueError` where nothing says which hosts or how to get there, and `SpawnError` where Monarch is missing or
    gets none.
    """
    if args.engine == "local":
        return session().use_python(args.python) if args.python else args.engine
    if args.engine == "monarch":
        return _monarch(args, axes, names)
    hosts = args.hosts or wanted_hosts(axes)
    if hosts is None:
        raise ValueError("how many hosts? Say --hosts N or --hosts A,B, or begin the axes with hosts=N")
    if not isinstance(hosts, int) and not args.launch and not any(":" in host for host in hosts):
        raise ValueError(
            f'nothing starts agents on {_few(hosts)}: say how, such as --launch "ssh {{host}}"; '
            f"--hosts {len(hosts)} starts so many on this machine"
        )
    return session().use_hosts(hosts, args.launch, args.keep, args.ready_timeout)


def _monarch(args: grammar.Up, axes: Mapping[str, int], names: Mapping[str, Any]) -> str:
    """A variable of the notebook that holds hosts comes before a kind of job of the same name."""
    held = names.get(args.job)
    if is_host_mesh(held):
        if args.job_options:
            raise ValueError(f"--job-option is for a job that is to be made: the hosts in {args.job!r} are there")
        return session().use_monarch(held, timeout=args.ready_timeout)
    job = args.job or "process"
    if job not in KINDS:
        kinds = f"{', '.join(KINDS)}, or a variable that holds a HostMesh of Monarch"
        what = f"{job!r} holds a {type(held).__name__}" if job in names else f"there is no variable {job!r}"
        raise ValueError(f"--job: {what}; write {kinds}")
    options = read_options(job, dict(args.job_options))
    hosts = len(options["workers"]) if "workers" in options else args.hosts or wanted_hosts(axes)
    if not isinstance(hosts, int):  # names of hosts are refused by the grammar
        raise ValueError("how many hosts? Say --hosts N, or begin the axes with hosts=N")
    return session().use_monarch(hosts, job, timeout=args.ready_timeout, **options)


def is_host_mesh(value: object) -> bool:
    """Is this a `HostMesh` of Monarch? (Without importing it.)"""
    return hasattr(value, "spawn_procs") and hasattr(value, "sizes") and not isinstance(value, type)


def device_of(name: str, args: grammar.Up, engine: str) -> str:
    """What the ranks compute on, now that it is known where they will live."""
    place = session().engine(engine)
    try:
        most = max(seat.local_world_size for seat in place.seats(args.axes))
        return choose_device(args.device, most, place.num_gpus())
    except ValueError as mistake:
        raise UsageError(str(mistake)) from None
    except MeshbookError as error:
        raise not_up(name, error) from None


def not_up(name: str, error: Exception) -> UsageError:
    return UsageError(f"mesh {name!r} did not come up: {error}")


def line_to_attach(name: str | None) -> tuple[str, grammar.Up]:
    """How a mesh on hosts that were kept was brought up, by its name or as the only one: as typed, and read.

    Raises `UsageError`, which says what is there.
    """
    lines = {mesh: line for allocation, _ in Shelf().all() for mesh, line in allocation.meshes.items()}
    if name is None and len(lines) == 1:
        name = next(iter(lines))
    if name is None or name not in lines:
        known = ", ".join(sorted(lines))
        if not lines:
            raise UsageError("no hosts are kept: `%mesh up ... --engine hosts --keep 1h` keeps them for the next time")
        if name is None:
            raise UsageError(f"which mesh? There are kept hosts of {known}")
        raise UsageError(f"no hosts are kept of a mesh {name!r}{near(name, lines)}: there are those of {known}")
    args = grammar.parse_mesh(lines[name]).args
    assert isinstance(args, grammar.Up)
    return lines[name], replace(args, name=name)


def kept_text(engine: str) -> str:
    """A line about agents that were found, and not started; empty where there were none."""
    since = session().kept_since(engine)
    return f"on hosts that were kept since {_clock(since)}" if since is not None else ""


class KeptHosts:
    """The meshes of a notebook, then the hosts that are kept, also those of other notebooks."""

    def __init__(self, meshes: MeshList) -> None:
        self._meshes = meshes
        self._kept = Shelf().all()

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """`meshes`, and `kept`: of each allocation its meshes, hosts, launch, since, host_hours, is_held, left."""
        return {"meshes": self._meshes.data(), "kept": self._facts()}

    def _facts(self) -> list[dict[str, Any]]:
        return [_facts(allocation, seen, time.time()) for allocation, seen in self._kept]

    def __repr__(self) -> str:
        told = [_told(facts) for facts in self._facts()] or ["no hosts are kept"]
        return "\n".join([repr(self._meshes), *told])


def _facts(allocation: Allocation, seen: float, now: float) -> dict[str, Any]:
    age = max(0.0, now - allocation.since)
    return {
        "meshes": sorted(allocation.meshes),
        "hosts": list(allocation.hosts),
        "launch": allocation.launch,
        "since": allocation.since,
        "host_hours": len(allocation.hosts) * age / 3600,
        "is_held": allocation.is_held,
        "left": None if allocation.is_held else max(0.0, seen + allocation.keep - now),
    }


def _told(facts: Mapping[str, Any]) -> str:
    names, hosts = ", ".join(facts["meshes"]) or "no mesh", facts["hosts"]
    state = "in use" if facts["is_held"] else f"free until {_clock(time.time() + facts['left'])}"
    cost = f"since {_clock(facts['since'])}, {facts['host_hours']:.1f} host hours"
    return f"kept hosts of {names}   {_few(hosts)} · {state} · {cost}"


def _few(hosts: Sequence[str]) -> str:
    """Example: `node1 and 7 more`."""
    return ", ".join(hosts) if len(hosts) <= 4 else f"{hosts[0]} and {len(hosts) - 1} more"


def _clock(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds)
    return f"{moment:%H:%M}" if moment.date() == datetime.now().date() else f"{moment:%Y-%m-%d %H:%M}"
