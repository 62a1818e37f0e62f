"""Constants of a kernel for a while: what is told after seconds of silence is told at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def hurried(kernel: Any, module: str, **seconds: float) -> Generator[None]:
    """Public constants of a module of ours, in the notebook's own process.

    Example: `with hurried(kernel, "meshbook.kernel.waiting.hangs", FIRST=0.4): ...`
    """
    alias = f"_{module.rpartition('.')[2]}"
    names = ", ".join(f"{alias}.{name}" for name in seconds)
    kernel.ok(f"import {module} as {alias}\n{alias}_before = {names},\n[{names}] = {[*seconds.values()]}")
    try:
        yield
    finally:
        kernel.ok(f"[{names}] = {alias}_before")
