"""An editor attaches to a rank: it sets a breakpoint in a cell, stops there, and reads a variable."""

from __future__ import annotations

import itertools
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

TRAIN = """%%on_mesh --label train
x = rank * 10
y = x + 1
z = y * 2
z"""


class Editor:
    """A client of the Debug Adapter Protocol: https://microsoft.github.io/debug-adapter-protocol."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self._socket.makefile("rb")
        self._numbers = itertools.count(1)
        self._heard: list[dict[str, Any]] = []

    def send(self, command: str, **arguments: Any) -> int:
        number = next(self._numbers)
        body = json.dumps({"seq": number, "type": "request", "command": command, "arguments": arguments}).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return number

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        number = self.send(command, **arguments)
        answer = self._until(lambda each: each.get("request_seq") == number)
        assert answer["success"], answer
        return answer.get("body") or {}

    def event(self, name: str) -> dict[str, Any]:
        """Wait for an event that was not waited for before."""
        found = self._until(lambda each: each.get("event") == name)
        self._heard.remove(found)
        return found.get("body") or {}

    def _until(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + 20
        while not (found := next(filter(fits, self._heard), None)):
            assert time.monotonic() < deadline, self._heard[-5:]
            length = 0
            while (line := self._file.readline().strip()) or not length:
                length = int(line.split(b":")[1]) if line.startswith(b"Content-Length") else length
            self._heard.append(json.loads(self._file.read(length)))
        return found

    def attach(self) -> None:
        self.ask("initialize", adapterID="test", pathFormat="path")
        self._attaching = self.send("attach", justMyCode=False)
        self.event("initialized")

    def close(self) -> None:
        self.ask("disconnect", terminateDebuggee=False)
        self._file.close()
        self._socket.close()


@pytest.fixture
def opened(kernel: Any) -> Iterator[Any]:
    """A mesh of its own: debugpy stays in its ranks."""
    kernel.ok("%mesh up edited -n 2 --device cpu --pg none")
    yield kernel
    kernel.ok("%mesh down edited")


def test_a_breakpoint_in_a_cell_of_one_rank_and_a_variable(opened: Any) -> None:
    kernel = opened
    kernel.ok(TRAIN)
    said = kernel.ok("%mesh debug 1 --dap").stdout
    port, folder = int(re.search(r"rank 1: 127.0.0.1:(\d+)", said)[1]), re.search(r"files in (\S+);", said)[1]  # pyright: ignore[reportOptionalSubscript]
    assert '"request": "attach"' in said and "rank 0" not in said
    path = f"{folder}/train.py"
    with open(path) as file:
        assert file.read().splitlines()[3] == "z = y * 2"
    editor = Editor(port)
    editor.attach()
    set_ = editor.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": 4}])["breakpoints"]
    assert set_[0]["verified"], set_
    editor.ask("configurationDone")
    cell = kernel.start(TRAIN)
    thread = editor.event("stopped")["threadId"]
    frames = editor.ask("stackTrace", threadId=thread)["stackFrames"]
    assert (frames[0]["source"]["path"], frames[0]["line"]) == (path, 4)
    assert editor.ask("evaluate", expression="y", frameId=frames[0]["id"])["result"] == "11"
    scopes = editor.ask("scopes", frameId=frames[0]["id"])["scopes"]
    found = editor.ask("variables", variablesReference=scopes[0]["variablesReference"])["variables"]
    assert {each["name"]: each["value"] for each in found}["x"] == "10"
    assert "train" in kernel.start_aside("%mesh stacks 1").end().text  # its control thread answers while it is stopped
    editor.ask("continue", threadId=thread)
    done = cell.end()
    assert "22   rank 1" in done.text and "PYDEV" not in done.text
    cell = kernel.start("%%on_mesh 1\nbreakpoint()\n'in the editor'")
    thread = editor.event("stopped")["threadId"]
    editor.ask("continue", threadId=thread)
    assert "in the editor" in cell.end().text
    editor.close()
    cell = kernel.start("%%on_mesh 1\nbreakpoint()\n'in the notebook'")
    cell.talk("n", "c")
    done = cell.end()
    assert "in the notebook" in done.text and "PYDEV" not in done.text
