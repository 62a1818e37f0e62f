"""How messages of the Debug Adapter Protocol travel: https://microsoft.github.io/debug-adapter-protocol/overview."""

from __future__ import annotations

import json
from typing import Any, cast

Message = dict[str, Any]

_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


def framed(message: Message) -> bytes:
    r"""A message as it travels.

    >>> framed({"seq": 1})
    b'Content-Length: 9\r\n\r\n{"seq":1}'
    """
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Framer:
    r"""Makes messages of the bytes that come, however they are cut.

    >>> framer = Framer()
    >>> framer.feed(b"Content-Length: 9\r\n\r\n{"), framer.feed(b'"seq":1}Content-')
    ([], [{'seq': 1}])
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. Raises `ValueError` for what is no message."""
        self._rest += data
        messages: list[Message] = []
        while (found := self._first()) is not None:
            messages.append(found)
        return messages

    def _first(self) -> Message | None:
        head, end, body = self._rest.partition(_END)
        if not end:
            return None
        lines = [line for line in head.lower().split(b"\r\n") if line.startswith(_LENGTH)]
        if not lines:
            raise ValueError(f"a message without a length: {head[:80]!r}")
        length = int(lines[0].removeprefix(_LENGTH))
        if len(body) < length:
            return None
        self._rest = body[length:]
        return cast("Message", json.loads(body[:length]))
