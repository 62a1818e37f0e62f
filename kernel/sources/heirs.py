"""What a module defines, after it was run anew: who has had it by name from there has the new one.

IPython's autoreload gives old classes the code of the new ones, and their instances to these. A name that another
module has imported would still stand for the old class: nothing would be an instance of it, `except` would not catch
what is raised, and what it makes could not be pickled.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from enum import EnumType
from types import FunctionType, ModuleType
from typing import Any, cast

from .editions import INSTALLED


def estate(module: ModuleType) -> dict[str, Any]:
    """The classes and functions that a module defines, by name. Of an enum, members are compared by who they are."""
    return {
        name: thing
        for name, thing in vars(module).items()
        if isinstance(thing, type | FunctionType)
        and thing.__module__ == module.__name__
        and not isinstance(thing, EnumType)
    }


def hand_over(former: Mapping[str, Any], module: ModuleType, names: MutableMapping[str, Any]) -> None:
    """Put what the module has now in the places of what it had: in `names`, the user's modules, and as base classes."""
    now = vars(module)
    heirs = {
        id(old): now[name]
        for name, old in former.items()
        if name in now and now[name] is not old and type(now[name]) is type(old)
    }
    for places in (names, *map(vars, _users_modules())) if heirs else ():
        places.update({name: heirs[id(thing)] for name, thing in list(places.items()) if id(thing) in heirs})
    for old in former.values():
        if isinstance(old, type) and id(old) in heirs:
            _adopt(old.__subclasses__(), heirs)


def _adopt(classes: list[type], heirs: Mapping[int, Any]) -> None:
    for each in classes:
        with suppress(TypeError):  # of another layout, or its order of bases would be none: it keeps the old one
            each.__bases__ = tuple(heirs.get(id(base), base) for base in each.__bases__)


def _users_modules() -> list[ModuleType]:
    modules = [each for each in cast("list[object]", [*sys.modules.values()]) if isinstance(each, ModuleType)]
    files = [(module, vars(module).get("__file__")) for module in modules]
    return [module for module, file in files if isinstance(file, str) and not file.startswith(INSTALLED)]
