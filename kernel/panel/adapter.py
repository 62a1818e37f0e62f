"""The debugger of one rank, as a client of the Debug Adapter Protocol has it: requests go out, answers and events come.

All of it on one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...runtime.system.ours import WINGS
from ..debug.framing import Framer, Message, framed

_RUNNERS = ("IPython/**", "nest_asyncio.py")
_CHUNK = 1 << 16


class AdapterLost(Exception):
    """The rank has ended, or its debugger serves another client now."""


class Adapter:
    """A connection to a rank's debugger, from `connect` to `close` or until the rank's side ends it."""

    def __init__(self, on_event: Callable[[Message], object], on_end: Callable[[], object]) -> None:
        """Both are called on the loop; `on_end` once, when the other side has gone."""
        self._on_event, self._on_end = on_event, on_end
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._initialized = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def connect(self, path: str) -> None:
        """Raises `OSError` where nobody listens."""
        reader, self._writer = await asyncio.open_unix_connection(path)
        self._reading = asyncio.create_task(self._read(reader))

    async def attach(self, asked: Callable[[], Sequence[tuple[str, Message]]]) -> None:
        """Begin to debug, with what the client has `asked` for by then. Raises `AdapterLost`."""
        await self.ask("initialize", {"adapterID": "meshbook", "pathFormat": "path"})
        attaching = self._send("attach", {"justMyCode": False, "debugOptions": ["DebugStdLib"], "rules": _rules()})
        await self._initialized.wait()
        for command, arguments in asked():
            await self.ask(command, arguments)
        await self.ask("configurationDone", {})
        await attaching

    async def ask(self, command: str, arguments: Mapping[str, Any]) -> Message:
        """Send a request and wait for its answer. Raises `AdapterLost`."""
        return await self._send(command, arguments)

    async def close(self) -> None:
        """Let all threads go on, and be gone."""
        with contextlib.suppress(AdapterLost, TimeoutError):
            await asyncio.wait_for(self.ask("disconnect", {"terminateDebuggee": False}), 1.0)
        self._on_end = lambda: None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._writer is not None:
            self._writer.close()

    def _send(self, command: str, arguments: Mapping[str, Any]) -> asyncio.Future[Message]:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._writer is None or self._reading is None or self._reading.done():
            answer.set_exception(AdapterLost("its debugger is gone"))
            return answer
        number = next(self._numbers)
        self._asked[number] = answer
        answer.add_done_callback(lambda _: self._asked.pop(number, None))
        self._writer.write(framed({"seq": number, "type": "request", "command": command, "arguments": dict(arguments)}))
        return answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        framer = Framer()
        try:
            while data := await reader.read(_CHUNK):
                for message in framer.feed(data):
                    self._take(message)
        except ConnectionError:
            pass  # it was killed: the same as an end
        finally:
            for answer in list(self._asked.values()):
                if not answer.done():
                    answer.set_exception(AdapterLost("its debugger is gone"))
                    answer.exception()  # seen: who asked may have given up before
            self._initialized.set()
            self._on_end()

    def _take(self, message: Message) -> None:
        if message["type"] == "response":
            answer = self._asked.get(message["request_seq"])
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif message["type"] == "event":
            if message["event"] == "initialized":
                self._initialized.set()
            self._on_event(message)


def _rules() -> list[Message]:
    """What is neither shown nor stepped into: what runs cells, and Python's library. The first that fits counts."""
    paths = sysconfig.get_paths()
    packages = sorted({paths["purelib"], paths["platlib"]})
    runners = [f"{folder}/{name}" for folder in packages for name in _RUNNERS]
    ours = [f"{wing}**" for wing in WINGS]
    return [
        *({"path": path, "include": False} for path in (*ours, *runners)),
        *({"path": f"{folder}/**", "include": True} for folder in packages),
        {"path": f"{paths['stdlib']}/**", "include": False},
    ]
