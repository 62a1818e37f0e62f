"""The debugger on actors that a notebook's code calls: at work, on a mesh of its own, and from a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pexpect
import pytest

from tests.stopping import stop

pytestmark = [pytest.mark.real, pytest.mark.slow]

ACTOR = """
from meshbook import Actor, endpoint, this_host

class Worker(Actor):
    @endpoint
    def halt(self, n):
        twice = 2 * n
        breakpoint()
        return twice

    @endpoint
    def loop(self):
        go = True
        print("in the loop")
        while go:
            pass
        return "freed"

    @endpoint
    def wait(self, path):
        deep = 9
        print("it waits")
        open(path).close()
        return deep
"""


@pytest.fixture(scope="module")
def prepared(shared_kernel: Any) -> Any:
    shared_kernel.ok(f"{ACTOR}\nworkers = m.spawn('workers', Worker); workers.initialized.get()")
    return shared_kernel


@pytest.fixture
def kernel(prepared: Any) -> Any:
    return prepared


def test_an_endpoint_that_loops_is_stopped_where_it_is(kernel: Any) -> None:
    cell = kernel.start("workers.slice(dp=0, tp=1).loop.call_one().get()")
    cell.until("in the loop")
    assert "the prompt is in the cell that runs" in kernel.start_aside("%mesh debug 1").end().text
    cell.talk("p go", "!go = False", "c")
    done = cell.end()
    assert "in loop, thread actor-workers" in done.stdout and done.results == ["'freed'"]


def test_an_endpoint_that_waits_in_c_is_looked_at(kernel: Any, tmp_path: Any) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    cell = kernel.start(f"workers.slice(dp=0, tp=1).wait.call_one({str(path)!r}).get()")
    cell.until("it waits")
    said = kernel.start_aside("%mesh debug 1").end().text
    assert "no stop, as C code" in said and "the prompt is in the cell that runs" in said
    cell.talk("p deep", "q")
    path.write_text("")
    done = cell.end()
    assert "looking at rank 1 (dp=0,tp=1), which runs on, thread actor-workers" in done.stdout
    assert done.results == ["9"]


@pytest.mark.parametrize("way", ["%mesh debug", "%mesh interrupt"])
def test_who_presses_stop_at_the_prompt_may_go_on_there_or_end_it(kernel: Any, way: str) -> None:
    cell = kernel.start("halted = workers.slice(dp=0, tp=1).halt.call_one(3)\nhalted.get()")
    cell.asked()
    kernel.interrupt()
    ended = cell.end()
    assert ended.error.startswith("KeyboardInterrupt") and ".py" not in ended.traceback
    assert ended.stderr == (
        "actors on rank 1 of m are stopped still: `%mesh debug` goes on there, `%mesh interrupt -m m` interrupts them\n"
    )
    if way == "%mesh debug":
        cell = kernel.start(way)
        cell.talk("p twice", "c")
        cell.end()
        assert kernel.value("halted.get()") == 6
    else:
        assert kernel.ok(way).stdout == "interrupted: rank 1 in workers.halt\n"
        error = kernel.cell("halted.get()").error
        assert error.startswith("ActorError: Actor call workers.halt failed on rank 1 (dp=0,tp=1, pid ")
        assert error.endswith("KeyboardInterrupt")


def test_a_rank_that_did_not_move_when_it_was_last_looked_at_keeps_its_prompt(kernel: Any) -> None:
    process = stop(kernel.pids()[1])
    try:
        assert "‖ rank 1" in kernel.ok("%mesh").text
    finally:
        process.resume()
    cell = kernel.start("halted = workers.slice(dp=0, tp=1).halt.call_one(3)\nhalted.get()")
    cell.asked()
    kernel.interrupt()
    cell.end()
    cell = kernel.start("%mesh debug")
    cell.talk("p sum(range(3_000_000))", "c")
    cell.end()
    assert kernel.value("halted.get()") == 6


def test_a_mesh_that_the_notebook_has_spawned_by_itself(kernel: Any) -> None:
    kernel.ok("procs = this_host().spawn_procs({'r': 2}, name='own'); own = procs.spawn('own', Worker)")
    kernel.ok("from meshbook.kernel.debug.desk import desk_of")
    cell = kernel.start("own.halt.call(3).get().values()")
    cell.asked()
    kernel.until_stopped(0, 1, desk="desk_of(procs.roster)")
    cell.type("%rank 1")
    cell.talk("%table twice", "q")
    done = cell.end()
    assert "0-1 │ 6" in done.stdout and done.results == ["[6, 6]"]
    cell = kernel.start("(await own.halt.call(4)).values()")
    cell.talk("p twice", "q")
    assert cell.end().results == ["[8, 8]"]
    passed = kernel.cell("own.halt.call(5).get().values()", allow_stdin=False)
    assert "passed over: stopped at" in passed.stderr and passed.results == ["[10, 10]"]
    kernel.ok("procs.stop().get()")


def test_a_notebook_is_attached_to_from_a_terminal(kernel: Any) -> None:
    # Where a kernel runs one cell at a time (ipykernel 6), this is the way to a rank at work.
    command = [sys.executable, "-m", "meshbook.debug"]
    listed = subprocess.run([*command, "ls"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    assert "mesh m   dp=2 tp=2   4 idle" in listed
    cell = kernel.start("%%on_mesh 2\ngo = True\nprint('in')\nwhile go: pass\n'freed'")
    cell.until("in")
    where = f"{kernel.pid}/m"
    terminal: Any = pexpect.spawn(
        command[0],
        [*command[1:], "attach", where, "dp=1,tp=0"],
        env=os.environ | {"TERM": "dumb"},
        encoding="utf-8",
        timeout=20,
        echo=False,
    )
    try:
        terminal.expect_exact("rank 2 ipdb> ")
        assert "rank 2 (dp=1,tp=0) is stopped at cell" in terminal.before
        terminal.sendline("go = False")
        terminal.expect_exact("rank 2 ipdb> ")
        terminal.sendline("q")
        terminal.expect(pexpect.EOF)
        assert "left: all ranks go on" in terminal.before
    finally:
        terminal.close(force=True)
    assert "'freed'   rank 2" in cell.end().text
    cell = kernel.start("%%on_mesh 0\nbreakpoint()\n'well'")  # cells ask again
    cell.talk("c")
    assert "'well'   rank 0" in cell.end().text
