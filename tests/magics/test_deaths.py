"""How ranks end while a cell runs: who, where, of what, with which last words, on which line."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator

import psutil
import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]

Until = Callable[..., None]


@pytest.fixture
def spare(kernel: Kernel) -> Generator[Kernel]:
    """The kernel with a mesh of three ranks whose ranks may die."""
    kernel.ok("spare = %mesh up spare dp=3 --device cpu --pg none")
    kernel.ok("%%on_mesh\nimport ctypes, multiprocessing, os, sys, time")
    yield kernel
    kernel.ok("%mesh down spare --grace 0.2")


ENDS = [
    ("ctypes.string_at(0)", "killed by SIGSEGV (signal 11)", r" \(\S*ctypes/__init__\.py, line \d+, in string_at\)"),
    ("os.abort()", "killed by SIGABRT (signal 6)", ""),
    ("os._exit(3)", "exited with code 3", ""),
]


@pytest.mark.parametrize(("end", "how", "within"), ENDS, ids=["segfault", "abort", "_exit"])
def test_a_rank_that_ends_by_itself_says_on_which_line(spare: Kernel, end: str, how: str, within: str) -> None:
    pids, host = spare.pids(), spare.host(1, "spare")
    body = f"def f():\n    {end}\nif rank == 1:\n    print('oh no', file=sys.stderr)\n    f()\ntime.sleep(60)"
    cell = spare.start(f"%%on_mesh --grace 0.8\n{body}")
    cell.until("0,2 still work")
    ended = cell.end()
    number = ended.reply["execution_count"]
    facts = f"rank 1 (dp=1, pid {pids[1]}) {how} on host {host}, at cell {number} line 6 > cell {number} line 3"
    assert re.search(rf"  1 ✗ {re.escape(facts)}{within}; 0,2 still work\n    ┆ oh no\n", ended.stderr)
    assert re.search(rf"{re.escape(facts)}{within}\n", ended.traceback)
    assert ended.text.count("File ") == 0, "the stacks of faulthandler are not for the reader"
    log = spare.value("get_ipython().run_line_magic('mesh', 'use spare').log(1)")
    assert re.search(rf'File "<ipython-input-{number}-\w+>", line 3 in f', log)


def test_of_a_rank_that_is_killed_the_line_is_told_where_it_was_last_seen(spare: Kernel) -> None:
    pids, host = spare.pids(), spare.host(2, "spare")
    body = "if rank == 2:\n    time.sleep(1)\n    os.kill(os.getpid(), 9)\ntime.sleep(60)"
    ended = spare.cell(f"%%on_mesh --grace 0.8\n{body}")
    number = ended.reply["execution_count"]
    facts = f"rank 2 (dp=2, pid {pids[2]}) killed by SIGKILL (signal 9) on host {host}, "
    assert f"{facts}last seen at cell {number} line 3 (0." in ended.stderr
    assert f"{facts}last seen at cell {number} line 3 (0." in ended.traceback


@pytest.mark.far
def test_a_death_is_told_at_once_and_a_second_one_too(spare: Kernel) -> None:
    pids = spare.pids()
    cell = spare.start("%%on_mesh --on-error wait\nif rank == 1:\n    os._exit(4)\nprint('in')\ntime.sleep(60)")
    cell.until("exited with code 4")
    psutil.Process(pids[2]).kill()
    killed = time.monotonic()
    cell.until("SIGKILL (signal 9)")
    assert time.monotonic() - killed < 5  # about 0.05 on an idle machine; the promise is 0.5
    psutil.Process(pids[0]).kill()
    ended = cell.end()
    assert (ended.stderr.count("0,2 still work"), ended.stderr.count("; 0 still works")) == (1, 1)
    assert ended.error == "DeviceMeshError: 3 of 3 ranks lost (dp=0-2)"


def test_children_of_a_rank_leave_without_a_word(spare: Kernel) -> None:
    # From Python 3.12 on, a fork beside other threads is told of, of which a rank has some.
    quiet = "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)"
    body = (
        f"{quiet}\nprocess = multiprocessing.get_context('fork').Process(target=int)\nprocess.start()\nprocess.join()"
    )
    ended = spare.ok(f"%%on_mesh 0\n{body}\nif os.fork() == 0:\n    os._exit(3)\nos.wait()[1] >> 8")
    assert ended.stderr == ""
    assert ended.text.startswith("3   rank 0")


def test_a_crash_of_a_child_is_told_and_the_rank_lives_on(spare: Kernel) -> None:
    program = "[sys.executable, '-X', 'faulthandler', '-c', 'import ctypes; ctypes.string_at(0)']"
    ended = spare.ok(f"%%on_mesh 0\nimport subprocess\nsubprocess.run({program}).returncode")
    assert "Fatal Python error: Segmentation fault" in ended.stderr
    assert 'File "<string>", line 1 in <module>' in ended.stderr
    assert ended.shown[-1]["text/plain"].startswith("-11")


def test_a_death_while_idle_is_told_once_in_the_next_cell(spare: Kernel, until: Until) -> None:
    pids = spare.pids()
    for rank in (0, 2):
        psutil.Process(pids[rank]).kill()
    until(lambda: spare.value("spare.roster.dead()") == [0, 2])
    told = spare.ok("%%on_mesh\nrank").stderr
    assert told.startswith(f"note: ranks 0,2 (pids {pids[0]} {pids[2]}) were killed by SIGKILL (signal 9) ")
    assert told.endswith(" s ago, while idle: `%mesh restart @dead` brings them back\n")
    assert spare.ok("%%on_mesh\nrank").stderr == ""
    assert spare.ok("%mesh").stderr == ""


def test_who_stops_a_cell_of_the_others_hears_of_the_dead_beside_the_failed(spare: Kernel, until: Until) -> None:
    psutil.Process(spare.pids()[0]).kill()
    until(lambda: spare.value("spare.roster.dead()") == [0])
    cell = spare.start("%%on_mesh --grace 20\nif rank == 1:\n    1 / 0\nprint('in')\nimport time; time.sleep(60)")
    cell.until("in")
    cell.until("1 ✗ ZeroDivisionError")
    spare.interrupt()
    error = cell.end().error
    assert error.startswith("KeyboardInterrupt: interrupted: rank 2 at cell ")
    assert error.endswith("; rank 0 is dead: `%mesh restart @dead`; 1 of 2 ranks failed (dp=1)")


def test_a_death_just_before_the_cell_that_tells_of_it_is_not_told_again(spare: Kernel) -> None:
    spare.ok(f"import os\nrun, pid = spare.run, {spare.pids()[1]}")
    dies = "def dying(*args, **options):\n    os.kill(pid, 9)\n    while not spare.roster.dead(): pass"
    spare.ok(f"{dies}\n    return run(*args, **options)\nspare.run = dying")
    assert spare.cell("%%on_mesh 1\n1").error == "DeviceMeshError: 1 of 1 rank lost (dp=1)"
    spare.ok("spare.run = run")
    assert spare.ok("%%on_mesh\n1").stderr == ""


def test_an_idle_rank_may_leave_by_itself(spare: Kernel, until: Until) -> None:
    pids = spare.pids()
    body = (
        "import threading\ngo = threading.Event()\nthreading.Thread(target=lambda: go.wait() and os._exit(5)).start()"
    )
    spare.ok(f"%%on_mesh 1\n{body}")
    spare.ok("%%on_mesh 1\nthreading.Timer(0.05, go.set).start()")
    until(lambda: spare.value("len(get_ipython().run_line_magic('mesh', 'ls').data()[-1]['states'])") == 2)
    told = spare.ok("%mesh status").stderr
    assert told.startswith(f"note: rank 1 (dp=1, pid {pids[1]}) exited with code 5 ")
    assert told.endswith(" s ago, while idle: `%mesh restart @dead` brings it back\n")


def test_who_was_killed_on_demand_or_in_a_cell_is_not_told_again(spare: Kernel, until: Until) -> None:
    spare.ok("%mesh interrupt 1 --kill")
    until(lambda: spare.value("len(get_ipython().run_line_magic('mesh', 'ls').data()[-1]['states'])") == 2)
    assert spare.ok("%mesh").stderr == ""
    spare.cell("%%on_mesh 2\nos._exit(3)")
    assert spare.ok("%mesh").stderr == ""


def test_where_all_have_died_nobody_has_new_process_groups(kernel: Kernel) -> None:
    kernel.ok("%mesh up brief -n 2 --device cpu")
    died = kernel.cell("%%on_mesh\nimport os\nos._exit(3)")
    assert died.error == "DeviceMeshError: 2 of 2 ranks lost (rank=0-1)"
    assert "process groups" not in died.traceback
    kernel.ok("%mesh restart @dead")
    assert (
        "tensor(2.)"
        in kernel.ok(
            "%%on_mesh\nimport torch, torch.distributed as dist\nx = torch.ones(())\ndist.all_reduce(x)\nx"
        ).text
    )
    kernel.ok("%mesh down brief")


def test_who_loses_its_connection_to_the_dead_is_not_blamed(kernel: Kernel) -> None:
    kernel.ok("%mesh up ring dp=2 --device cpu")
    kernel.ok("%%on_mesh\nimport os, time, torch, torch.distributed as dist\ndist.barrier()")
    died = kernel.cell("%%on_mesh\nif rank == 1:\n    os.kill(os.getpid(), 9)\ndist.barrier()\ndist.barrier()")
    number = died.reply["execution_count"]
    assert died.error == "DeviceMeshError: 1 of 2 ranks lost (dp=1)"
    assert f"dp=0  lost its connection to a rank that is gone, at cell {number} line " in died.traceback
    assert "pair.cc" not in died.text
    assert "✗ RuntimeError" not in died.stderr
    kernel.ok("%mesh down ring")


def test_a_death_that_a_cell_tells_of_is_not_told_again_for_the_actors_there(spare: Kernel) -> None:
    spare.ok(
        "import threading, time\nfrom meshbook import Actor, endpoint\n"
        "import meshbook.runtime as rt\nvars(rt).pop('unhandled_fault_hook', None)  # another test's\n"
        "class Lodger(Actor):\n    @endpoint\n    def idle(self): ...\n"
        "lodgers = spare.spawn('lodgers', Lodger)\nlodgers.idle.call().get()"
    )
    died = spare.cell("%%on_mesh 1\nos._exit(3)")
    all_told = "while any(thread.name == 'meshbook-fault' for thread in threading.enumerate()): time.sleep(0.01)"
    assert "unhandled fault" not in died.stderr + spare.ok(all_told).stderr
    assert spare.ok("%mesh restart @dead\nlodgers.idle.call().get()").stderr == ""


@pytest.mark.parametrize(
    "call", ["mortals.die.call({}).get()", "await mortals.die.call({})", "mortals.slice(dp={}).die.call_one(0).get()"]
)
def test_the_error_of_a_call_tells_of_a_death_once_and_what_helps(spare: Kernel, call: str) -> None:
    spare.ok(
        "import os, time\nfrom meshbook import Actor, current_rank, endpoint\n"
        "import meshbook.runtime as rt\nvars(rt).pop('unhandled_fault_hook', None)  # another test's\n"
        "from meshbook.runtime import supervision\nsupervision._MOMENT = 2  # however busy this machine is\n"
        "class Mortal(Actor):\n    @endpoint\n    def die(self, rank):\n"
        "        if rank == current_rank().rank: os._exit(3)\n"
        "mortals = spare.spawn('mortals', Mortal)"
    )
    pids = spare.pids()
    failed = spare.cell(call.format(1))
    assert failed.error.startswith("SupervisionError: Endpoint call mortals.die() failed, rank 1 (dp=1, pid ")
    assert failed.traceback.endswith("\nbring back: %mesh restart @dead")
    assert failed.stderr == ""
    assert spare.ok("supervision._MOMENT = 0.2\n%on_mesh -- rank").stderr == ""
    told = spare.start("print('here', flush=True)\nwhile True: time.sleep(0.01)")
    told.until("here")
    psutil.Process(pids[0]).kill()
    told.until("unhandled fault: mortals on rank 0: its process is gone: rank 0 (dp=0")
    spare.interrupt()
    told.end()
    spare.ok("supervision._MOMENT = 2")
    assert spare.cell(call.format(0)).traceback.endswith("\nbring back: %mesh restart @dead")
    assert spare.ok("%%on_mesh\nrank").stderr == "", "the error has said it"
    spare.ok("supervision._MOMENT = 0.2")
