"""What a process needs to know to become a rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import msgspec

from ..errors import SpawnError
from ..wire.link import Address
from ..wire.wiring import LinkKind

Backend = Literal["auto", "gloo", "nccl", "none"]


_LEAST_BYTES = 2_000_000
"""No idle rank is smaller than this; most are four times as large."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank is to live: on which host, and which of the ranks there it is."""

    local_rank: int
    local_world_size: int
    host: str = ""
    """The name of the host; empty for the controller's own machine, in whose environment the rank wakes up."""
    addr: str = "127.0.0.1"
    """Where ranks of other hosts reach it."""


def seats_here(num_ranks: int) -> list[Seat]:
    """All of them on the controller's own machine. Raises `SpawnError` where it has not the memory for that."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if num_ranks * _LEAST_BYTES > memory:  # at once: the papers of a million ranks take minutes
        raise SpawnError(
            f"{num_ranks:,} ranks need more memory than this machine has, {memory / 1e9:.0f} GB: ask for fewer"
        )
    return [Seat(rank, num_ranks) for rank in range(num_ranks)]


class Site(NamedTuple):
    """Hosts of an engine, in the order in which a mesh is to be laid over them."""

    engine: str
    """The name of the engine (`session.Session.engine`)."""
    hosts: tuple[str, ...]


HOME = Site("", ("",))
"""The controller's own machine."""

PYTHON = "python "
"""How names of engines begin whose ranks run in another Python on this machine; its path follows."""


class RankSpec(msgspec.Struct, frozen=True):
    """The birth certificate of a rank: who it is in its mesh, and the world it wakes up in.

    Its descriptors travel beside it, in the order of `RankFds`.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    axes: dict[str, int]
    """The named axes of the whole mesh, row-major."""
    mesh: int
    """The number of its mesh, the same in all processes."""
    has_bootstrap: bool
    """Whether a bootstrap comes, which must have run before any actor is made."""
    token: str
    """The secret in the marks of its output pipes (`wire.tape`), so that printed text cannot forge one."""
    env: dict[str, str]
    """The whole environment; on another host, what is set on top of the one there."""
    cwd: str
    path: tuple[str, ...]
    """`sys.path`."""
    bindings: tuple[dict[str, str], ...] = ()
    """What the ranks of a host are bound to (`binding`), by their local rank."""
    names: dict[str, str] = {}
    """What a program calls our modules (`aliases.given`)."""
    folder: str = ""
    """A folder of the controller's that its host has a copy of: what of `cwd` and `path` is in it means the copy."""
    device: str = "cpu"
    shared_gpus: int = 0
    """How many GPUs the ranks of its host share; 0 where each has its own, or none."""
    backend: Backend = "auto"
    engine: str = ""
    """Whose host that is, as in a `Site`."""
    host: str = ""
    """Where it lives, as in its `Seat`."""
    host_addr: str = "127.0.0.1"
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    script_port: int = 0
    """The port of `MASTER_PORT`, at which scripts meet that ranks start: their own store is at `master_port`."""
    generation: int = 0
    preload: tuple[str, ...] = ()
    link: LinkKind = "auto"
    spare: tuple[str, ...] = ()
    """Of a spare: the modules it imports (`preload`) before it waits to be told which rank to be."""
    data: Address | None = None
    """Where its data lane is, when the link has names; None: `RankFds.data` is that lane."""
    control: Address | None = None

    @property
    def binding(self) -> dict[str, str]:
        """What it is bound to."""
        return self.bindings[self.local_rank] if self.local_rank < len(self.bindings) else {}

    @property
    def seat(self) -> Seat:
        """Where it lives."""
        return Seat(self.local_rank, self.local_world_size, self.host, self.host_addr)

    @property
    def python(self) -> str:
        """The path of the Python it runs in, where that is not the controller's own."""
        return self.engine.removeprefix(PYTHON) if self.engine.startswith(PYTHON) else ""

    @property
    def site(self) -> Site:
        """Its host, for those who start processes there."""
        return Site(self.engine, (self.host,)) if self.host or self.python else HOME


class RankFds(msgspec.Struct, frozen=True, array_like=True):
    """Descriptors a rank is born with; -1 where there is none.

    `data` and `control` are its lanes when they are pairs. Rank 0 has `listen`, the socket of its store.
    """

    data: int
    control: int
    lifeline: int
    out: int
    err: int
    listen: int = -1

    def as_list(self) -> list[int]:
        return [fd for fd in (self.data, self.control, self.lifeline, self.out, self.err, self.listen) if fd >= 0]

    @classmethod
    def of(cls, spec: RankSpec, fds: Sequence[int]) -> Self:
        """From the descriptors of `as_list`, as they are numbered in the rank."""
        return cls(*fds) if spec.data is None else cls(-1, -1, *fds)


class Standing(NamedTuple):
    """Where a rank stands among the others, in torchrun's terms: a group is the ranks of one host."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    group_rank: int
    """The index of its host."""
    group_world_size: int
    """The number of hosts."""


def standings(seats: Sequence[Seat]) -> list[Standing]:
    """Of the ranks that live in these seats, in their order.

    Example:
        >>> standings([Seat(0, 1, "a"), Seat(0, 1, "b")])[1]
        Standing(rank=1, world_size=2, local_rank=0, local_world_size=1, group_rank=1, group_world_size=2)
    """
    hosts = {host: index for index, host in enumerate(dict.fromkeys(seat.host for seat in seats))}
    return [
        Standing(rank, len(seats), seat.local_rank, seat.local_world_size, hosts[seat.host], len(hosts))
        for rank, seat in enumerate(seats)
    ]


OF_A_RANK = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE"),
)
"""What differs in the environments of the ranks of a mesh, or of two meshes."""


UNLESS_SAID = {
    "OMP_NUM_THREADS": "1",  # what threads of user code compute with, as under torchrun
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # a peer's death would print 35 lines of C++ stack in each rank
}
"""Variables that are read when torch is loaded, also by processes that a rank starts; who sets them has them so.

A rank's main thread and its actors get their share of the cores then (`ranks.seed`). Else each would take all cores,
and ranks wait for each other at every operation: 16 ms for a product of small matrices that takes 2 us.
"""


def environment(env: Mapping[str, str], standing: Standing) -> dict[str, str]:
    """The environment of a rank: torchrun's variables on top of `env`. All ranks have one role."""
    return {**env, **dict(zip(OF_A_RANK, map(str, [*standing, *standing[:2]]), strict=True))}


def search_path(path: Sequence[object]) -> list[str]:
    """What of a `sys.path` Python looks at: it passes over what is no string.

    Example:
        >>> from pathlib import Path
        >>> search_path(["", "/opt", Path("/home/me")])
        ['', '/opt']
    """
    return [folder for folder in path if isinstance(folder, str)]


def with_named(path: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """A `sys.path` of the program with the folders that a `PYTHONPATH` for its ranks names, where Python puts them.

    Example:
        >>> with_named(["/here", "/usr/lib/python3"], {"PYTHONPATH": "/here:/mine"})
        ['/here', '/mine', '/usr/lib/python3']
    """
    named = [os.path.abspath(each) for each in env.get("PYTHONPATH", "").split(os.pathsep) if each]
    return [*path[:1], *(each for each in dict.fromkeys(named) if each not in path), *path[1:]]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RankSpec).decode

_HELD = "\0"
"""Begins a text that is no Unicode, in a spec that travels; none of these may have a zero in it."""


def encode_spec(spec: RankSpec) -> bytes:
    """A spec as it travels. Its environment and folders may have bytes that are no Unicode, as the system allows."""
    try:
        return _encode(spec)
    except UnicodeEncodeError:
        return _encode(_with_texts(spec, _held))


def decode_spec(data: bytes) -> RankSpec:
    """The spec that `encode_spec` was given."""
    return _with_texts(_decode(data), _released)


def _with_texts(spec: RankSpec, change: Callable[[str], str]) -> RankSpec:
    env = {change(name): change(value) for name, value in spec.env.items()}
    path = tuple(map(change, spec.path))
    return msgspec.structs.replace(spec, env=env, cwd=change(spec.cwd), path=path, folder=change(spec.folder))


def _held(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return text if raw.isascii() else _HELD + raw.decode("latin-1")


def _released(text: str) -> str:
    return text[1:].encode("latin-1").decode("utf-8", "surrogateescape") if text.startswith(_HELD) else text
