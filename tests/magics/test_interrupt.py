"""The stop button: it reaches the ranks, leaves them alive, and the next cell works at once."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


PROMPT = 5.0  # seconds; about 0.2 on an idle machine

WAITING = """
import threading
from meshbook.runtime.groups import waits
def tell_when_waiting():
    while waits.current(0) is None:
        time.sleep(0.01)
    print('in')
if rank == 0:
    threading.Thread(target=tell_when_waiting).start()
    dist.barrier(group=group)"""


@pytest.mark.far
@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("%%on_mesh\nprint('in')\ntime.sleep(60)", "line [23]"),  # who has printed may be there still
        ("%%on_mesh\nprint('in')\nwhile True:\n    pass", "line "),
        ("%%on_mesh\nimport asyncio\nprint('in')\nawait asyncio.sleep(60)", "line [34]"),
        (f"%%on_mesh dp=0{WAITING}", "line 10, waiting in barrier"),
        ("local = 1\n%on_mesh -- (print('in'), time.sleep(60))", "line 2"),
        ("%%time\n%%on_mesh\nprint('in')\ntime.sleep(60)", "line [34]"),
        ("%%on_mesh\nprint('in')\ntry:\n    time.sleep(60)\nfinally:\n    print('tidy')", "line [234]"),
    ],
    ids=["sleep", "loop", "await", "collective", "line form", "under another magic", "finally"],
)
def test_stop(kernel: Kernel, source: str, place: str) -> None:
    pids = kernel.pids()
    cell = kernel.start(source)
    behind = kernel.start("ran_behind = True")  # before "in" is there: it is to be there by then, too
    cell.until("in")
    kernel.interrupt()
    stopped = cell.end(PROMPT)
    assert stopped.error.startswith("KeyboardInterrupt: interrupted: rank")
    assert re.search(place, stopped.error)
    assert "idle and keep" in stopped.error
    assert ("process groups renewed" in stopped.error) == ("waiting in" in place)
    assert "magics" not in stopped.traceback
    assert behind.end().status == "aborted"
    assert kernel.value("'ran_behind' in globals()") is False
    again = kernel.ok("%on_mesh -- rank")
    assert len(again.text.splitlines()) == 4
    assert again.seconds < PROMPT
    assert kernel.pids() == pids


@pytest.mark.far
def test_what_ranks_had_said_and_answered_is_kept(kernel: Kernel) -> None:
    # Rank 3 speaks last: the others have answered by then.
    cell = kernel.start(
        "%%on_mesh -o r\nif rank == 3: time.sleep(0.5)\nprint('in')\nif rank == 3: time.sleep(60)\nrank"
    )
    cell.until_all(4, "in")
    kernel.interrupt()
    assert re.search(r" line [34]; it is idle and keeps its state$", cell.end(PROMPT).error)
    assert kernel.value("[r[i] for i in r.ranks if i not in r.failed]") == [0, 1, 2]


CATCHING = """try:
    print('in')
    time.sleep(60 if rank == 0 else 0)
    {}
except KeyboardInterrupt:
    saved = True
saved"""


@pytest.mark.parametrize("wait", ["time.sleep(60)", "dist.barrier()"])
def test_a_cell_that_catches_the_interrupt_itself_ends_well(kernel: Kernel, wait: str) -> None:
    cell = kernel.start(f"%%on_mesh\n{CATCHING.format(wait)}")
    behind = kernel.start("ran_behind = True")
    cell.until_all(4, "in")
    kernel.interrupt()
    ended = cell.end(PROMPT)
    assert (ended.status, behind.end().status) == ("ok", "ok")
    assert "True   ranks 0-3" in ended.text
    assert ended.stderr.startswith("↻ process groups renewed, as ") == (wait == "dist.barrier()")


def test_where_a_rank_does_not_catch_it_the_cell_was_stopped(kernel: Kernel) -> None:
    source = CATCHING.format("time.sleep(60)").replace("saved =", "1 / (3 - rank)\n    saved =")
    cell = kernel.start(f"%%on_mesh\n{source}")
    cell.until_all(4, "in")
    kernel.interrupt()
    stopped = cell.end(PROMPT)
    assert stopped.error == "KeyboardInterrupt: interrupted; 1 of 4 ranks failed (dp=1,tp=1)"


def test_who_stops_the_cell_of_a_rank_that_has_failed_is_told_where(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh --grace 20\nif rank == 1:\n    nothing_such\nprint('in')\ntime.sleep(60)")
    cell.until_all(3, "in")
    cell.until("1 ✗ NameError")
    kernel.interrupt()
    stopped = cell.end(PROMPT)
    assert stopped.error == "KeyboardInterrupt: interrupted; 1 of 4 ranks failed (dp=0,tp=1)"
    for line in ("dp=0,tp=1  NameError: ", "→ 3  nothing_such", " ×3  was at"):
        assert line in stopped.traceback
    assert kernel.ok("%on_mesh @failed -- rank").text.strip().startswith("1")


def test_a_value_that_takes_long_to_tell_is_where_ranks_are(kernel: Kernel) -> None:
    slow = "functools.partial(subprocess.run, ['sh', '-c', 'echo in; exec sleep 60'])"  # no line of the user's
    kernel.ok(f"%%on_mesh\nimport functools, subprocess\nclass Slow: __repr__ = staticmethod({slow})")
    cell = kernel.start("%%on_mesh\nSlow()")
    cell.until_all(4, "in")
    kernel.interrupt()
    stopped = cell.end(PROMPT)
    place = f"the end of cell {stopped.reply['execution_count']} (its value is told)"
    assert stopped.error.startswith(f"KeyboardInterrupt: interrupted: ranks 0-3 at {place}; ")
    assert "Slow   ranks 0-3" in kernel.ok("%on_mesh -- type(_)").text


@pytest.mark.parametrize(
    ("of_ours", "told"),
    [("parse_on_mesh", "as it was sent"), ("result_of", "after its end, as its results were put together")],
)
@pytest.mark.parametrize("source", ["%%on_mesh\nrank", "%on_mesh -- rank"])
def test_what_hits_our_own_lines_is_told_in_one(kernel: Kernel, source: str, of_ours: str, told: str) -> None:
    kernel.ok(
        "import meshbook.magics.on_mesh as ours\ndef press(*_, **__): raise KeyboardInterrupt\n"
        f"kept, ours.{of_ours} = ours.{of_ours}, press"
    )
    stopped = kernel.start(source).end()
    kernel.ok(f"ours.{of_ours} = kept")
    assert stopped.error == stopped.traceback.strip() == f"KeyboardInterrupt: the cell was stopped {told}"
    assert "ranks 0-3" in kernel.ok("%on_mesh -- 1").text


def test_stop_pressed_twice(kernel: Kernel) -> None:
    cell = kernel.start("%on_mesh -- (print('in'), [time.sleep(0.01) for _ in range(6000)])")
    cell.until("in")
    kernel.interrupt()
    kernel.interrupt()
    assert cell.end(PROMPT).status == "error"
    assert "4 idle" in kernel.ok("%mesh").text


def test_who_waits_in_c_for_ranks_that_were_stopped_is_freed_by_the_same_press(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\nnet = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))")
    cell = kernel.start(
        "%%on_mesh\nloss = net(torch.ones(1, 2)).sum()\nprint('in')\nif rank == 0:\n    time.sleep(60)\nloss.backward()"
    )
    cell.until_all(4, "in")
    kernel.interrupt()
    stopped = cell.end()
    assert "still at work: interrupted again, and broke off collectives" in stopped.text
    assert "they are idle" in stopped.error and "process groups renewed" in stopped.error
    assert "4.0   ranks 0-3" in kernel.ok("%%on_mesh\nz = torch.ones(1)\ndist.all_reduce(z)\nz.item()").text


def test_ranks_that_wait_for_one_another_in_a_ring_are_freed_by_the_first_press(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh\nprint('in')\ndist.recv(torch.ones(1), (rank + 1) % world_size)")
    cell.until_all(4, "in")
    kernel.interrupt()
    stopped = cell.end()
    assert "they are idle" in stopped.error and "waiting in recv" in stopped.error
    assert "4.0   ranks 0-3" in kernel.ok("%%on_mesh\nz = torch.ones(1)\ndist.all_reduce(z)\nz.item()").text


DEAF = """%%on_mesh
import signal, time
if rank == 1:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print('in')
time.sleep(60 * rank)"""

STUBBORN = """%%on_mesh
import os, time
waits = True
while waits:
    try:
        print('in')
        while rank == 1 and not os.path.exists('enough'):
            time.sleep(0.1)
        waits = False
    except KeyboardInterrupt:
        print('no')"""


@pytest.fixture
def mesh(kernel: Kernel) -> Iterator[None]:
    kernel.ok("%mesh up deaf dp=2 --pg none")
    yield
    kernel.ok("%mesh down deaf --grace 0.1")
    enough(kernel).unlink(missing_ok=True)


def enough(kernel: Kernel) -> Path:
    """The file for which the stubborn rank waits."""
    return Path(kernel.folder, "enough")


WORKS_ON = "1 ◌ was interrupted, and works on (cell "


def stopped_at_menu(kernel: Kernel, source: str) -> Any:
    cell = kernel.start(source)
    cell.until_all(2, "in")
    kernel.interrupt()
    cell.until("and asks what to do")
    kernel.interrupt()
    assert cell.asked() == "stop> "
    return cell


@pytest.mark.usefixtures("mesh")
def test_nothing_is_asked_about_a_rank_that_reacts_a_moment_later(kernel: Kernel) -> None:
    deaf = DEAF.replace("time.sleep(60 * rank)", "import os\nwhile not os.path.exists('enough'): time.sleep(0.01)")
    cell = kernel.start(f"{deaf}\nsignal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])")
    cell.until_all(2, "in")
    kernel.interrupt()
    cell.until("): stop interrupts once more, breaks off collectives, and asks what to do")
    enough(kernel).touch()
    assert not kernel.asked_or_idle(cell)
    assert "they are idle and keep their state" in cell.end().error


@pytest.mark.usefixtures("mesh")
def test_nothing_is_asked_while_a_rank_that_has_heard_it_works_on(kernel: Kernel) -> None:
    cell = kernel.start(f"{STUBBORN}\ntime.sleep(3.5 * rank)")  # for longer than a press is waited for
    cell.until_all(2, "in")
    kernel.interrupt()
    cell.until(WORKS_ON)
    enough(kernel).touch()
    assert not kernel.asked_or_idle(cell)
    ended = cell.end()
    assert ended.status == "ok", "its own code has heard of it, and come to its end"
    assert "): stop interrupts once more, breaks off collectives, and asks what to do" in ended.text
    assert "2 idle" in kernel.ok("%mesh").text


@pytest.mark.usefixtures("mesh")
def test_a_rank_that_dies_as_it_works_on_is_told_dead_and_not_idle(kernel: Kernel) -> None:
    pids = kernel.pids()
    cell = kernel.start(STUBBORN)
    cell.until_all(2, "in")
    kernel.interrupt()
    cell.until(WORKS_ON)
    os.kill(pids[1], signal.SIGKILL)
    assert cell.end().error == "KeyboardInterrupt: interrupted; rank 1 is dead: `%mesh restart @dead`"
    kernel.ok("%mesh restart @dead")
    assert "2   ranks 0-1" in kernel.ok("%on_mesh -- world_size").text


@pytest.mark.usefixtures("mesh")
def test_what_is_to_be_done_with_a_rank_that_does_not_react_is_asked(kernel: Kernel) -> None:
    cell = stopped_at_menu(kernel, STUBBORN)
    cell.until("rank 1 was interrupted, and works on (cell ")
    cell.until("stop again kills")
    for line, answer in [
        ("nonsense", "'nonsense' is none of w, a [RANKS], k, g, or nothing"),
        ("w", "time.sleep(0.1)"),
        ("a 7", "7"),
    ]:
        cell.type(line)
        cell.until(answer)
        assert cell.asked() == "stop> "
    cell.type("a 1")
    assert cell.asked() == "rank 1 ipdb> "
    cell.type("p rank + 41")
    assert cell.asked() == "rank 1 ipdb> "
    cell.until("42")
    cell.type("c")
    assert cell.asked() == "stop> "
    cell.type("k")
    stopped = cell.end()
    assert "1 ✗ killed, as you asked" in stopped.text
    assert stopped.error.startswith("KeyboardInterrupt: killed: rank")
    assert kernel.ok("%mesh restart @dead").status == "ok"


@pytest.mark.usefixtures("mesh")
def test_the_question_is_taken_back_when_they_react(kernel: Kernel) -> None:
    cell = stopped_at_menu(kernel, STUBBORN)
    enough(kernel).touch()
    ended = cell.end()
    assert ended.error.startswith("KeyboardInterrupt: interrupted: rank 1 at cell ")  # by the second press
    assert "the question is over" in ended.text
    assert "2 idle" in kernel.ok("%mesh").text


@pytest.mark.usefixtures("mesh")
def test_who_waits_on_waits_for_them(kernel: Kernel) -> None:
    cell = stopped_at_menu(kernel, f"{STUBBORN}\ntime.sleep(3.5 * rank)")
    cell.type("")
    enough(kernel).touch()
    ended = cell.end()
    assert ended.error.startswith("KeyboardInterrupt: interrupted: rank 1 at cell ") and "1 │ no" in ended.text
    assert "2 idle" in kernel.ok("%mesh").text


@pytest.mark.usefixtures("mesh")
def test_who_is_left_is_busy(kernel: Kernel) -> None:
    cell = stopped_at_menu(kernel, DEAF)
    cell.until("1 ◌ still at work: interrupted again, and broke off collectives they may wait in")
    cell.until("stop again kills")
    cell.type("g")
    assert "rank 1 did not react and is still busy" in cell.end().error
    assert "1 idle, 1 busy" in kernel.ok("%mesh").text


@pytest.mark.usefixtures("mesh")
@pytest.mark.parametrize("line", ["", None], ids=["who waits on", "at the question"])
def test_the_third_press_kills(kernel: Kernel, line: str | None) -> None:
    cell = stopped_at_menu(kernel, DEAF)
    if line is not None:
        cell.type(line)
    cell.until("wait on")
    kernel.interrupt()
    stopped = cell.end()
    assert "1 ✗ killed, as you asked" in stopped.text
    assert stopped.error.startswith("KeyboardInterrupt: killed: rank 1 at cell ")


@pytest.mark.usefixtures("mesh")
def test_each_press_is_a_step_also_where_nobody_can_be_asked(kernel: Kernel) -> None:
    cell = kernel.start(DEAF, allow_stdin=False)
    cell.until_all(2, "in")
    kernel.interrupt()
    cell.until("stop again interrupts once more, and breaks off collectives, a third time kills")
    kernel.interrupt()
    cell.until("1 ◌ still at work: interrupted again, and broke off collectives they may wait in")
    kernel.interrupt()
    stopped = cell.end()
    assert "1 ✗ killed, as you asked" in stopped.text
    assert stopped.error.startswith("KeyboardInterrupt: killed: rank 1 at cell ")
    assert stopped.error.endswith("; `%mesh restart @dead` brings it back")


@pytest.mark.usefixtures("mesh")
def test_stop_at_the_debugger_behind_the_question_is_the_next_step(kernel: Kernel) -> None:
    cell = stopped_at_menu(kernel, DEAF)
    cell.type("a 1")
    assert cell.asked() == "rank 1 ipdb> "
    kernel.interrupt()
    assert "1 ✗ killed, as you asked" in cell.end().text


@pytest.mark.usefixtures("mesh")
def test_a_rank_that_does_not_react_is_left_alone_and_told(kernel: Kernel) -> None:
    cell = kernel.start(DEAF, allow_stdin=False)
    cell.until_all(2, "in")
    kernel.interrupt()
    stopped = cell.end()
    again = "stop again interrupts once more, and breaks off collectives, a third time kills"
    assert re.search(rf"1 ◌ does not react yet \(cell \d+ line 6\): {again}", stopped.stderr)
    assert "rank 1 did not react and is still busy (rank 1 at cell " in stopped.error
    assert "`%mesh restart @busy` gives fresh ranks" in stopped.error
    assert "1 idle, 1 busy" in kernel.ok("%mesh").text
    assert kernel.ok("%mesh restart @busy").stdout.startswith("rank 1 is back in ")
    assert "2   ranks 0-1" in kernel.ok("%on_mesh -- world_size").text


HOLDS_THE_INTERPRETER = """%%on_mesh -t 0.5
import ctypes
if rank == 1:
    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex), lock(mutex)
"""


@pytest.mark.usefixtures("mesh")
def test_a_rank_that_cannot_even_answer_is_told_with_what_ends_it(kernel: Kernel) -> None:
    failed = kernel.cell(HOLDS_THE_INTERPRETER)
    assert "rank 1 (dp=1, pid " in failed.text and "end what does not react: %mesh interrupt 1 --kill" in failed.text
    told = kernel.ok("%mesh interrupt 1").stdout
    assert told == "rank 1 is asked to stop, and does not react yet: `%mesh interrupt 1 --kill` ends it\n"
    kernel.ok("%mesh interrupt 1 --kill")
    assert kernel.ok("%mesh restart @dead").stdout.startswith("rank 1 is back in ")


@pytest.mark.parametrize("spawn", ["fork", "exec"])
def test_stop_while_ranks_come_up(kernel: Kernel, until: Any, gone: Any, spawn: str) -> None:
    folder = kernel.folder
    (folder / "sluggish.py").write_text(
        "import os, time\nopen(f'up-{os.environ[\"RANK\"]}', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    cell = kernel.start(f"%mesh up sluggish dp=2 --pg none --import sluggish --spawn {spawn}")
    files = [folder / "up-0", folder / "up-1"]
    until(lambda: all(file.exists() and file.read_text() for file in files), 20)
    pids = {rank: int(file.read_text()) for rank, file in enumerate(files)}
    kernel.interrupt()
    stopped = cell.end(PROMPT)
    assert stopped.status == "error"
    assert stopped.error.startswith("KeyboardInterrupt")
    gone(pids)
    for file in files:
        file.unlink()
    assert "sluggish" not in kernel.ok("%mesh ls").text
    assert "4   ranks 0-3" in kernel.ok("%on_mesh -- world_size").text
