"""The value that a cell left on its rank to be compared: taken apart once, asked in steps by the notebook."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import msgspec

from ..runtime.wire.unicode import packed
from .leaves import Leaf, described, leaves_of, piece_of
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
    def _leaves(self) -> dict[str, Any]:
        return leaves_of(self._value)

    @cached_property
    def _table(self) -> Table:
        return {name: described(leaf) for name, leaf in self._leaves.items()}

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
        """Where the leaves differ from a `table`."""
        theirs, ours = table_of(data), self._table
        names = [name for name in theirs | ours if theirs.get(name) != ours.get(name)]
        return packed(Parting({name: ours.get(name) for name in names[:MOST]}, len(names[MOST:])))

    def pieces(self, cuts: Sequence[Cut]) -> list[Any]:
        """Elements of leaves, as arrays."""
        return [piece_of(self._leaves[name], begin, end) for name, begin, end in cuts]

    def apart(self, cuts: Sequence[Cut], pieces: Sequence[Any], tolerance: Tolerance) -> list[Apart]:
        """How far these elements of another rank are from the same ones here."""
        return [
            measure(piece, piece_of(self._leaves[name], begin, end), tolerance)
            for (name, begin, end), piece in zip(cuts, pieces, strict=True)
        ]
