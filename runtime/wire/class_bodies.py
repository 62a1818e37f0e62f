"""Globals that a function names only in the body of a class within it: cloudpickle overlooks them.

A function reads a global by an instruction of its own; the body of a class reads all names by another one, as they may
be of the class. Cloudpickle looks for the first alone: `endpoint` in `@endpoint`, in a class that a function makes, was
not there where the function ran.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final

from cloudpickle import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

_known_globals: Any = cloudpickle._extract_code_globals  # pyright: ignore

_LOADS: Final = ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_STORES: Final = ("STORE_NAME", "DELETE_NAME")


def note_names(code: CodeType) -> None:
    """Have cloudpickle take them along too, the next time that it pickles a function of this code."""
    if names := _names(code):
        _known_globals(code).update(dict.fromkeys(names))


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[str, ...]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return tuple(dict.fromkeys(name for each in inner for name in (*_read_first(each), *_names(each))))


def _read_first(code: CodeType) -> Iterator[str]:
    """The names that a body reads before it gives them a value: those are not its own."""
    own = {"__name__", "__annotations__"}  # every class asks for the first, and has the second
    for instruction in dis.get_instructions(code):
        if instruction.opname in _STORES:
            own.add(instruction.argval)
        elif instruction.opname in _LOADS and instruction.argval not in own:
            yield instruction.argval
