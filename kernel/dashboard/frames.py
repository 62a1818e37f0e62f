"""Facts of ranks as bytes: ten for each, and of a large mesh only what has changed. Pure.

A record is little-endian: state, progress, cpu, gpu (a byte each), memory and gpu memory (2 bytes each, in steps of
4 MiB), and the metric: the upper half of a 32-bit float, precise to 3 digits, which is finer than a colour. What is not
known is all ones. `dashboard.js` reads the same.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from .facts import STATES, RankFacts

RECORD = struct.Struct("<BBBBHHH")
CHANGE = struct.Struct("<H10s")
"""In a delta: which rank, and its record."""

MEMORY_STEP = 4 << 20

_NUMBERS = {state: number for number, state in enumerate(STATES)}
_FLOAT = struct.Struct("<f")
_BITS = struct.Struct("<I")
_NO_BYTE, _NO_WORD = 0xFF, 0xFFFF


class Cell(NamedTuple):
    """A record, read: shares from 0 to 1, bytes."""

    state: str
    progress: float | None
    cpu: float | None
    gpu: float | None
    memory: int | None
    gpu_memory: int | None
    metric: float | None


def pack(facts: Sequence[RankFacts]) -> bytes:
    """The records of all ranks, in order.

    Example:
        >>> unpack(pack([RankFacts(0, "busy", cpu=0.5, memory=1 << 30)]))[0].memory
        1073741824
    """
    return b"".join([_record(each) for each in facts])


def unpack(frame: bytes) -> list[Cell]:
    """What `pack` made, up to its precision."""
    return [_cell(*fields) for fields in RECORD.iter_unpack(frame)]


def delta(old: bytes, new: bytes) -> bytes | None:
    """What is to be changed in `old` to get `new`; None where `new` itself is as short, or of other ranks.

    Example:
        >>> old, new = pack([RankFacts(0), RankFacts(1)]), pack([RankFacts(0), RankFacts(1, "idle")])
        >>> apply(old, delta(old, new)) == new, len(delta(old, new))
        (True, 12)
    """
    if len(old) != len(new):
        return None
    if old == new:
        return b""
    size = RECORD.size
    changes = [
        CHANGE.pack(at // size, new[at : at + size])
        for at in range(0, len(new), size)
        if old[at : at + size] != new[at : at + size]
    ]
    return b"".join(changes) if len(changes) * CHANGE.size < len(new) else None


def apply(old: bytes, changes: bytes) -> bytes:
    """The frame after a delta."""
    frame = bytearray(old)
    for rank, record in CHANGE.iter_unpack(changes):
        frame[rank * RECORD.size : (rank + 1) * RECORD.size] = record
    return bytes(frame)


def _record(facts: RankFacts) -> bytes:
    gpu = facts.gpu
    return RECORD.pack(
        _NUMBERS[facts.state],
        _share(facts.progress),
        _share(facts.cpu, 100),
        _NO_BYTE if gpu is None else _share(gpu.busy, 100),
        _size(facts.memory),
        _NO_WORD if gpu is None else _size(gpu.used),
        _NO_WORD if facts.metric is None else half(facts.metric),
    )


def _cell(state: int, progress: int, cpu: int, gpu: int, memory: int, gpu_memory: int, metric: int) -> Cell:
    return Cell(
        STATES[state],
        None if progress == _NO_BYTE else progress / 254,
        None if cpu == _NO_BYTE else cpu / 100,
        None if gpu == _NO_BYTE else gpu / 100,
        None if memory == _NO_WORD else memory * MEMORY_STEP,
        None if gpu_memory == _NO_WORD else gpu_memory * MEMORY_STEP,
        None if metric == _NO_WORD else whole(metric),
    )


def _share(share: float | None, steps: int = 254) -> int:
    return _NO_BYTE if share is None else min(max(round(share * steps), 0), 254)


def _size(size: int | None) -> int:
    return _NO_WORD if size is None else min(size // MEMORY_STEP, _NO_WORD - 1)


def half(value: float) -> int:
    """The upper half of a number as a 32-bit float.

    Example:
        >>> whole(half(0.5)), whole(half(1e300)), math.isnan(whole(half(math.nan)))
        (0.5, inf, True)
    """
    if math.isnan(value):
        return 0x7FC0
    try:
        return _BITS.unpack(_FLOAT.pack(value))[0] >> 16
    except OverflowError:
        return 0x7F80 if value > 0 else 0xFF80


def whole(bits: int) -> float:
    """The number whose upper half this is."""
    return _FLOAT.unpack(_BITS.pack(bits << 16))[0]
