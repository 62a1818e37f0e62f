"""SPMD on a process mesh: torchrun's environment on every rank, and scripts run as if by torchrun."""

from __future__ import annotations

import contextlib
import os
import runpy
import socket
import sys
from collections.abc import Sequence
from typing import Any

from .actor import Actor, endpoint
from .engines.spec import Standing, environment
from .here import node
from .mesh import ProcMesh
from .promises import returns_future
from .scope import current_rank


class SPMDActor(Actor):
    """Lives on each rank: tells where it is, sets torchrun's environment, runs a script."""

    def __init__(self) -> None:
        point = current_rank()
        self.rank = point.rank
        self.world_size = point.extent.nelements
        labels = point.extent.labels
        self.local_rank = point[labels[-1]] if labels else 0
        self.local_world_size = point.extent[labels[-1]] if labels else 1

    @endpoint
    def get_host_port(self, use_ipaddr: bool | None = None) -> tuple[str, int]:
        """This host's name, or the address at which others reach it, and a port that is free on it now."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        return (node().host_addr if use_ipaddr else socket.gethostname()), port

    @endpoint
    def setup_env(self, master_addr: str, master_port: int) -> None:
        """Set `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and the others that torchrun sets."""
        self._set_env(master_addr, master_port)

    @endpoint
    def main(self, master_addr: str, master_port: int, script_args: Sequence[str]) -> bool:
        """Run `script_args` (`["train.py", "--lr", "1"]` or `["-m", "module", ...]`) as `__main__`."""
        self._set_env(master_addr, master_port)
        run_as_main(list(script_args))
        return True

    def _set_env(self, addr: str, port: int) -> None:
        numbers = self.rank, self.world_size, self.local_rank, self.local_world_size
        os.environ.update(torch_environment(*numbers, addr, port))


def run_as_main(script_args: list[str]) -> None:
    """Run a script, or with `-m` a module, with its arguments, as Python would: what lies beside it can be imported.

    Raises `ValueError` for an empty list, and `RuntimeError` where the script exits with another code than 0.
    """
    if not script_args or script_args == ["-m"]:
        raise ValueError("script_args is empty: give the script to run, and its arguments")
    is_module = script_args[0] == "-m"
    argv = script_args[1:] if is_module else script_args
    folder = "" if is_module else os.path.dirname(os.path.abspath(argv[0]))
    before, sys.argv = sys.argv, argv
    sys.path.insert(0, folder)
    try:
        if is_module:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"{argv[0]} exited with {end.code!r}") from end
    finally:
        sys.argv = before
        with contextlib.suppress(ValueError):  # the script has taken it out
            sys.path.remove(folder)


def torch_environment(
    rank: int, world_size: int, local_rank: int, local_world_size: int, master_addr: str, master_port: int
) -> dict[str, str]:
    """The variables that torchrun sets.

    Example:
        >>> torch_environment(3, 4, 1, 2, "localhost", 29500)["GROUP_RANK"]
        '1'
    """
    host, num_hosts = rank // local_world_size, max(1, world_size // local_world_size)
    of_all = {"ROLE_NAME": "rank", "MASTER_ADDR": master_addr, "MASTER_PORT": str(master_port)}
    return environment(of_all, Standing(rank, world_size, local_rank, local_world_size, host, num_hosts))


async def setup_torch_elastic_env_async(
    proc_mesh: ProcMesh,
    master_addr: str | None = None,
    master_port: int | None = None,
    use_ipaddr: bool | None = None,
) -> None:
    """Set torchrun's environment on every rank of a mesh; `LOCAL_RANK` is the index on its last axis."""
    actors: Any = proc_mesh.spawn("_spmd_env", SPMDActor)
    if master_addr is None or master_port is None:
        first = actors.slice(**dict.fromkeys(proc_mesh.sizes, 0))
        host, port = await first.get_host_port.call_one(use_ipaddr)
        master_addr, master_port = master_addr or host, master_port or port
    await actors.setup_env.call(master_addr, master_port)
    await actors.stop()


def setup_torch_elastic_env(
    proc_mesh: ProcMesh,
    master_addr: str | None = None,
    master_port: int | None = None,
    use_ipaddr: bool | None = None,
) -> None:
    """The same, blocking."""
    returns_future(setup_torch_elastic_env_async)(proc_mesh, master_addr, master_port, use_ipaddr).get()
