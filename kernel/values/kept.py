"""The value that a cell left on its rank to be compared: taken apart once, asked in steps by the notebook."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import msgspec
from msgspec.structs import replace

from ...runtime.wire.unicode import packed
from .leaves import Held, Leaf, described, leaves_of, piece_of
from .measure import Apart, Tolerance, measure

MOST = 500
"""Differing leaves of one rank that are told by name; the others are counted."""

Table = dict[str, Leaf]
Cut = tuple[str, int, int]
"""Elements of a leaf: its name, from, to."""


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """A value in short: ranks with the same summary have the same value."""

    type_name: str
    digest: bytes
    num_leaves: int
    num_bytes: int
    text: str = ""
    can_measure: bool = True
    """Is there numpy?"""


class Parting(msgspec.Struct, frozen=True, array_like=True):
    """How the leaves of a rank differ from a table: its own in their places, None for those it does not have."""

    leaves: dict[str, Leaf | None]
    num_left_out: int = 0
    """How many more there are."""


table_of = msgspec.msgpack.Decoder(Table).decode


class Kept:
    """A value and its leaves; every method answers with encoded structs or arrays."""

    def __init__(self, value: object) -> None:
        self._value = value

    @cached_property
    def _leaves(self) -> dict[str, Held]:
        return leaves_of(self._value)

    @cached_property
    def _table(self) -> Table:
        described_as = {name: (described(held.leaf), held.shard) for name, held in self._leaves.items()}
        return {name: replace(leaf, shard=shard) if shard else leaf for name, (leaf, shard) in described_as.items()}

    def summary(self) -> bytes:
        """What ranks exchange first."""
        digest = hashlib.blake2b(packed(self._table), digest_size=16).digest()
        texts = [leaf.text for leaf in self._table.values()]
        num_bytes = sum(leaf.num_bytes for leaf in self._table.values())
        text = texts[0] if len(texts) == 1 else ""
        name, can_measure = type(self._value).__qualname__, find_spec("numpy") is not None
        return packed(Summary(name, digest, len(texts), num_bytes, text, can_measure))

    def table(self) -> bytes:
        """All leaves, for other ranks to compare theirs with."""
        return packed(self._table)

    def parting(self, data: bytes) -> bytes:
        """Where the leaves differ from a `table`. Other parts of a distributed tensor are told and not counted."""
        theirs, ours = table_of(data), self._table
        told: dict[str, Leaf | None] = {}
        num_differing = 0
        for name in theirs | ours:
            one, other = theirs.get(name), ours.get(name)
            if one == other:
                continue
            num_differing += one is None or other is None or one.shard == other.shard
            if num_differing <= MOST:
                told[name] = other
        return packed(Parting(told, max(num_differing - MOST, 0)))

    def pieces(self, cuts: Sequence[Cut]) -> list[Any]:
        """Elements of leaves, as arrays."""
        return [piece_of(self._leaves[name].leaf, begin, end) for name, begin, end in cuts]

    def apart(self, cuts: Sequence[Cut], pieces: Sequence[Any], tolerance: Tolerance) -> list[Apart]:
        """How far these elements of another rank are from the same ones here."""
        return [
            measure(piece, piece_of(self._leaves[name].leaf, begin, end), tolerance)
            for (name, begin, end), piece in zip(cuts, pieces, strict=True)
        ]
