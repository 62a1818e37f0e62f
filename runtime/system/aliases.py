"""Names that a program has given to our modules, such as `monarch.actor`: its ranks import them by these names too.

A module that a program has put into `sys.modules` is in no file that a rank could find.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from .ours import is_our_module

_PROGRAMS = ("__main__", "__mp_main__")
_PYTHONS = ("built-in", "frozen")  # what `sys` and such are said to come from; hooks of ours may be in them


def given(modules: Mapping[str, Any]) -> dict[str, str]:
    """The names in `sys.modules` that a program has made of our modules: each with what it means.

    A module that it has made by hand means nothing by itself (`""`); what is ours in it is named `module:attribute`.

    Example:
        >>> monarch = ModuleType("monarch")
        >>> monarch.Names = import_module("meshbook.runtime.shape").Extent
        >>> given({"monarch": monarch, "m.actor": sys.modules[__name__], "json": sys})
        {'monarch': '', 'monarch:Names': 'meshbook.runtime.shape:Extent', 'm.actor': 'meshbook.runtime.system.aliases'}
    """
    found: dict[str, str] = {}
    for name, module in list(modules.items()):
        if not isinstance(module, ModuleType) or is_our_module(name) or name.partition(".")[0] in _PROGRAMS:
            continue
        own = object.__getattribute__(module, "__dict__")  # asking a lazy module for anything would load it
        if _is_ours(own.get("__name__")):
            found[name] = own["__name__"]
        elif _is_made_by_hand(name, own):
            found |= _what_is_in(name, own)
    kept = {name for name in found if ":" not in name and _is_about_us(name, found)}
    return {name: what for name, what in found.items() if name.partition(":")[0] in kept}


def assume(names: Mapping[str, str]) -> None:
    """Take the names that `given` has found in another process, but for those that a module here has already."""
    for name in (name for name in sorted(names) if ":" not in name):
        if not names[name] and name in sys.modules and name not in _made:
            continue
        module = import_module(names[name]) if names[name] else _by_hand(name)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent in _made:
            setattr(sys.modules[parent], last, module)
    for name, what in names.items():
        module, _, attribute = name.partition(":")
        if attribute and module in _made:
            home, _, within = what.partition(":")
            ours = import_module(home)
            setattr(sys.modules[module], attribute, getattr(ours, within) if within else ours)


_made: set[str] = set()
"""The modules made by hand in this process."""


def _is_ours(module_name: object) -> bool:
    return isinstance(module_name, str) and is_our_module(module_name.partition(":")[0])


def _is_made_by_hand(name: str, own: Mapping[str, Any]) -> bool:
    is_pythons = name in sys.builtin_module_names or getattr(own.get("__spec__"), "origin", None) in _PYTHONS
    return not is_pythons and own.get("__file__") is None and not list(own.get("__path__") or ())


def _what_is_in(name: str, own: Mapping[str, Any]) -> dict[str, str]:
    return {name: "", **{f"{name}:{attribute}": what for attribute, what in _ours_in(own)}}


def _ours_in(own: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for attribute, value in own.items():
        if isinstance(value, ModuleType):
            home, within = object.__getattribute__(value, "__dict__").get("__name__"), ""
        elif isinstance(value, type | FunctionType):
            home, within = value.__module__, value.__qualname__
        else:
            continue
        is_known = _is_ours(home) or home == "builtins"  # some names of Monarch's are `str` here
        if is_known and (not within or getattr(sys.modules.get(home), within, None) is value):
            yield attribute, f"{home}:{within}"


def _is_about_us(name: str, found: Mapping[str, str]) -> bool:
    """Is this one of our modules, or one that has something of ours in it or below it?"""
    below = (f"{name}:", f"{name}.")
    return any(_is_ours(what) for other, what in found.items() if other == name or other.startswith(below))


def _by_hand(name: str) -> ModuleType:
    _made.add(name)
    made = ModuleType(name)
    made.__path__ = []  # what is below it is in `sys.modules`, and nowhere else
    return made
