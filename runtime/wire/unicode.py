"""Texts that are not Unicode, as names of files may be: the bytes that explain nothing are lone surrogates in them.

Neither msgpack nor JSON takes these. Python prints them as escapes, where it prints them at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

_encode = msgspec.msgpack.Encoder().encode


def packed(value: object) -> bytes:
    r"""A value as msgpack, lone surrogates in its texts as escapes.

    Example:
        >>> msgspec.msgpack.decode(packed(["data-\udcff.pt", b"\xff", 1]))
        ['data-\\udcff.pt', b'\xff', 1]
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_with_escapes(msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))))


def escaped(text: str) -> str:
    r"""The same text, lone surrogates in it as escapes.

    Example:
        >>> escaped("data-\udcff.pt")
        'data-\\udcff.pt'
    """
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def _with_escapes(value: object) -> object:
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_with_escapes(key): _with_escapes(each) for key, each in items}
    if isinstance(value, list | tuple):
        return [_with_escapes(each) for each in cast("list[Any]", value)]
    return value
