"""`%mesh dash` in a real kernel: clicks on a subshell while a cell runs, deaths while none does, a quiet end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from meshbook.kernel.dashboard.frames import Cell, apply, unpack
from tests.magics.front_end import Kernel
from tests.magics.outputs import Message
from tests.profiles import leave_torch_out

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.notebook]

VIEW = "application/vnd.jupyter.widget-view+json"

BLOCKED = """
run = m.run('import time\\nwhile True: time.sleep(0.01)')
run.finished.get(30)
sorted(run.progress.failed)
"""

ACTORS = """
import time
from meshbook import Actor, endpoint

class Dozer(Actor):
    @endpoint
    def doze(self):
        while True: time.sleep(0.01)

    @endpoint
    def well(self): ...

dozers = m.spawn("dozers", Dozer)
"""

AWAITED = """%%on_mesh
import os, time
while rank == 1 or not os.path.exists("enough"): time.sleep(0.01)
"""

COLLECTIVE = """%%on_mesh
import os, time, torch, torch.distributed as dist
if rank == 0: dist.all_reduce(torch.ones(1))
while rank == 1 or not os.path.exists("enough"): time.sleep(0.01)
rank
"""


class View:
    """The front-end's half of a dashboard: the comm, on a subshell of its own as JupyterLab has it."""

    def __init__(self, kernel: Kernel, comm: str, subshell: str | None) -> None:
        self._kernel, self._comm, self._subshell = kernel, comm, subshell
        self._numbers = iter(range(1_000_000))
        self.heard: list[Message] = []
        self.frame = b""
        opened = [each["content"] for each in kernel.messages if each["msg_type"] == "comm_open"]
        self.note: str = next(each["data"]["state"].get("note", "") for each in opened if each["comm_id"] == comm)
        self.head: dict[str, Any] = {}

    def send(self, kind: str, **content: Any) -> None:
        client = self._kernel._client
        data = {"method": "custom", "content": {"kind": kind, "view": "v", **content}}
        message = client.session.msg("comm_msg", {"comm_id": self._comm, "data": data})
        message["header"]["subshell_id"] = self._subshell
        client.shell_channel.send(message)

    def click(self, action: str, ranks: list[int], **more: Any) -> str:
        """Press a button; the number of the click."""
        number = f"c{next(self._numbers)}"
        at = more.pop("at", time.time())
        self.send("act", id=number, action=action, ranks=ranks, at=at, **{"runs": self.head.get("runs", []), **more})
        return number

    def ack(self, number: str, timeout: float = 10.0) -> dict[str, Any]:
        """Wait for the last answer to a click."""

        def done() -> list[Message]:
            return [each for each in self.heard if each.get("id") == number and each["done"]]

        self.until(lambda: bool(done()), timeout)
        return done()[0]

    def until(self, is_so: Any, timeout: float = 10.0) -> None:
        """Take messages until it is so."""
        deadline = time.monotonic() + timeout
        while not is_so():
            with contextlib.suppress(Empty):
                self._take(self._kernel._client.get_iopub_msg(timeout=0.05))
            assert time.monotonic() < deadline, f"{self.states()} {self.head} {self.heard[-3:]}"

    def states(self) -> list[str]:
        return [cell.state for cell in self.cells()]

    def cells(self) -> list[Cell]:
        return unpack(self.frame)

    def _take(self, message: Message) -> None:
        parent = message["parent_header"].get("msg_id", "")
        self._kernel._by_cell.setdefault(parent, []).append(message)
        content = message["content"]
        if message["msg_type"] != "comm_msg" or content["comm_id"] != self._comm:
            return
        told = content["data"].get("content", {})
        self.heard.append(told)
        if told.get("kind") == "frame":
            data = bytes(message["buffers"][0])
            self.frame = data if told["m"] == "full" else apply(self.frame, data)
            self.head = told


def show(kernel: Kernel, line: str = "%mesh dash") -> View:
    """Show the dashboard as a front-end does that can ask for input."""
    outputs = kernel.cell(line, allow_stdin=True)
    assert outputs.status == "ok", outputs.text
    bundle = next(data for data in outputs.shown if VIEW in data)
    assert "rank 0" in bundle["text/plain"] and 'role="region"' in bundle["text/html"]
    return connected(kernel, bundle[VIEW]["model_id"])


def connected(kernel: Kernel, comm: str, has_subshells: bool = True) -> View:
    """The front-end's half, connected; on a subshell where the kernel has some."""
    client, subshell = kernel._client, None
    if has_subshells:
        client.control_channel.send(client.session.msg("create_subshell_request"))
        subshell = client.get_control_msg(timeout=30)["content"]["subshell_id"]
    view = View(kernel, comm, subshell)
    view.send("hello")
    view.until(lambda: view.frame)
    return view


@pytest.fixture
def enough(kernel: Kernel) -> Iterator[Path]:
    """A file that ends what ranks do which are not interrupted."""
    file = kernel.folder / "enough"
    yield file
    file.unlink(missing_ok=True)


@pytest.fixture
def view(kernel: Kernel) -> Iterator[View]:
    kernel.ok("%%on_mesh\nNone")  # no rank has failed in its last cell
    view = show(kernel)
    yield view
    view.send("bye")


@pytest.fixture
def spoilt(kernel: Kernel) -> Iterator[View]:
    """The dashboard of a mesh that is taken down after the test."""
    kernel.ok("m = %mesh up spoilt dp=2 tp=2 --device cpu --pg none")
    view = show(kernel, "%mesh dash -m spoilt")
    yield view
    view.send("bye")
    kernel.ok("%mesh down spoilt")


def test_a_click_interrupts_one_rank_while_the_cell_blocks_the_kernel(kernel: Kernel, view: View) -> None:
    cell = kernel.start(BLOCKED)
    view.until(lambda: view.states() == ["busy"] * 4)
    started = time.monotonic()
    answer = view.ack(view.click("interrupt", [1]))
    assert answer["ok"] and answer["text"] == "interrupted: rank 1", answer
    assert time.monotonic() - started < 5  # 0.1 s on a quiet machine
    view.until(lambda: view.states() == ["busy", "failed", "busy", "busy"])
    view.until(lambda: view.head["lead"] == "rank 1 was interrupted")
    assert "interrupted" in view.ack(view.click("interrupt", [0, 2, 3]))["text"]
    assert cell.end().results == ["[0, 1, 2, 3]"]


def test_a_click_interrupts_one_rank_of_an_awaited_cell_and_the_others_finish(
    kernel: Kernel, view: View, enough: Path
) -> None:
    cell = kernel.start(AWAITED)
    view.until(lambda: view.states() == ["busy"] * 4)
    assert view.ack(view.click("interrupt", [1]))["text"] == "interrupted: rank 1"
    cell.until("ranks 0,2-3 go on")
    enough.touch()
    outputs = cell.end()
    assert "  1 ◌ interrupted from the dashboard; ranks 0,2-3 go on" in outputs.stderr
    assert outputs.error == "MeshError: 1 of 4 ranks interrupted (dp=0,tp=1)", outputs.error
    assert "interrupted from the dashboard, at cell" in outputs.traceback and "state kept" in outputs.traceback
    assert kernel.value("m.last_failed") == (1,)  # `@failed` runs it again on it alone


def test_a_click_interrupts_an_actor(kernel: Kernel, view: View) -> None:
    kernel.ok(ACTORS)
    cell = kernel.start("dozers.slice(dp=0, tp=1).doze.call_one().get()")
    view.until(lambda: view.states() == ["idle", "busy", "idle", "idle"])
    assert view.ack(view.click("interrupt", [1]))["text"] == "interrupted: rank 1"
    assert cell.end().error.startswith("ActorError: Actor call dozers.doze failed on rank 1")
    assert kernel.value("len(list(dozers.well.call().get()))") == 4


def test_who_waits_for_a_rank_that_is_interrupted_is_freed_and_the_others_finish(kernel: Kernel, enough: Path) -> None:
    kernel.ok("m = %mesh up pair dp=2 tp=2 --device cpu")
    view = show(kernel, "%mesh dash -m pair")
    cell = kernel.start(COLLECTIVE)
    view.until(lambda: view.states() == ["waiting", "busy", "busy", "busy"], 30)
    assert view.ack(view.click("interrupt", [1]))["text"] == "interrupted: rank 1"
    view.until(lambda: view.states() == ["failed", "failed", "busy", "busy"])
    enough.touch()
    outputs = cell.end()
    assert outputs.error == "MeshError: 2 of 4 ranks interrupted (dp=0,tp=0-1)", outputs.text
    assert "waited for rank 1, which was interrupted, at cell" in outputs.traceback
    assert "process groups renewed" in outputs.traceback
    assert kernel.value("{rank: _mesh[rank] for rank in (2, 3)}") == {2: 2, 3: 3}
    sums = kernel.ok("%%on_mesh\nx = torch.ones(1)\ndist.all_reduce(x)\nint(x)")
    assert "4" in sums.text
    view.send("bye")
    kernel.ok("%mesh down pair")


def test_a_click_that_was_held_up_or_meant_for_another_cell_does_nothing(kernel: Kernel, view: View) -> None:
    cell = kernel.start(BLOCKED)
    view.until(lambda: view.states() == ["busy"] * 4)
    assert "late" in view.ack(view.click("interrupt", [0], at=time.time() - 60))["text"]
    assert "has ended" in view.ack(view.click("interrupt", [0], runs=[1]))["text"]
    assert view.states() == ["busy"] * 4
    view.ack(view.click("interrupt", [0, 1, 2, 3]))
    cell.end()


def test_pressed_again_while_a_rank_does_not_react_it_goes_further(kernel: Kernel, spoilt: View) -> None:
    view = spoilt
    deaf = "import time\\nwhile True:\\n    try: time.sleep(0.01)\\n    except KeyboardInterrupt: pass"
    cell = kernel.start(f"run = m.run('{deaf}', [2]); run.finished.get(30); list(run.progress.lost)")
    view.until(lambda: view.states()[2] == "busy")
    texts = [view.ack(view.click("interrupt", [2])) for _ in range(3)]
    assert texts[0]["next"] == "break off collectives" and "busy" in texts[1]["text"], texts
    assert texts[2]["text"].startswith("killed: rank 2"), str(texts)
    assert cell.end().results == ["[2]"]
    view.until(lambda: view.states()[2] == "dead")
    assert "died of SIGKILL" in view.head["lead"]
    assert "rank 2 is back" in view.ack(view.click("restart", [2]), timeout=30)["text"]
    view.until(lambda: view.states() == ["idle"] * 4)


def test_stacks_and_a_word_for_the_debugger(kernel: Kernel, view: View) -> None:
    assert "rank 3" in view.ack(view.click("stacks", [3]))["detail"]
    assert "`%mesh debug 3`" in view.ack(view.click("debug", [3]))["text"]
    assert "`%mesh debug 0-3`" in view.ack(view.click("debug", [0, 1, 2, 3]))["text"]
    assert "no action 'fly'" in view.ack(view.click("fly", [3]))["text"]


def test_the_debug_button_stops_a_rank_at_work_in_the_cell_that_waits_for_it(kernel: Kernel, view: View) -> None:
    cell = kernel.start("%%on_mesh\nprint('go', flush=True)\nwhile not globals().get('go'):\n    time.sleep(0.001)")
    cell.until_all(4, "go")
    view.until(lambda: view.states()[2] == "busy")
    assert "rank 2 stopped; the prompt is in the cell that runs" in view.ack(view.click("debug", [2]))["text"]
    assert cell.talk("p rank", "go = True", "c")[0] == "rank 2 ipdb> "
    kernel.interrupt()
    assert "is stopped at cell" in cell.end().stdout


def test_an_idle_notebook_shows_a_death_within_half_a_second(kernel: Kernel, spoilt: View) -> None:
    view, pid = spoilt, kernel.pids("spoilt")[3]
    view.until(lambda: view.states() == ["idle"] * 4)
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    view.until(lambda: view.states()[3] == "dead", 5)
    seconds = time.monotonic() - started
    assert seconds < 5, seconds  # well under 0.5 on a quiet machine
    assert view.head["lead"].startswith("rank 3 died of SIGKILL")


def test_metrics_of_ranks_are_drawn_while_the_cell_runs(kernel: Kernel, view: View) -> None:
    view.send("select", ranks=[2])
    kernel.ok("%%on_mesh\nimport meshbook\nfor i in meshbook.progress(range(20), desc='step'): meshbook.log(loss=i)")
    view.until(lambda: any(each.get("kind") == "curves" for each in view.heard))
    view.until(lambda: any("step 20/20" in str(each) for each in view.heard if each.get("kind") == "panel"))
    assert "loss" in view.head["names"]
    assert kernel.value("{name: len(ranks) for name, ranks in m.metrics().data().items()}") == {"loss": 4}


def test_it_ends_quietly_with_its_mesh_and_leaves_its_last_state(kernel: Kernel) -> None:
    kernel.ok("m = %mesh up other dp=2 --device cpu --pg none")
    show(kernel, "%mesh dash -m other --hz 8")
    outputs = kernel.ok("%mesh down other")
    assert outputs.stderr == ""
    kernel.listen_until(lambda: any(map(_is_twin, _updates(kernel))), 10, "the static twin")
    names = kernel.value("[t.name for t in __import__('threading').enumerate() if 'pulse' in t.name and t.is_alive()]")
    assert len(names) <= 1  # that of the mesh `m`, if another test has shown it


def _updates(kernel: Kernel) -> list[dict[str, Any]]:
    kinds = [each for messages in kernel._by_cell.values() for each in messages]
    return [each["content"]["data"] for each in kinds if each["msg_type"] == "update_display_data"]


def _is_twin(data: dict[str, Any]) -> bool:
    return VIEW not in data and "its last state" in data["text/plain"] and "all 2 ranks idle" in data["text/plain"]


def test_where_nobody_can_see_a_widget_the_facts_are_static(kernel: Kernel) -> None:
    outputs = kernel.cell("%mesh dash", allow_stdin=False)
    (shown,) = outputs.shown
    assert VIEW not in shown and "all 4 ranks idle" in shown["text/plain"] and "<table>" in shown["text/html"]


def test_a_kernel_that_is_shut_down_under_a_dashboard_ends_at_once(new_kernel: Any) -> None:
    kernel = new_kernel(prepare=leave_torch_out)
    kernel.ok("%load_ext meshbook\nm = %mesh up dp=2 --device cpu --pg none")
    show(kernel)
    kernel.ok("%unload_ext meshbook")
    assert kernel.value("[t.name for t in __import__('threading').enumerate() if 'pulse' in t.name]") == []
    kernel.ok("%load_ext meshbook\nm = %mesh up dp=2 --device cpu --pg none")
    show(kernel)
    started = time.monotonic()
    kernel.shut_down()
    assert time.monotonic() - started < 5
