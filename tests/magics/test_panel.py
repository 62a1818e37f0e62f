"""JupyterLab's debugger panel by its messages: on the meshbook kernel it covers the ranks of the notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from meshbook.kernel import spec
from meshbook.magics.panel import missing
from tests.magics.front_end import Cell, Kernel
from tests.profiles import leave_torch_out

pytestmark = [pytest.mark.real, pytest.mark.slow]

Message = dict[str, Any]

TRAIN = """%%on_mesh
def loss_of(batch):
    scaled = [each * rank for each in batch]
    return sum(scaled)
loss = loss_of([1, 2, 3])
loss + 1"""


def test_of_an_ipykernel_without_what_is_needed_that_is_said() -> None:
    class Other:
        do_debug_request = None

    said = missing(Other)
    assert said.startswith("the debugger panel shows no ranks: ipykernel ")
    assert said.endswith(" has no IPythonKernel._publish_debug_event")


class Panel:
    """What JupyterLab's panel does and believes: it knows one stopped thread, the one that it heard of last."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._num_heard = len(kernel.debug_events)
        self.thread: int | None = None
        self.frames: list[Message] = []

    def ask(self, command: str, **arguments: Any) -> Message:
        reply = self.kernel.debug(command, **arguments)
        assert reply["success"], reply.get("message")
        return reply.get("body") or {}

    def switch_on(self) -> None:
        self.ask("initialize", adapterID="meshbook", pathFormat="path")
        self.ask("attach")

    def switch_off(self) -> None:
        self.ask("disconnect", restart=False, terminateDebuggee=False)
        self.thread, self.frames = None, []

    def break_at(self, cell: str, *lines: int) -> str:
        """Click the gutter of a cell; the file of the cell."""
        path = self.ask("dumpCell", code=cell)["sourcePath"]
        told = self.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": line} for line in lines])
        assert [each["line"] for each in told["breakpoints"]] == list(lines), told
        return path

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Take events, and ask for frames as the panel does, until something holds."""
        while not is_so():
            self.kernel.listen_until(
                lambda: len(self.kernel.debug_events) > self._num_heard, 30.0, f"{what}: {self.names}"
            )
            event = self.kernel.debug_events[self._num_heard]
            self._num_heard += 1
            if event["event"] == "stopped":
                self.thread = event["body"]["threadId"]
                self.frames = self.kernel.debug("stackTrace", threadId=self.thread)["body"]["stackFrames"]
            elif event["event"] == "continued":
                self.thread, self.frames = None, []

    def until_shown(self, *names: str) -> None:
        self.until(lambda: self.names == list(names), f"frames {names}")

    @property
    def names(self) -> list[str]:
        return [f"{each['name']}:{each['line']}" for each in self.frames]

    def variables(self, name: str) -> dict[str, str]:
        """Click a frame; its variables."""
        frame = next(each for each in self.frames if each["name"] == name)
        scopes = self.ask("scopes", frameId=frame["id"])["scopes"]
        told = self.ask("variables", variablesReference=scopes[0]["variablesReference"])["variables"]
        return {each["name"]: each["value"] for each in told}

    def go(self, command: str) -> None:
        """Press a button. To go on, the panel names thread 1, whichever it shows."""
        thread = 1 if command == "continue" else self.thread
        self.thread, self.frames = (None, []) if command == "continue" else (self.thread, self.frames)
        self.ask(command, threadId=thread)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    prefix = tmp_path_factory.mktemp("panel")
    spec.install(str(prefix))
    kernel = Kernel(prefix, prepare=leave_torch_out)
    try:
        kernel.ok("m = %mesh up m gpus=3 --device cpu --pg none")
        yield kernel
    finally:
        kernel.close()


@pytest.fixture
def panel(kernel: Kernel, leaks: Any) -> Iterator[Panel]:
    panel = Panel(kernel)
    panel.switch_on()
    leaks.allow_what_stands()  # debugpy's adapter of the notebook itself ends with the kernel
    yield panel
    panel.switch_off()


def started(panel: Panel, cell: str, *lines: int) -> tuple[Cell, list[int]]:
    """Run a cell on all three ranks until they are stopped; the cell and the ranks, as they are listed."""
    panel.break_at(cell, *lines)
    running = panel.kernel.start(cell)
    panel.until(lambda: len({name.partition(" · ")[0] for name in panel.names}) == 3, "three ranks")
    ranks = [int(name.split()[1]) for name in panel.names]
    return running, list(dict.fromkeys(ranks))


def states(kernel: Kernel) -> list[str]:
    return kernel.value("list(m.states().values())")


def test_ranks_stop_are_switched_between_step_and_go_on(panel: Panel) -> None:
    path = panel.break_at(TRAIN, 4)
    cell, (first, second, third) = started(panel, TRAIN, 4)
    names = [f"rank {first} · loss_of:4", f"rank {first} · <module>:5"]
    assert panel.names == [*names, f"rank {second} · loss_of:4", f"rank {third} · loss_of:4"]
    assert {each["source"]["path"] for each in panel.frames} == {path}
    titles = [each["name"] for each in panel.ask("threads")["threads"]]
    assert titles[-3:] == [f"rank {rank} · gpus={rank}" for rank in range(3)]
    assert panel.variables(f"rank {first} · loss_of") == {
        "batch": "[1, 2, 3]",
        "scaled": f"{[first, 2 * first, 3 * first]}",
    }
    told = panel.kernel.start_aside("print(m.stacks())\nset(m.states().values()) == {'debug'}").end()
    assert "loss_of" in told.text and "debugpy" not in told.text and told.results == ["True"], told.text
    assert panel.kernel.start_aside("%mesh debug 1 --dap").end().stdout.endswith("attached there: one at a time\n")
    # A click on a frame of another rank, and the panel shows that one.
    assert panel.variables(f"rank {second} · loss_of")["scaled"] == f"{[second, 2 * second, 3 * second]}"
    panel.until_shown(
        *(each.replace(f"rank {first}", f"rank {second}") for each in names),
        *(f"rank {each} · loss_of:4" for each in sorted((first, third))),
    )
    frame = panel.frames[0]["id"]
    assert panel.ask("evaluate", expression="sum(scaled)", frameId=frame, context="repl")["result"] == str(6 * second)
    assert panel.ask("debugInfo")["stoppedThreads"] == [panel.thread]  # what a page that is loaded anew shows
    panel.ask("copyToGlobals", srcVariableName="scaled", dstVariableName="kept", srcFrameId=frame)
    rich = panel.ask("richInspectVariables", variableName="scaled", frameId=frame)
    assert rich["data"]["text/plain"] == f"{[second, 2 * second, 3 * second]}"
    panel.go("stepOut")
    panel.until(lambda: panel.names[:1] == [f"rank {second} · <module>:5"], "a step out of the function")
    panel.go("next")
    panel.until(lambda: panel.names[:1] == [f"rank {second} · <module>:6"], "the next line")
    assert panel.variables(f"rank {second} · <module>")["loss"] == str(6 * second)
    panel.go("stepIn")  # off the end of the cell: nothing of ours is stepped into
    panel.until(lambda: panel.names[:1] == [f"rank {min(first, third)} · loss_of:4"], "another rank")
    for _ in range(2):
        panel.go("continue")
    assert cell.end().status == "ok" and panel.kernel.value("_mesh.values()") == [1, 7, 13]
    panel.kernel.ok(f"r = %on_mesh {second} -- kept")
    assert panel.kernel.value("r.values()") == [[second, 2 * second, 3 * second]]
    panel.until(lambda: panel.thread is None, "nobody")


def test_what_is_stopped_is_let_go_by_switching_off_by_an_interrupt_and_by_a_death(panel: Panel, leaks: Any) -> None:
    kernel = panel.kernel
    cell, _ = started(panel, TRAIN, 4)
    panel.switch_off()
    assert cell.end().status == "ok"
    assert kernel.ok(TRAIN).status == "ok"
    panel.switch_on()
    cell, _ = started(panel, TRAIN, 4)
    kernel.interrupt()
    assert cell.end().error.startswith("KeyboardInterrupt")
    panel.until(lambda: panel.thread is None, "nobody")
    cell, ranks = started(panel, TRAIN, 4)
    psutil.Process(pids(kernel)[ranks[0]]).kill()
    panel.until(lambda: panel.names[:1] == [f"rank {min(ranks[1:])} · loss_of:4"], "another rank")
    panel.go("continue")
    panel.go("continue")
    assert "killed by SIGKILL" in cell.end().traceback
    kernel.ok("%mesh restart @dead")
    leaks.allow_what_stands()


def pids(kernel: Kernel) -> dict[int, int]:
    told = kernel.start_aside("print({rank: state.pid for rank, state in m.roster.states.items()})").end()
    return dict(eval(told.stdout))


def test_ranks_that_come_later_and_cells_that_ran_before_are_debugged_too(kernel: Kernel, leaks: Any) -> None:
    kernel.ok("late = %mesh up late gpus=1 --device cpu --pg none")
    earlier = "%%on_mesh --label earlier\ndef double(x):\n    y = 2 * x\n    return y"
    kernel.ok(earlier)
    kernel.ok("r = %on_mesh -- 'debugpy' in __import__('sys').modules")
    assert kernel.value("r.values()") == [False]
    panel = Panel(kernel)
    panel.switch_on()
    leaks.allow_what_stands()
    panel.break_at(earlier, 4)
    for _ in range(2):
        cell = kernel.start("%%on_mesh\ndouble(4)")
        panel.until_shown("late rank 0 · double:4", "late rank 0 · <module>:2")
        assert panel.variables("late rank 0 · double") == {"x": "4", "y": "8"}
        stale = panel.frames[0]["id"]
        panel.go("continue")
        assert cell.end().status == "ok" and kernel.value("_mesh.values()") == [8]
        refused = kernel.debug("scopes", frameId=stale)
        assert not refused["success"] and "has gone on" in refused["message"]
        kernel.ok("%mesh restart")  # a new process, in which the cell is replayed
    panel.switch_off()
    kernel.ok("%mesh down late")


def test_the_notebook_and_ranks_are_stopped_side_by_side(panel: Panel) -> None:
    kernel, here = panel.kernel, "def half(x):\n    y = x / 2\n    return y\nhalf(42)"
    background = TRAIN.replace("%%on_mesh", "%%on_mesh 1 -b")
    panel.break_at(background, 4)
    kernel.ok(background)
    panel.until_shown("rank 1 · loss_of:4", "rank 1 · <module>:5")
    panel.break_at(here, 3)
    cell = kernel.start(here)
    panel.until_shown("rank 1 · loss_of:4", "rank 1 · <module>:5", "notebook · half:3")
    assert panel.variables("notebook · half") == {"x": "42", "y": "21.0"}
    panel.until_shown("notebook · half:3", "notebook · <module>:4", "rank 1 · loss_of:4")
    panel.go("continue")
    assert cell.end().results == ["21.0"]
    panel.until_shown("rank 1 · loss_of:4", "rank 1 · <module>:5")
    panel.go("continue")
    assert kernel.ok("_mesh.result().values()").results == ["[7]"]
    # A function of the notebook, on the ranks.
    cell = kernel.start("m.execute(half, 42).values()")
    for num_left in (3, 2, 1):
        panel.until(lambda num_left=num_left: len(panel.names) == num_left, f"{num_left} ranks")
        assert panel.names[0].endswith(" · half:3")
        panel.go("continue")
    assert cell.end().results == ["[21.0, 21.0, 21.0]"]


def test_ranks_at_work_are_paused(panel: Panel) -> None:
    cell = panel.kernel.start("%%on_mesh\nis_on = True\nprint('at work', flush=True)\nwhile is_on:\n    pass")
    cell.until("at work")
    panel.ask("pause", threadId=1)
    for num_left in (3, 2, 1):
        panel.until(lambda num_left=num_left: len(panel.names) == num_left, f"{num_left} ranks")
        panel.ask("evaluate", expression="is_on = False", frameId=panel.frames[0]["id"], context="repl")
        panel.go("continue")
    assert cell.end().status == "ok"
