"""`%mesh debug --console` in a real kernel: stops are answered by a widget while a cell blocks or awaits."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator
from queue import Empty
from typing import Any

import pytest

from tests.magics.front_end import Kernel
from tests.magics.outputs import Message

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.notebook]

VIEW = "application/vnd.jupyter.widget-view+json"

STOP = """%%on_mesh
def scaled(data, factor):
    total = data.sum()
    breakpoint()
    return total * factor
scaled(torch.ones(3, rank + 1), 2).item()"""

BLOCKED = """
run = m.run('''x = rank
breakpoint()
x''')
run.finished.get(60)
sorted(run.progress.outcomes)
"""


class View:
    """The front-end's half of a console, on a subshell of its own as JupyterLab has it."""

    def __init__(self, kernel: Kernel, comm: str, subshell: str) -> None:
        self._kernel, self._comm, self._subshell = kernel, comm, subshell
        self.heard: list[Message] = []

    @property
    def state(self) -> dict[str, Any]:
        return next((each for each in reversed(self.heard) if each["kind"] == "state"), {"stops": [], "focus": None})

    @property
    def out(self) -> str:
        return "".join(each["text"] for each in self.heard if each["kind"] == "out")

    def send(self, kind: str, **content: Any) -> None:
        client = self._kernel._client
        data = {"method": "custom", "content": {"kind": kind, "view": "v", **content}}
        message = client.session.msg("comm_msg", {"comm_id": self._comm, "data": data})
        message["header"]["subshell_id"] = self._subshell
        client.shell_channel.send(message)

    def type(self, line: str) -> None:
        """Type a line once somebody asks, and wait for the next question or the end."""
        self.until(lambda: self.state["focus"])
        num_answers = self.state["answers"]
        self.send("line", text=line)
        self.until(lambda: self.state["answers"] > num_answers)

    def until(self, is_so: Callable[[], Any], timeout: float = 15.0) -> None:
        """Take messages until it is so."""
        deadline = time.monotonic() + timeout
        while not is_so():
            with contextlib.suppress(Empty):
                self._take(self._kernel._client.get_iopub_msg(timeout=0.05))
            assert time.monotonic() < deadline, f"{self.state} {self.out}"

    def _take(self, message: Message) -> None:
        parent = message["parent_header"].get("msg_id", "")
        self._kernel._by_cell.setdefault(parent, []).append(message)
        content = message["content"]
        if message["msg_type"] == "comm_msg" and content["comm_id"] == self._comm:
            self.heard.append(content["data"].get("content", {"kind": ""}))


@pytest.fixture
def view(kernel: Kernel) -> Iterator[View]:
    with opened(kernel, "m") as view:
        yield view


@contextlib.contextmanager
def opened(kernel: Kernel, mesh: str) -> Generator[View]:
    """The console of the current mesh."""
    outputs = kernel.cell("%mesh debug --console", allow_stdin=True)
    assert outputs.status == "ok", outputs.text
    bundle = next(data for data in outputs.shown if VIEW in data)
    assert f"debugger of mesh {mesh}" in bundle["text/plain"]
    client = kernel._client
    client.control_channel.send(client.session.msg("create_subshell_request"))
    subshell = client.get_control_msg(timeout=30)["content"]["subshell_id"]
    view = View(kernel, bundle[VIEW]["model_id"], subshell)
    view.send("hello")
    view.until(lambda: any(each["kind"] == "state" for each in view.heard))
    yield view
    view.send("close")
    view.until(lambda: view.heard[-1]["kind"] == "end")


def test_it_shows_source_frames_and_variables_and_answers(kernel: Kernel, view: View) -> None:
    cell = kernel.start(STOP)
    view.until(lambda: len(view.state["stops"]) == 4 and view.state["focus"])
    shown = view.state["view"]
    assert shown["lines"][shown["line"] - shown["first"]].strip() in ("breakpoint()", "return total * factor")
    assert [level["place"].rpartition(" ")[2] for level in shown["levels"]][-1] == "scaled"
    assert dict(shown["variables"])["factor"] == "2" and "Tensor float32 [3" in dict(shown["variables"])["data"]
    view.type("%rank 2")
    assert view.state["focus"][0] == 2 and "rank 2" in view.state["prompt"]
    assert dict(view.state["view"]["variables"])["data"] == "Tensor float32 [3, 3]"
    view.type("p total")
    assert "tensor(9.)" in view.out
    view.type("frame 0")
    assert view.state["view"]["at"] == 0 and "rank" in dict(view.state["view"]["variables"])
    view.type("q")
    assert "6.0" in cell.end().text


def test_it_completes(kernel: Kernel, view: View) -> None:
    cell = kernel.start(STOP)
    view.until(lambda: view.state["focus"])
    view.send("complete", id=7, prefix="fact")
    view.until(lambda: any(each["kind"] == "completions" for each in view.heard))
    found = next(each for each in view.heard if each["kind"] == "completions")
    assert (found["id"], found["words"]) == (7, ["factor"])
    view.type("q")
    cell.end()


def test_it_answers_while_a_cell_blocks_the_kernel(kernel: Kernel, view: View) -> None:
    cell = kernel.start(BLOCKED)
    view.until(lambda: len(view.state["stops"]) == 4 and view.state["focus"])
    view.type("%all p x")
    assert "0 │ 0\n1 │ 1" in view.out
    view.type("%all c")
    assert cell.end().results == ["[0, 1, 2, 3]"]
    view.until(lambda: not view.state["stops"])


def test_stop_in_the_notebook_takes_its_question_back(kernel: Kernel, view: View) -> None:
    cell = kernel.start(STOP)
    view.until(lambda: view.state["focus"])
    kernel.interrupt()
    view.until(lambda: not view.state["stops"] and view.state["focus"] is None)
    assert "interrupted" in cell.end().error


def test_a_rank_that_dies_takes_its_question_back(kernel: Kernel) -> None:
    kernel.ok("%mesh up dies -n 2 --device cpu --pg none")
    pids = kernel.pids("dies")
    with opened(kernel, "dies") as view:
        cell = kernel.start("%%on_mesh\nbreakpoint()")
        view.until(lambda: len(view.state["stops"]) == 2 and view.state["focus"])
        victim = view.state["focus"][0]
        os.kill(pids[victim], signal.SIGKILL)
        view.until(lambda: view.state["focus"] and view.state["focus"][0] == 1 - victim)
        assert f"rank {victim} (rank={victim}) has died in the debugger\n" in view.out
        view.type("q")
        assert "killed by SIGKILL" in cell.end().text
    kernel.ok("%mesh down dies")


def test_when_it_is_closed_the_cell_asks(kernel: Kernel, view: View) -> None:
    cell = kernel.start(STOP)
    view.until(lambda: view.state["focus"])
    view.send("close")
    assert cell.asked().startswith("rank ")
    cell.type("q")
    assert cell.end().status == "ok"


def test_post_mortem_in_it(kernel: Kernel, view: View) -> None:
    kernel.cell("%%on_mesh 1\ndef f(a):\n    return a / 0\nf(7)")
    cell = kernel.start("%mesh debug --pm")
    view.until(lambda: view.state["focus"])
    assert view.state["stops"][0]["kind"] == "post-mortem"
    assert dict(view.state["view"]["variables"]) == {"a": "7"}
    view.type("q")
    assert cell.end().status == "ok"


def test_where_nobody_can_see_it(kernel: Kernel) -> None:
    assert "shows no widgets" in kernel.cell("%mesh debug --console", allow_stdin=False).text
