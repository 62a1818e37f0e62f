"""Imports that are done before they are needed, in processes that become ranks later."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

_CAN_WAIT = "~"


def at_once(modules: Iterable[str]) -> list[str]:
    """Those that are needed before a rank can be there.

    Example:
        >>> at_once(["torch?", "torch.fx~"]), those_that_can_wait(["torch?", "torch.fx~"])
        (['torch?'], ['torch.fx~'])
    """
    return [name for name in modules if not name.endswith(_CAN_WAIT)]


def those_that_can_wait(modules: Iterable[str]) -> list[str]:
    """The others: what some ranks will import, and had better find imported."""
    return [name for name in modules if name.endswith(_CAN_WAIT)]


def import_all(modules: Iterable[str]) -> str:
    """Import each `module`, `module?` (if it is installed) or `module:function` (called then); what went wrong.

    A module may also be something that one has, as in `import_named`; a name may end in `~` (it can wait) besides.

    Example:
        >>> import_all(["json", "no_such_module?", "os:getpid"]), import_all(["no_such_module"])
        ('', "cannot import no_such_module: ModuleNotFoundError: No module named 'no_such_module'")
    """
    for name in modules:
        name = name.removesuffix(_CAN_WAIT)
        module, _, function = name.removesuffix("?").partition(":")
        try:
            loaded = import_named(module)
            if function:
                getattr(loaded, function)()
        except Exception as error:  # noqa: BLE001 - a module may raise anything; ranks that are executed tell it
            if not (name.endswith("?") and isinstance(error, ImportError)):
                return f"cannot import {module}: {traceback.format_exc(limit=-1).splitlines()[-1]}"
    return ""


def import_named(name: str) -> Any:
    """Import a module, or what a module has: some packages import their parts when these are asked for.

    Raises `ImportError` where there is no such module, and `AttributeError` where a module has no such thing.

    Example:
        >>> import_named("os.path").__name__, import_named("os.path.join").__name__
        ('posixpath', 'join')
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        module, _, attribute = name.rpartition(".")
        if error.name != name or not module:
            raise
    return getattr(importlib.import_module(module), attribute)


def packaged(modules: Iterable[str], path: Sequence[str], cwd: str) -> tuple[str, ...]:
    """Those of `modules` that come from installed packages for who works in `cwd` and has this `sys.path`.

    What lies elsewhere is being written: a process that outlives an edit of it must not have imported it.

    Example:
        >>> import os, sys
        >>> packaged(["json", "msgspec.json", "no_such_module"], sys.path, os.getcwd())
        ('msgspec.json',)
    """
    folders = [os.path.abspath(os.path.join(cwd, each)) for each in path]
    return tuple(dict.fromkeys(name for name in modules if _is_packaged(name.partition(".")[0], folders)))


def _is_packaged(package: str, folders: Sequence[str]) -> bool:
    found = importlib.machinery.PathFinder.find_spec(package, folders)
    if found is None or found.origin is None:
        return False
    inner = os.path.dirname(found.origin) if found.submodule_search_locations is not None else found.origin
    return os.path.dirname(inner).endswith("-packages")
