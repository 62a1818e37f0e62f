"""A prompt that stands at the terminal: what is told meanwhile comes below it, and the prompt once more below that."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

_asker: int | None = None
"""The thread that waits for a line."""
_prompt = ""
_is_secret = False


@contextmanager
def standing(prompt: str, *, is_secret: bool) -> Generator[None]:
    """Inside, this thread waits at the terminal for a line."""
    global _asker, _prompt, _is_secret
    _asker, _prompt, _is_secret = threading.get_ident(), prompt, is_secret
    try:
        yield
    finally:
        _asker, _prompt = None, ""


def write(text: str, target: TextIO) -> None:
    """Write lines. Where another thread waits at a prompt, they come below it, and the prompt again below them."""
    if _asker is None or _asker == threading.get_ident():
        target.write(text)
        return
    target.write(f"\n{text}")
    target.flush()
    sys.stdout.write(f"{_prompt}{_typed()}")
    sys.stdout.flush()


def _typed() -> str:
    """What stands behind the prompt, as far as this process knows: without readline, the terminal has it."""
    readline = sys.modules.get("readline")
    return readline.get_line_buffer() if readline is not None and not _is_secret else ""
