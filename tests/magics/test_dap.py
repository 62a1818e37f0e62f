"""An editor attaches to a rank: it sets a breakpoint in a cell, stops there, and reads a variable."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from meshbook.kernel.debug.framing import Framer, framed

pytestmark = [pytest.mark.real, pytest.mark.slow]

TRAIN = """%%on_mesh --label train
x = rank * 10
y = x + 1
z = y * 2
z"""


class Editor:
    """A client of the Debug Adapter Protocol, which starts its adapter as VS Code does what `launch.json` tells.

    https://microsoft.github.io/debug-adapter-protocol
    """

    def __init__(self, launch: dict[str, Any]) -> None:
        command = [launch["debugAdapterPython"], launch["debugAdapterPath"]]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._numbers = itertools.count(1)
        self._heard: list[dict[str, Any]] = []
        self._framer = Framer()

    def send(self, command: str, **arguments: Any) -> int:
        number = next(self._numbers)
        self._in.write(framed({"seq": number, "type": "request", "command": command, "arguments": arguments}))
        self._in.flush()
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
            assert select.select([self._out], [], [], max(deadline - time.monotonic(), 0))[0], self._heard[-5:]
            data = os.read(self._out.fileno(), 1 << 16)
            assert data, "the adapter has ended"
            self._heard += self._framer.feed(data)
        return found

    def attach(self) -> None:
        self.ask("initialize", adapterID="test", pathFormat="path")
        self._attaching = self.send("attach", justMyCode=False)
        self.event("initialized")

    def close(self) -> None:
        """Leave as an editor that is killed does, without a word."""
        self._process.kill()
        self._process.wait()
        self._in.close()
        self._out.close()


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
    folder = Path(re.search(r"files in (\S+);", said)[1])  # pyright: ignore[reportOptionalSubscript]
    [launch] = json.loads(said[said.index("{") : said.rindex("}") + 1])["configurations"]
    assert (launch["request"], launch["processId"]) == ("attach", kernel.pids("edited")[1]) and "rank 0" not in said
    listening = Path(re.search(r"rank 1: (\S+)", said)[1])  # pyright: ignore[reportOptionalSubscript]
    assert listening.is_socket() and stat.S_IMODE(listening.parent.stat().st_mode) == 0o700
    ports = [each for each in psutil.Process(launch["processId"]).net_connections("inet") if each.status == "LISTEN"]
    assert ports == []
    path = f"{folder}/train.py"
    with open(path) as file:
        assert file.read().splitlines()[3] == "z = y * 2"
    editor = Editor(launch)
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
    editor.close()
    assert "in the editor" in cell.end().text
    cell = kernel.start("%%on_mesh 1\nbreakpoint()\n'in the notebook'")
    cell.talk("n", "c")
    done = cell.end()
    assert "in the notebook" in done.text and "PYDEV" not in done.text
