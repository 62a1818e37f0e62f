"""`%%on_mesh -b`: the cell goes on behind, its output and its failures stay with it."""

from __future__ import annotations

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


UNTIL_GO = "while not os.path.exists({!r}):\n    time.sleep(0.01)\n"


def test_what_a_handler_raises_ends_the_wait_for_a_future(kernel: Kernel) -> None:
    handler = "import signal\ndef late(*_): raise TimeoutError('alarm')\nformer = signal.signal(signal.SIGALRM, late)"
    kernel.ok(handler)
    kernel.ok("%%on_mesh\nimport time")
    late = kernel.cell("signal.setitimer(signal.ITIMER_REAL, 0.05)\nf = %on_mesh -b -- time.sleep(1)\nf.result()")
    assert late.error == "TimeoutError: alarm"
    kernel.ok("f.result()\nsignal.signal(signal.SIGALRM, former)")


def test_a_future_waits_and_gives_the_result(kernel: Kernel) -> None:
    cell = kernel.start(f"%%on_mesh -b -o f\n{UNTIL_GO.format('go-1')}print('done', rank < 2)\nrank")
    started = cell.end()
    number = started.reply["execution_count"]
    assert started.results == [f"<MeshFuture cell {number}: 0 of 4 ranks done>"]
    assert kernel.value("(f.done(), _mesh is f)") == (False, True)
    early = kernel.cell("f.result(timeout=0.05)")
    assert early.error == f"TimeoutError: <MeshFuture cell {number}: 0 of 4 ranks done> after 0.05 s: it goes on"
    (kernel.folder / "go-1").touch()
    assert kernel.ok("later = (await f).values()").stdout == ""
    assert kernel.value("(later, f.result().values(), f.done())") == ([0, 1, 2, 3], [0, 1, 2, 3], True)
    assert kernel.value("repr(f)") == f"<MeshFuture cell {number}: done>"
    cell.until("0-1 │ done True\n2-3 │ done False\n")
    cell.until("3   rank 3")  # what came back is shown where the cell stands


def test_a_future_says_who_has_failed(kernel: Kernel) -> None:
    cell = kernel.start(f"%%on_mesh -b --on-error wait -o f\nif rank < 2: 1 / rank\n{UNTIL_GO.format('go-2')}")
    cell.until("0 ✗ ZeroDivisionError")
    assert kernel.value("repr(f)").endswith(": 0 of 4 ranks done, 1 failed>")
    (kernel.folder / "go-2").touch()
    cell.until("1 of 4 ranks failed (dp=0,tp=0): `result()` of its future raises this\n")
    assert kernel.value("repr(f)").endswith(": 1 of 4 ranks failed (dp=0,tp=0)>")


@pytest.mark.parametrize("wait", ["f.result()", "await f"])
def test_who_waits_for_it_goes_on_when_all_it_said_is_shown(kernel: Kernel, wait: str) -> None:
    kernel.ok(
        "import asyncio, threading, meshbook.magics.background as background\n"
        "gate, former, order = threading.Event(), background.bundle_of, []\n"
        "background.bundle_of = lambda shown: gate.wait() and (order.append('shown') or former(shown))"
    )
    cell = kernel.start("%%on_mesh -b -o f\n54321 + rank")
    cell.end()
    kernel.ok(
        f"async def go():\n    {wait}\n    order.append('went on')\n"
        "waiting = threading.Thread(target=asyncio.run, args=(go(),))\nwaiting.start()\n"
        "f._cell.run.finished.get()\nwaiting.join(0.05)\ngate.set()\nwaiting.join()\nbackground.bundle_of = former"
    )
    assert kernel.value("order") == ["shown", "went on"]
    assert "54324" in cell.text


def test_it_shows_what_came_back_as_it_was_asked_to(kernel: Kernel) -> None:
    silent = kernel.start("%%on_mesh dp=0 -b --show none\n-54321")
    tabs = kernel.start("%%on_mesh dp=0 -b --show tabs\n12345 + rank")
    tabs.until("12346")  # ranks run one cell after the other
    assert "rank 1" in tabs.end().text
    assert "-54321" not in silent.end().text


def test_it_can_be_interrupted_by_another_cell(kernel: Kernel) -> None:
    assert kernel.ok("%mesh interrupt").stdout == "no rank was busy\n"
    cell = kernel.start("%%on_mesh dp=0 -b -o f\nprint('in')\ntime.sleep(60)")
    cell.until_all(2, "in")
    busy = kernel.ok("%mesh").text
    assert "2 busy, 2 idle" in busy
    assert f"cell {cell.end().reply['execution_count']} line 3" in busy
    assert kernel.ok("%mesh interrupt").stdout == "interrupted: ranks 0-1\n"
    failed = kernel.cell("f.result()")
    assert failed.error == "MeshError: 2 of 2 ranks interrupted (dp=0,tp=0-1)"
    assert "interrupted by `%mesh interrupt`" in failed.traceback
    assert "interrupts.py" not in failed.traceback
    cell.until("2 of 2 ranks interrupted (dp=0,tp=0-1): `result()` of its future raises this\n")


def test_it_can_be_cancelled_also_where_it_has_not_begun(kernel: Kernel) -> None:
    first = kernel.start("%%on_mesh 0-1 -b -o f\nimport time\nprint('in')\ntime.sleep(60)")
    first.until_all(2, "in")
    second = kernel.start("%%on_mesh 1-2 -b -o g\nprint('begun')\nimport time; time.sleep(60)")
    second.until("begun")  # on rank 2; rank 1 works on the first
    assert kernel.value("g.cancel(), f.cancel()") == (True, True)
    for name, who in (("f", "dp=0,tp=0-1"), ("g", "dp=0,tp=1 · dp=1,tp=0")):
        assert kernel.value(f"str({name}.exception(30))") == f"2 of 2 ranks interrupted ({who})"
        assert "interrupted by `cancel()` of its future" in kernel.cell(f"{name}.get()").traceback
    assert kernel.value("(f.cancel(), g.cancel())") == (False, False)
    assert kernel.ok("%%on_mesh\nrank").text.count("rank ") == 4
    kernel.ok("%%on_mesh -b -o f\nrank")
    assert kernel.value("(f.exception(), f.get(30).values())") == (None, [0, 1, 2, 3])


def test_a_cell_behind_one_says_so_and_is_taken_back_by_stop(kernel: Kernel) -> None:
    cell = kernel.start(f"%%on_mesh 3 -b -o f\nprint('in')\n{UNTIL_GO.format('go-3')}\n'done'")
    cell.until("in")
    first = f"cell {cell.end().reply['execution_count']}"
    behind = kernel.start("%%on_mesh\nbegun = True\nrank")
    behind.until(f"3 ◌ has not begun this cell, and still works on {first}: stop takes this one back")
    kernel.interrupt()
    stopped = behind.end()
    assert stopped.error == (
        f"KeyboardInterrupt: taken back from rank 3, which still works on {first}: `%mesh interrupt 3` ends that"
    )
    assert kernel.value("sorted(_mesh.seconds)") == [0, 1, 2], "the others had answered"
    (kernel.folder / "go-3").touch()
    assert "'done'" in kernel.ok("f.result()").text, "it was not interrupted"
    assert "False" in kernel.ok("%on_mesh 3 -- 'begun' in globals()").text


def test_other_ranks_work_meanwhile(kernel: Kernel) -> None:
    cell = kernel.start(f"%%on_mesh dp=0 -b -o f\nprint('in')\n{UNTIL_GO.format('go-2')}")
    cell.until("in")
    assert "4   ranks 2-3" in kernel.ok("%%on_mesh dp=1\nworld_size").text
    (kernel.folder / "go-2").touch()
    kernel.ok("f.result()")


def test_its_timeout_holds(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh -b -t 0.2 -o f\nimport asyncio\nawait asyncio.sleep(60)")
    cell.until("✗ 4 of 4 ranks failed")
    assert "TimeoutError: not done after 0.2 s" in kernel.cell("f.result()").traceback


def test_what_its_story_leaves_out_is_in_the_traceback_of_its_result(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh dp=0,tp=0 -b -o f\nimport json\njson.loads('{')")
    cell.until("whole traceback: %tb after its `result()`")
    assert "→ 3  json.loads('{')" in kernel.cell("f.result()").traceback
    assert "json/decoder.py" in kernel.cell("%tb").traceback


def test_ranks_that_wait_for_one_that_raised_are_released(kernel: Kernel) -> None:
    kernel.ok("%mesh up torn dp=2")
    cell = kernel.start(
        "%%on_mesh -b --grace 3600 -o f\nimport torch.distributed as dist\nif rank == 1:\n    1/0\ndist.barrier()"
    )
    cell.until("1 of 2 ranks failed (dp=1): `result()` of its future raises this\n")
    failed = kernel.cell("await f")
    assert "dp=1  ZeroDivisionError: division by zero" in failed.traceback
    assert "waiting in barrier; interrupted, state kept" in failed.traceback
    kernel.ok("%mesh down torn")


def test_a_rank_that_is_back_already_is_not_to_be_brought_back(kernel: Kernel) -> None:
    kernel.ok("%mesh up back dp=2 --pg none")
    cell = kernel.start("%%on_mesh -b --grace 0.2 -o f\nimport time\nprint('in')\ntime.sleep(60)")
    cell.until_all(2, "in")
    kernel.ok("%mesh restart 1")
    told = kernel.cell("f.result()").traceback
    assert "dp=1  rank 1 (dp=1, pid " in told and "bring back" not in told
    kernel.ok("%mesh down back")


def test_a_mesh_that_is_taken_down_ends_its_futures(kernel: Kernel) -> None:
    kernel.ok("%mesh up brief dp=2 --pg none")
    cell = kernel.start("%%on_mesh -b -o f\nimport time\nprint('in')\ntime.sleep(60)")
    cell.until_all(2, "in")
    down = "mesh 'brief' is down: ranks 0-1 killed by SIGKILL (signal 9), in the midst of a cell\n"
    assert kernel.ok("%mesh down brief").stdout == down
    failed = kernel.cell("f.result()")
    assert failed.error == "MeshError: 2 of 2 ranks lost (dp=0-1)"
    assert "the mesh was taken down" in failed.traceback
    assert "bring it up again: %mesh up brief dp=2" in failed.traceback and "restart" not in failed.traceback
