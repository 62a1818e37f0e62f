"""Which code a breakpoint means that names a function or a file, as far as it is loaded in this process."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, cast

from ...runtime.ranks.users import is_users
from ...runtime.system.ours import is_ours
from ..sources.source import name_of
from .breakpoints import Breakpoint, is_file, is_named
from .places import users_frame

Doubt = Literal["", "unknown", "old"]
"""Why a breakpoint may stop nowhere: no such function is loaded, or the file was edited since it was."""


def is_theirs(function: str, code: CodeType) -> bool | None:
    """Is this the code that `function` stands for in the user's names? None where it stands for no code of that name.

    That of a cell may run under an earlier number: a hook that was registered then.
    """
    named = [each for each in _codes_of(_main().get(function)) if is_named(function, each)]
    return _key(named[0]) == _key(code) if named else None


def is_meant(function: str, code: CodeType) -> bool:
    """Is this code called so, or what that name leads to: a method that a class inherits, or a function renamed?"""
    return is_named(function, code) or any(each is code for each in _led_to(function))


def is_for_us(frame: FrameType) -> bool:
    """Does it run for meshbook alone, with no code of the user's that has called it?"""
    if users_frame(frame) is not None:
        return False
    each: FrameType | None = frame
    while each is not None and not is_ours(each.f_code.co_filename):
        each = each.f_back
    return each is not None


def has_user(function: str) -> bool:
    """Has the user's code, as far as it is loaded, a function of this name?"""
    return any(is_named(function, code) for room in _rooms() for value in list(room.values()) for code in _own(value))


def doubt_of(point: Breakpoint) -> Doubt:
    """Why it may stop nowhere here, or nothing. Runs no code of the user's."""
    if point.function:
        is_known = has_user(point.function) or _is_loaded(point.function) or any(_led_to(point.function))
        return "" if is_known else "unknown"
    return "old" if point.file and any(_is_old(path, room) for path, room in _loaded_from(point.file)) else ""


def _main() -> dict[str, Any]:
    return vars(sys.modules["__main__"])


def _modules() -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if isinstance(cast("object", module), ModuleType)]


def _file_of(module: ModuleType) -> str:
    """From its dictionary: asked for an attribute, some modules load others."""
    return str(vars(module).get("__file__") or "")


def _rooms() -> Iterator[dict[str, Any]]:
    """The names of the user's modules."""
    yield _main()
    for module in _modules():
        if (file := _file_of(module)) and is_users(file):
            yield vars(module)


def _own(value: object) -> Iterator[CodeType]:
    """The user's code in a value, with the functions inside it."""
    codes = list(_codes_of(value))
    while codes:
        code = codes.pop()
        if is_users(code.co_filename):
            yield code
            codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]


def _codes_of(value: object) -> Iterator[CodeType]:
    """The code of a function, also under its decorators, and of the methods of a class."""
    if isinstance(value, type):
        for each in list(vars(value).values()):
            if not isinstance(each, type):
                yield from _codes_of(each)
        return
    function = _function_of(value)
    seen: set[FunctionType] = set()
    while function is not None and function not in seen:
        seen.add(function)
        yield function.__code__
        function = _function_of(vars(function).get("__wrapped__") or _closed_over(function))


def _function_of(value: object) -> FunctionType | None:
    """What runs where this is called, or read from an object."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, staticmethod | classmethod | MethodType):
        value = cast("Any", value).__func__
    if isinstance(value, partial | cached_property):
        value = cast("Any", value).func
    if not isinstance(value, FunctionType | type):  # `functools.lru_cache` makes no function
        value = inspect.getattr_static(value, "__wrapped__", None)
    return value if isinstance(value, FunctionType) else None


def _led_to(function: str) -> Iterator[CodeType]:
    """What a name leads to, from the names of cells or from a module that is loaded: `torch.nn.Linear.forward`."""
    parts = function.split(".")
    yield from _body_at(_main(), parts)
    for count in range(1, len(parts)):
        module: object = sys.modules.get(".".join(parts[:count]))
        if isinstance(module, ModuleType):
            yield from _body_at(vars(module), parts[count:])


def _body_at(room: dict[str, Any], parts: Sequence[str]) -> Iterator[CodeType]:
    """The code that was written as the function which stands there: not that of its decorators, which others share."""
    value = room.get(parts[0])
    for part in parts[1:]:
        value = inspect.getattr_static(value, part, None)
    if isinstance(value, type):  # who calls it runs what it makes its objects with
        value = vars(value).get("__init__")
    if (function := _function_of(value)) is None:
        return
    codes = list(_codes_of(function))
    for name in (parts[-1], function.__name__):
        if own := [code for code in codes if code.co_name == name]:
            yield own[-1]
            return


def _closed_over(function: FunctionType) -> object:
    """The function that a decorator without `functools.wraps` calls; one that has no value yet is none."""
    with suppress(ValueError):
        return next((cell.cell_contents for cell in function.__closure__ or () if _holds_function(cell)), None)
    return None


def _holds_function(cell: CellType) -> bool:
    return isinstance(cell.cell_contents, FunctionType)


def _key(code: CodeType) -> tuple[str, str]:
    return code.co_qualname, code.co_filename if name_of(code.co_filename) is None else ""


def _is_loaded(function: str) -> bool:
    """Does a library have it? Of a name without a class or module, only what stands in modules is found."""
    first, *rest = function.split(".")
    found = [vars(module)[first] for module in _modules() if first in vars(module)]
    for value in [*found, sys.modules.get(first)]:
        for part in rest:
            value = inspect.getattr_static(value, part, None) if isinstance(value, type | ModuleType) else None
        if any(is_named(function, code) for code in _codes_of(value)):
            return True
    return False


def _loaded_from(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for module in _modules():
        path = _file_of(module)
        if path.endswith(".py") and is_file(file, path):
            yield path, vars(module)


def _is_old(path: str, room: dict[str, Any]) -> bool:
    """Has a function of a module another text now, in its file? One that does not compile is being edited."""
    try:
        whole = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return False
    now = set(_inner(whole))  # of functions that it defines twice, one is loaded
    names = {code.co_qualname for code in now}
    loaded = (code for value in list(room.values()) for code in _codes_of(value) if code.co_filename == path)
    return any(code.co_qualname in names and code not in now for code in loaded)


def _inner(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inner(each)
