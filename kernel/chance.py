"""What differs from rank to rank by chance, and means the same: addresses in memory, ports of peers."""

from __future__ import annotations

import re

from msgspec.structs import replace

from .outcome import Value

_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]{6,}(?=[>&\s,;)\]])")


_BY_CHANCE = re.compile(r"(?<=\]:)\d+|\b0x[0-9a-f]{6,}")
"""In messages of errors: a peer's port, as gloo writes it, and an address."""


def essence(message: str) -> str:
    """What is equal in messages that differ by chance alone: to compare, not to show.

    Example:
        >>> essence("closed by peer [127.0.0.1]:17") == essence("closed by peer [127.0.0.1]:4")
        True
    """
    return _BY_CHANCE.sub("", message)


def unaddressed(value: Value) -> Value:
    """What is shown of an object that several ranks have, each at another address. A text is as it is.

    Example:
        >>> unaddressed(Value("Net", "<Net at 0x7f8dd36c6e50>")).text
        '<Net at 0x…>'
    """
    if value.type_name == "str" or not any(" at 0x" in text for text in (value.text, *value.mime.values())):
        return value
    mime = {kind: _ADDRESS.sub("0x…", text) for kind, text in value.mime.items()}
    return replace(value, text=_ADDRESS.sub("0x…", value.text), mime=mime)
