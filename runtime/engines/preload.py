"""Imports that are done before they are needed, in processes that become ranks later."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable


def import_all(modules: Iterable[str]) -> str:
    """Import each `module`, `module?` (if it is installed) or `module:function` (called then); what went wrong.

    Example:
        >>> import_all(["json", "no_such_module?", "os:getpid"]), import_all(["no_such_module"])
        ('', "cannot import no_such_module: ModuleNotFoundError: No module named 'no_such_module'")
    """
    for name in modules:
        module, _, function = name.rstrip("?").partition(":")
        try:
            loaded = importlib.import_module(module)
            if function:
                getattr(loaded, function)()
        except Exception as error:  # noqa: BLE001 - a module may raise anything; ranks that are executed tell it
            if not (name.endswith("?") and isinstance(error, ImportError)):
                return f"cannot import {module}: {traceback.format_exc(limit=-1).splitlines()[-1]}"
    return ""
