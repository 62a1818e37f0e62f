"""What a front-end got for a cell: the messages as a reader sees them."""

from __future__ import annotations

import re
from typing import Any

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")

Message = dict[str, Any]


class Outputs:
    """What a front-end got for one cell."""

    def __init__(self, messages: list[Message], reply: Message) -> None:
        self.messages = messages
        self.reply = reply["content"]
        self.seconds = (reply["header"]["date"] - reply["parent_header"]["date"]).total_seconds()
        """From the request to the reply."""

    @property
    def status(self) -> str:
        return self.reply["status"]

    @property
    def error(self) -> str:
        """The type and the text of the error that the reply carries; empty without one."""
        return f"{self.reply['ename']}: {self.reply['evalue']}" if self.status == "error" else ""

    @property
    def traceback(self) -> str:
        """The error as a front-end shows it, without colours."""
        return plain("\n".join(line for error in self._of("error") for line in error["traceback"]))

    @property
    def stdout(self) -> str:
        return self._stream("stdout")

    @property
    def stderr(self) -> str:
        return self._stream("stderr")

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The mime bundles of displays and of the result, in order; updates are not among them."""
        return [content["data"] for content in self._of("display_data", "execute_result")]

    @property
    def results(self) -> list[str]:
        """What stands behind `Out[...]`: at most one text."""
        return [content["data"]["text/plain"] for content in self._of("execute_result")]

    @property
    def updates(self) -> list[Message]:
        """The contents of display updates."""
        return self._of("update_display_data")

    @property
    def text(self) -> str:
        """All that a reader sees, in order, without colours."""
        return plain("".join(map(text_of, self.messages)))

    def _of(self, *kinds: str) -> list[Message]:
        return [message["content"] for message in self.messages if message["msg_type"] in kinds]

    def _stream(self, name: str) -> str:
        return plain("".join(content["text"] for content in self._of("stream") if content["name"] == name))


def text_of(message: Message) -> str:
    content = message["content"]
    match message["msg_type"]:
        case "stream":
            return content["text"]
        case "display_data" | "execute_result":
            return content["data"].get("text/plain", "") + "\n"
        case "error":
            return "\n".join(content["traceback"]) + "\n"
    return ""


def plain(text: str) -> str:
    return _ESCAPES.sub("", text)
