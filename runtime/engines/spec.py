"""What a process needs to know to become a rank."""

from __future__ import annotations

from typing import Literal

import msgspec

Backend = Literal["auto", "gloo", "nccl", "none"]


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
    token: str
    """The secret in the marks of its output pipes (`wire.tape`), so that printed text cannot forge one."""
    env: dict[str, str]
    """The whole environment, not a change of one."""
    cwd: str
    path: tuple[str, ...]
    """`sys.path`."""
    device: str = "cpu"
    backend: Backend = "auto"
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    generation: int = 0
    preload: tuple[str, ...] = ()


class RankFds(msgspec.Struct, frozen=True, array_like=True):
    """Descriptors a rank is born with. `listen` is -1 but on rank 0: the bound socket of `MASTER_PORT`."""

    data: int
    control: int
    lifeline: int
    out: int
    err: int
    listen: int = -1

    def as_list(self) -> list[int]:
        return [fd for fd in (self.data, self.control, self.lifeline, self.out, self.err, self.listen) if fd >= 0]


encode_spec = msgspec.msgpack.Encoder().encode
decode_spec = msgspec.msgpack.Decoder(RankSpec).decode
