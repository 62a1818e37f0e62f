"""What IPython remembers of a `%%on_mesh` cell: a call that runs wherever its history is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RUNNER = "__meshbook_run__"
"""The built-in name under which a transformed cell finds the awaitable form of `%%on_mesh`: `%reset` leaves it."""

_AWAITED = f"await {RUNNER}("
_CALLED = "get_ipython().run_cell_magic('on_mesh', "


def as_call(source: str) -> str:
    """A transformed cell as IPython itself would have it, for `In`, `%macro` and `%save`: a script has no top `await`.

    Example:
        >>> as_call(f"await {RUNNER}('0', '1 + 1')")
        "get_ipython().run_cell_magic('on_mesh', '0', '1 + 1')"
    """
    return _CALLED + source[len(_AWAITED) :] if source.startswith(_AWAITED) else source


def remember_as_call(history: Any) -> Callable[[], None]:
    """Let a history keep cells so; what takes that back."""
    store = history.store_inputs

    def store_inputs(number: int, source: str, source_raw: str | None = None) -> None:
        store(number, as_call(source), source if source_raw is None else source_raw)

    history.store_inputs = store_inputs
    return lambda: delattr(history, "store_inputs")  # its own is that of its class
