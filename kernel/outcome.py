"""What a cell's run on one rank came to: the structs that travel from a rank to the notebook.

Two ranks that did the same give the same bytes, so the controller folds outcomes by comparing bytes and decodes each
distinct one once. What always differs (rank, time) therefore stands outside.
"""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One line of a traceback: where it was, and whether the user wrote it."""

    file: str
    line: int
    name: str
    source: str
    is_user: bool
    """True for the lines of cells and of the user's own modules: not the standard library, not site-packages."""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """An exception that ended a cell on a rank."""

    type_name: str
    message: str
    frames: tuple[Frame, ...]
    traceback: str
    """The traceback as IPython prints it, with ANSI colours, from the cell's first line inwards."""
    pickled: bytes | None = None
    """The exception itself where it survives a round trip of pickle."""

    @property
    def place(self) -> str:
        """The innermost of the user's own lines, as `cell 3 line 7`; empty where it came from none."""
        places = [f"{frame.file} line {frame.line}" for frame in self.frames if frame.is_user]
        return places[-1] if places else ""


class Heat(msgspec.Struct, frozen=True, array_like=True):
    """A matrix as a small picture, row by row: a byte a cell, 0 for nan, then 1 (`low`) to 64 (`high`)."""

    rows: int
    columns: int
    low: float
    high: float
    cells: bytes


class Gist(msgspec.Struct, frozen=True, array_like=True):
    """What the numbers of an array are like; of a very large one, a sample of them. nan is counted, and left out."""

    least: float
    most: float
    mean: float
    norm: float
    """The square root of the sum of the squares."""
    num_nans: int
    num_seen: int
    heat: Heat | None = None


class Value(msgspec.Struct, frozen=True, array_like=True):
    """The last expression of a cell: what to show of it, and the value itself where it is small enough to travel."""

    type_name: str
    text: str
    """Its `text/plain`, shortened to a bound; never empty."""
    mime: dict[str, str] = {}
    """Richer forms by MIME type; binary ones (image/png) in base64, as Jupyter sends them."""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    nbytes: int | None = None
    """Size in bytes of an array's or tensor's data."""
    pickled: bytes | None = None
    stayed: str | None = None
    """Why the value stayed on its rank ("210 MB, over the limit of 1 MB", "cannot pickle: ..."), if it did."""
    gist: Gist | None = None
    """Of arrays and tensors of numbers."""
    record: dict[str, int | float | bool | str | None] = {}
    """The entries of what has named ones (`records`), each a column of a table."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """How a cell ended on a rank: with a value, with a failure, or with neither (its last line was a statement)."""

    value: Value | None = None
    failure: Failure | None = None


class Display(msgspec.Struct, frozen=True, array_like=True):
    """Something shown on the way: `display(...)`, a figure, HTML. A mark in the pipe keeps its place in the text."""

    run: int
    number: int
    mime: dict[str, str]
    metadata: dict[str, object] = {}
    display_id: str | None = None
    is_update: bool = False
    is_clear: bool = False
    """`clear_output()`: `mime` is then empty."""
