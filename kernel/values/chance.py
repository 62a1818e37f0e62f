"""What differs from rank to rank by chance, and means the same: addresses in memory, ports of peers."""

from __future__ import annotations

import re

from msgspec.structs import replace

from ..outcome import Value

_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]{6,}(?=[>&\s,;)\]])")

_BY_CHANCE = re.compile(r"(?<=\]:)\d+|\b0x[0-9a-f]{6,}")
"""In messages of errors: a peer's port, as gloo writes it, and an address."""


def essence(message: str, rank: int | None = None) -> str:
    """What is equal in messages that differ by chance alone, or in the number of the rank: to compare, not to show.

    Example:
        >>> essence("closed by peer [127.0.0.1]:17") == essence("closed by peer [127.0.0.1]:4")
        True
        >>> essence("no grad for rank 0: 2 3", 0) == essence("no grad for rank 1: 2 3", 1)
        True
    """
    text = _BY_CHANCE.sub("", message)
    return text if rank is None else re.sub(rf"\b([Rr]ank) {rank}\b", r"\1", text)


def unaddressed(value: Value) -> Value:
    """What is shown of an object that several ranks have, each at another address. A text is as it is.

    Example:
        >>> unaddressed(Value("Net", "<Net at 0x7f8dd36c6e50>")).text
        '<Net at 0x…>'
    """
    texts = (value.text, value.stayed or "", *value.mime.values())
    if value.type_name == "str" or not any(" at 0x" in text for text in texts):
        return value
    mime = {kind: without_addresses(text) for kind, text in value.mime.items()}
    stayed = value.stayed and without_addresses(value.stayed)
    return replace(value, text=without_addresses(value.text), stayed=stayed, mime=mime)


def without_addresses(text: str) -> str:
    """A text with the addresses of objects left out.

    Example:
        >>> without_addresses("<Net at 0x7f8dd36c6e50>")
        '<Net at 0x…>'
    """
    return _ADDRESS.sub("0x…", text)
