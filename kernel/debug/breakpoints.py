"""Breakpoints that are set from the notebook: where, on which ranks, under which condition. Plain data."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import PurePath
from types import CodeType

import msgspec

from ..sources.source import name_of

_MAGIC = re.compile(r"^[%!].*$", re.MULTILINE)
_LINE = re.compile(r"(?P<where>.+):(?P<line>\d+)")
_CELL = re.compile(r"(?:cell[ :]?)?(?P<number>\d+)")


class Breakpoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A line of a file or cell, or the first line of a function. `number` names it in the notebook.

    `file` is the end of a path (`train.py`, `src/train.py`); `cell` is its name (`cell 5`, or the label it ran under).
    """

    number: int
    file: str = ""
    cell: str = ""
    function: str = ""
    line: int = 0
    condition: str = ""
    is_on: bool = True

    @property
    def text(self) -> str:
        """Where it is, and when it stops: `cell 5 line 3 if loss != loss`."""
        where = self.function or f"{self.cell or self.file} line {self.line}"
        return f"{where} if {self.condition}" if self.condition else where

    @property
    def place(self) -> str:
        """Where it is, as the user writes it: `5:3`, `train.py:120`, `Model.forward`."""
        return self.function or f"{self.file or self.cell.removeprefix('cell ')}:{self.line}"

    def lines_in(self, code: CodeType, is_meant: Callable[[str, CodeType], bool]) -> frozenset[int]:
        """The lines of this code object at which it stops: none, or one. `is_meant` knows what a function's name is."""
        if self.function:
            body = [line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno]
            return frozenset([min(body, default=code.co_firstlineno)] if is_meant(self.function, code) else [])
        if self.line not in {line for _, _, line in code.co_lines()}:
            return frozenset()
        is_it = name_of(code.co_filename) == self.cell if self.cell else is_file(self.file, code.co_filename)
        return frozenset([self.line]) if is_it else frozenset()


def lines_with_code(source: str) -> list[int]:
    """The lines of a file or cell at which something can stop; none where it is no Python. Magics are passed over.

    Example:
        >>> lines_with_code("%%on_mesh\\n# a comment\\nx = 1\\n\\ndef f():\\n    return x\\n")
        [3, 5, 6]
    """
    try:
        code = compile(_MAGIC.sub("", source), "<lines>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError):
        return []
    found: set[int] = set()
    codes = [code]
    while codes:
        each = codes.pop()
        found |= {line for _, _, line in each.co_lines() if line}
        codes += [inner for inner in each.co_consts if isinstance(inner, CodeType)]
    return sorted(found)


def target_of(text: str) -> dict[str, str | int]:
    """Where a breakpoint is to be, as the user writes it: the fields of `Breakpoint`.

    Raises `ValueError` for what is neither FILE:LINE, CELL:LINE nor FUNC.

    Example:
        >>> target_of("5:3"), target_of("train.py:12"), target_of("Model.forward")
        ({'cell': 'cell 5', 'line': 3}, {'file': 'train.py', 'line': 12}, {'function': 'Model.forward'})
    """
    found = _LINE.fullmatch(text)
    if found is None:
        if all(part.isidentifier() for part in text.split(".")) and not text.endswith(".py"):
            return {"function": text}
        raise ValueError(f"{text!r} is no place: write FILE:LINE, CELL:LINE (such as 5:3) or the name of a function")
    line = int(found["line"])
    if line == 0:
        raise ValueError(f"{text!r} is no place: lines are counted from 1")
    cell = _CELL.fullmatch(found["where"])
    if cell is not None:
        return {"cell": f"cell {cell['number']}", "line": line}
    if found["where"].endswith(".py"):
        return {"file": found["where"], "line": line}
    return {"cell": found["where"], "line": line}


def is_file(wanted: str, file: str) -> bool:
    """Is this the end of a file's path?"""
    end = PurePath(wanted).parts
    return PurePath(file).parts[-len(end) :] == end


def is_named(function: str, code: CodeType) -> bool:
    """Is this code called so: `forward`, `Model.forward` or `nets.Model.forward`?"""
    return function in (code.co_name, code.co_qualname) or _is_tail(function, code)


def _is_tail(function: str, code: CodeType) -> bool:
    """`Model.forward` of a class that was made in a function; or with its module, as in `nets.Model.forward`."""
    module = PurePath(code.co_filename.removesuffix("/__init__.py")).with_suffix("").parts
    return ".".join(("", *module, code.co_qualname)).endswith(f".{function}")
