"""What actors print comes to the cell that called them; `%mesh actors` says what lives where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.magics.front_end import Kernel
from tests.magics.said import who_said
from tests.profiles import leave_torch_out

pytestmark = [pytest.mark.slow, pytest.mark.real]


ACTORS = """
import os, threading, time
from meshbook import *

class Talker(Actor):
    def __init__(self, greeting=""):
        if greeting:
            print(greeting)

    @endpoint
    def say(self, text):
        print(text)

    @endpoint
    def odd(self):
        rank = current_rank().rank
        print("even" if rank % 2 == 0 else "odd")
        return rank

    @endpoint
    def shout(self, text):
        import sys
        print(text, file=sys.stderr)

    @endpoint
    def half(self, text):
        print(text, end="")

    @endpoint
    def hold(self, path):
        print("I wait")
        while not os.path.exists(path):
            time.sleep(0.005)
        print("I am done")

    @endpoint
    def leave_behind(self, path):
        threading.Thread(target=self._late, args=(path,)).start()

    def _late(self, path):
        while not os.path.exists(path):
            time.sleep(0.005)
        print("a late word")

    @endpoint
    def pass_on(self, other, text):
        print("asking")
        other.say.call(text).get()
        print("asked")

    @endpoint
    def fail(self):
        print("going to fail")
        raise ValueError("as said")

    @endpoint
    def exit(self):
        print("last words", flush=True)
        os._exit(3)
"""


@pytest.fixture(scope="module")
def prepared(shared_kernel: Kernel) -> Kernel:
    shared_kernel.ok(ACTORS)
    shared_kernel.ok("talkers = m.spawn('talkers', Talker); talkers.initialized.get()\nimport meshbook.runtime as rt")
    return shared_kernel


@pytest.fixture
def kernel(prepared: Kernel) -> Kernel:
    return prepared


def test_text_stands_between_what_the_cell_prints_before_and_after(kernel: Kernel) -> None:
    outputs = kernel.ok("print('before')\ntalkers.say.call('hi').get()\nprint('after')")
    assert outputs.stdout == "before\n0-3 │ hi\nafter\n"


def test_an_awaited_call_does_too(kernel: Kernel) -> None:
    outputs = kernel.ok("print('before')\nawait talkers.say.call('hi')\nprint('after')")
    assert outputs.stdout == "before\n0-3 │ hi\nafter\n"


def test_ranks_that_differ_are_told_apart(kernel: Kernel) -> None:
    assert sorted(kernel.ok("talkers.odd.call().get();").stdout.splitlines()) == ["0,2 │ even", "1,3 │ odd"]


def test_stderr_stays_stderr(kernel: Kernel) -> None:
    outputs = kernel.ok("talkers.shout.call('loud').get();")
    assert (outputs.stdout, outputs.stderr) == ("", "0-3 │ loud\n")


def test_a_line_without_an_end_is_told_too(kernel: Kernel) -> None:
    assert kernel.ok("talkers.half.call('half').get();").stdout == "0-3 │ half\n"


def test_a_slice_names_the_ranks_of_the_mesh(kernel: Kernel) -> None:
    assert kernel.ok("talkers.slice(dp=1).say.call('up here').get();").stdout == "2-3 │ up here\n"


def test_a_constructor_is_heard(kernel: Kernel) -> None:
    outputs = kernel.ok("m.spawn('short', Talker, 'good morning').initialized.get()")
    assert outputs.stdout == "0-3 │ good morning\n"


def test_text_comes_while_the_cell_still_waits(kernel: Kernel) -> None:
    gate = kernel.folder / "gate-wait"
    cell = kernel.start(f"talkers.hold.call({str(gate)!r}).get();")
    cell.until_all(4, "I wait")
    gate.touch()
    assert cell.end().stdout == "0-3 │ I wait\n0-3 │ I am done\n"


def test_a_broadcast_speaks_in_its_own_cell_while_others_run(kernel: Kernel) -> None:
    gate = kernel.folder / "gate-broadcast"
    first = kernel.start(f"talkers.hold.broadcast({str(gate)!r})\nprint('on my way')")
    first.until("I wait")
    assert first.end().status == "ok"
    second = kernel.ok(f"open({str(gate)!r}, 'w').close()\nprint('second')")
    first.until("I am done")
    assert second.stdout == "second\n"


def test_a_future_that_is_waited_for_later_speaks_where_it_was_asked(kernel: Kernel) -> None:
    gate = kernel.folder / "gate-future"
    first = kernel.start(f"later = talkers.hold.call({str(gate)!r})")
    first.end()
    second = kernel.ok(f"open({str(gate)!r}, 'w').close()\nlater.get()\nprint('it is there')")
    first.until("I am done")
    assert second.stdout == "it is there\n"


def test_a_thread_that_an_actor_left_behind_speaks_in_the_cell_that_made_it(kernel: Kernel) -> None:
    gate = kernel.folder / "gate-thread"
    first = kernel.start(f"talkers.leave_behind.call({str(gate)!r}).get();")
    first.end()
    second = kernel.ok(f"open({str(gate)!r}, 'w').close()")
    first.until("a late word")
    assert second.stdout == ""


def test_actors_that_actors_call_speak_in_the_cell_where_it_began(kernel: Kernel) -> None:
    kernel.ok("far = this_host().spawn_procs({'x': 1}, name='far')\nothers = far.spawn('others', Talker)")
    kernel.ok("others.initialized.get()")
    cell = kernel.start("others.pass_on.call_one(talkers, 'from far').get()")
    for said in ("far 0 │ asking", "from far", "far 0 │ asked"):
        cell.until(said)
    cell.end()
    cell = kernel.start("talkers.slice(dp=0, tp=0).pass_on.call_one(talkers.slice(dp=0, tp=1), 'near').get()")
    cell.until("m 1 │ near")  # it went from rank to rank, so the notebook may read it after the answer
    cell.end()
    kernel.ok("far.stop().get()")


def test_a_cell_on_the_mesh_hears_the_actors_it_calls(kernel: Kernel) -> None:
    kernel.ok("m.push({'talkers': talkers})")
    outputs = kernel.ok("%%on_mesh 0\nprint('a cell')\ntalkers.slice(dp=0, tp=1).say.call('an actor').get();")
    assert sorted(outputs.stdout.splitlines()) == ["  0 │ a cell", "  1 │ an actor"]


def test_what_an_actor_says_stands_before_its_error(kernel: Kernel) -> None:
    outputs = kernel.cell("talkers.slice(dp=0, tp=1).fail.call_one().get()")
    assert outputs.error.startswith("ActorError: Actor call talkers.fail failed on rank 1")
    assert outputs.text.startswith("  1 │ going to fail\n")
    assert "as said" in outputs.traceback
    assert "adverbs.py" not in outputs.traceback  # not where the answer was read, which is nobody's business
    assert kernel.ok("try:\n    talkers.fail.call().get()\nexcept ValueError as e:\n    print(type(e).__name__)").stdout


def test_captured_output_is_captured(kernel: Kernel) -> None:
    assert kernel.ok("%%capture cap\ntalkers.say.call('hush').get()").text == ""
    assert kernel.value("cap.stdout") == "0-3 │ hush\n"


def test_much_text_is_cut_in_the_middle_and_ends_with_its_end(kernel: Kernel) -> None:
    outputs = kernel.ok("talkers.say.call('\\n'.join(f'line {i}' for i in range(20_000))).get();")
    assert len(outputs.stdout) < 100_000
    assert who_said(outputs.stdout, "line 0\n") == {0, 1, 2, 3} and outputs.stdout.endswith("line 19999\n")
    assert "more lines" in outputs.stdout


def test_many_calls_of_one_cell_are_told_in_order(kernel: Kernel) -> None:
    outputs = kernel.ok("one = talkers.slice(dp=0, tp=0)\nfor i in range(50):\n    one.say.call_one(f'n {i}').get()")
    assert outputs.stdout.splitlines() == [f"  0 │ n {i}" for i in range(50)]


def test_the_list_of_actors_names_what_lives_where(kernel: Kernel) -> None:
    outputs = kernel.ok("%mesh actors")
    lines = outputs.results[0].splitlines()
    assert lines[0].split() == ["name", "class", "mesh", "axes", "ranks", "state"]
    assert ["talkers", "Talker", "m", "dp=2", "×", "tp=2", "0-3", "●", "alive"] in [line.split() for line in lines]
    assert "KernelActor" not in outputs.text
    assert "<table" in outputs.shown[0]["text/html"]
    rows = json.loads(kernel.value("get_ipython().run_line_magic('mesh', 'actors --json')"))
    assert [row["axes"] for row in rows if row["name"] == "talkers"] == [{"dp": 2, "tp": 2}]


def test_failed_and_dead_actors_are_listed_as_such(kernel: Kernel) -> None:
    kernel.ok("faults = []\nrt.unhandled_fault_hook = faults.append\nimport time")
    kernel.ok("w = %mesh up w -n 2 --device cpu --pg none\nweak = w.spawn('weak', Talker)\nweak.initialized.get()")
    kernel.ok("weak.slice(rank=0).fail.broadcast()\nwhile not faults: time.sleep(0.01)")
    assert "✗ failed 0, others alive" in kernel.ok("%mesh actors").results[0]
    outputs = kernel.cell("weak.slice(rank=1).exit.call_one().get()")
    assert "SupervisionError" in outputs.error and "exited with code 3" in outputs.error
    assert "w 1 │ last words" in outputs.text
    assert "✗ failed 0, ✝ dead 1" in kernel.ok("%mesh actors").results[0]
    assert "rank 1 dead" in kernel.ok("weak").results[0]
    kernel.ok("%mesh down w")
    assert "weak" not in kernel.ok("%mesh actors").results[0]


def test_tab_offers_the_command(kernel: Kernel) -> None:
    assert "%mesh actors" in kernel.completions("%mesh ac")
    assert kernel.completions("%mesh actors --j") == ["%mesh actors --json"]


def test_unloading_and_loading_again_leaves_actors_heard(new_kernel: Any) -> None:
    kernel = new_kernel(prepare=leave_torch_out)
    kernel.ok(f"%load_ext meshbook\n{ACTORS}")
    up = "m = %mesh up -n 2 --device cpu --pg none\n"
    up += "t = m.spawn('t', Talker); t.initialized.get(); t.say.call('hi').get();"
    assert kernel.ok(up).stdout == "0-1 │ hi\n"
    kernel.ok("%reload_ext meshbook")
    assert kernel.ok(up).stdout == "0-1 │ hi\n"
