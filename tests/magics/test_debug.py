"""The debugger from a notebook: breakpoints, several ranks at once, what an error has left, and ranks at work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stopping import stop

pytestmark = [pytest.mark.real, pytest.mark.slow]

STOP_ON_1 = """%%on_mesh
x = rank * 10
if rank == 1:
    breakpoint()
    x += 1
x"""

STOP_ALL = """%%on_mesh
def f(n):
    y = n + rank
    breakpoint()
    return y
f(1)"""


def test_a_breakpoint_asks_in_the_cell_and_names_the_rank(kernel: Any) -> None:
    cell = kernel.start(STOP_ON_1)
    prompts = cell.talk("p x", "n", "w", "c")
    assert prompts == ["rank 1 ipdb> "] * 4
    done = cell.end()
    assert "rank 1 (dp=0,tp=1) is stopped at cell" in done.stdout and "----> 4     breakpoint()" in done.stdout
    assert "----> 5     x += 1" in done.stdout
    assert "11   rank 1" in done.text
    assert "meshbook" not in done.stdout  # no frame of ours


def test_a_rank_that_fails_while_the_user_is_at_a_prompt_is_told_there(kernel: Any, tmp_path: Path) -> None:
    late = tmp_path / "late"
    cell = kernel.start(
        f"%%on_mesh 0-1\nimport os\nwhile rank and not os.path.exists({str(late)!r}):\n    time.sleep(0.01)\n"
        "if rank:\n    raise ValueError('late')\nbreakpoint()"
    )
    cell.talk("p 1")
    late.touch()
    for _ in range(1000):
        cell.talk("p 1")
        if "  1 ✗ ValueError: late (cell " in cell.text:
            break
    cell.talk("c")
    assert cell.end().stderr.count("✗ ValueError: late") == 1


def test_the_next_cell_is_not_traced(kernel: Any) -> None:
    cell = kernel.start(STOP_ON_1)
    cell.talk("b 5", "c", "c")
    cell.end()
    assert "[None]" in kernel.ok("%%on_mesh 1\nimport sys\n[sys.gettrace()]").text


def test_the_user_writes_a_variable_and_steps_into_a_function(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh 2\nimport pdb\ndef g(a):\n    return a * 2\npdb.set_trace()\nz = g(4)\nz")
    cell.talk("n", "s", "s", "a = 50", "r", "c")
    done = cell.end()
    assert "--Call--" in done.stdout and "--Return--" in done.stdout
    assert "100   rank 2" in done.text


def test_a_breakpoint_of_torch_stops_its_rank_in_the_line_that_calls_it_and_the_others_wait(kernel: Any) -> None:
    """torch's own debugger would read /dev/stdin, which is empty, and end the cell."""
    source = "import torch.distributed as dist\ndef f(x):\n    dist.breakpoint(rank=2)\n    return x * 2\nf(rank)"
    cell = kernel.start(f"%%on_mesh\n{source}")
    assert cell.talk("p x", "x = 50", "c") == ["rank 2 ipdb> "] * 3
    done = cell.end()
    assert "----> 4     dist.breakpoint(rank=2)" in done.stdout
    assert "ATTENTION" not in done.stdout
    assert "100   rank 2" in done.text
    assert "6     rank 3" in done.text


@pytest.mark.far
def test_one_rank_has_the_focus_and_the_others_are_held(kernel: Any) -> None:
    cell = kernel.start(STOP_ALL)
    kernel.until_stopped(0, 1, 2, 3)
    assert cell.asked().startswith("rank ")
    cell.type("%rank 2")
    assert cell.asked().startswith("rank 2 ")
    cell.type("p y")
    cell.talk("%rank dp=1,tp=1", "%who", "%rank 9")
    assert cell.asked().startswith("rank 3 [3 more stopped: 0-2]")
    cell.type("c")  # this one alone
    assert cell.asked().startswith("rank 0 [2 more stopped: 1-2]")
    cell.type("q")
    done = cell.end()
    assert "4   rank 3 (dp=1,tp=1)" in done.text
    assert "9" in done.stdout.partition("stopped at cell")[2]


def test_a_command_for_all_folds_what_is_equal(kernel: Any) -> None:
    cell = kernel.start(STOP_ALL)
    kernel.until_stopped(0, 1, 2, 3)
    cell.talk("%all p n", "%cast dp=1 p y", "%table y", "%all new = 5", "%all p new", "%all n", "%all c")
    done = cell.end()
    assert "0-3 │ 5\n" in done.stdout and "│ \n" not in done.stdout, "who has nothing to say has no row"
    assert "0-3 │ 1\n" in done.stdout
    assert "2 │ 3\n3 │ 4\n" in done.stdout
    assert "0-3 │ > cell " in done.stdout and "----> 5     return y" in done.stdout
    assert done.status == "ok"


def test_leaving_releases_everybody_and_stops_no_more_in_this_cell(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh\nfor i in range(1000):\n    breakpoint()\ni")
    cell.talk("q")
    assert "999   ranks 0-3" in cell.end().text
    cell = kernel.start("%%on_mesh 0\nbreakpoint()\n'again'")
    cell.talk("q")
    assert "again" in cell.end().text


def test_a_collective_waits_for_who_is_stopped(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh\nt = torch.ones(2)\nif rank == 2:\n    breakpoint()\ndist.all_reduce(t)\nt")
    cell.talk("p t", "c")
    assert "tensor([4., 4.])   ranks 0-3" in cell.end().text


def test_the_stop_button_at_the_prompt_interrupts_the_ranks(kernel: Any) -> None:
    cell = kernel.start(STOP_ALL)
    cell.asked()
    kernel.interrupt()
    done = cell.end()
    assert done.error.startswith("KeyboardInterrupt: interrupted: ")
    assert "0-3" in kernel.ok("%%on_mesh\n'idle'").text


def test_abort_ends_the_cell(kernel: Any) -> None:
    cell = kernel.start(STOP_ALL)
    cell.talk("%abort")
    done = cell.end()
    assert done.error == "MeshError: 4 of 4 ranks interrupted (dp=0-1,tp=0-1)"
    assert "interrupted by `%abort`, at cell" in done.traceback
    kernel.ok("%%on_mesh\n1")


def test_what_is_no_command_is_said(kernel: Any) -> None:
    cell = kernel.start(STOP_ON_1)
    cell.talk("%frobnicate", "p nothing_like_it", "%help", "?x", "q")
    done = cell.end()
    assert "'%frobnicate' is no command of the debugger" in done.stdout
    assert "NameError: name 'nothing_like_it' is not defined" in done.stdout
    assert "%cast SEL COMMAND" in done.stdout


def test_without_a_user_a_breakpoint_is_passed_over_with_a_warning(kernel: Any) -> None:
    done = kernel.cell(STOP_ON_1, allow_stdin=False)
    assert done.status == "ok" and "11   rank 1" in done.text
    assert "passed over: stopped at cell" in done.stderr and "no prompt" in done.stderr


def test_a_rank_that_dies_at_the_prompt_is_told(kernel: Any) -> None:
    kernel.ok("%mesh up dies -n 2 --device cpu --pg none")
    pids = kernel.pids("dies")
    cell = kernel.start("%%on_mesh\nbreakpoint()")
    victim = 0 if cell.asked().startswith("rank 0") else 1
    os.kill(pids[victim], signal.SIGKILL)
    cell.until("has died in the debugger: any line leaves its prompt")  # before one is typed
    cell.until(f"  {victim} ✗ rank {victim} (pid {pids[victim]}) killed by SIGKILL (signal 9)")
    cell.type("p 1")
    assert cell.asked().startswith(f"rank {1 - victim} ")
    cell.type("q")
    done = cell.end()
    assert "does not wait any more" not in done.text and done.text.count("has died") == 1, done.text
    kernel.ok("%mesh restart @dead")
    kernel.ok("%%on_mesh\nrank")
    kernel.ok("%mesh down dies")


def test_a_prompt_of_who_was_interrupted_from_a_console_says_so(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh\nbreakpoint()")
    asked = cell.asked().split()[1]
    kernel.until_stopped(0, 1, 2, 3)
    assert kernel.start_aside("%mesh interrupt").end().text == "interrupted: ranks 0-3\n"
    cell.until(f"rank {asked} (")
    cell.until("does not wait any more: any line leaves its prompt")
    cell.type("c")
    done = cell.end()
    assert "interrupted by `%mesh interrupt`" in done.text and done.text.count("any more") == 1, done.text


def test_others_that_fail_or_die_while_the_user_sits_at_a_prompt_are_told(kernel: Any) -> None:
    kernel.ok("%mesh up alone -n 4 --device cpu --pg none")
    gates = [os.path.join(kernel.folder, f"gate {rank}") for rank in range(3)]
    waits = f"import os, time\nwhile rank in (1, 2) and not os.path.exists({gates}[rank]): time.sleep(0.01)"
    acts = "if rank == 1: 1 / 0\nif rank == 2: os._exit(4)\nif rank == 0: breakpoint()\nif rank == 3: time.sleep(60)"
    cell = kernel.start(f"%%on_mesh --grace 0.1\n{waits}\n{acts}")
    cell.asked()
    for rank, told in ((1, "  1 ✗ ZeroDivisionError: division by zero"), (2, "  2 ✗ rank 2")):
        with open(gates[rank], "w"):
            cell.until(told)
    cell.type("c")
    done = cell.end()
    assert done.text.count("1 ✗ ZeroDivisionError") == 1 and done.text.count("  2 ✗ rank 2") == 1, done.text
    kernel.ok("%mesh down alone")


# input()


def test_input_asks_one_rank_after_the_other(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh dp=0\nname = input('name? ')\nname + str(rank)")
    prompts = cell.talk("a", "b")
    assert sorted(prompts) == ["rank 0 (dp=0,tp=0) asks: name? ", "rank 1 (dp=0,tp=1) asks: name? "]
    text = cell.end().text
    first, second = (int(prompt[len("rank ")]) for prompt in prompts)
    assert f"'a{first}'" in text and f"'b{second}'" in text


def test_a_password_is_asked_for_as_one(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh 0\nimport getpass\nlen(getpass.getpass())")
    assert cell.talk("secret") == ["rank 0 (dp=0,tp=0) asks: Password: "]
    assert "6   rank 0" in cell.end().text


def test_input_where_nobody_can_be_asked(kernel: Any) -> None:
    done = kernel.cell("%%on_mesh\ninput('name? ')", allow_stdin=False)
    assert "EOFError: this front-end cannot ask" in done.text


# After an error.


@pytest.mark.far
def test_post_mortem(kernel: Any) -> None:
    kernel.cell("%%on_mesh\ndef f(a):\n    b = a / rank\n    return b\nf(7)")
    cell = kernel.start("%mesh debug --pm")
    assert cell.talk("p a", "u", "p f", "q") == ["rank 0 ipdb> "] * 4
    done = cell.end()
    assert "rank 0 (dp=0,tp=0) after its error\nZeroDivisionError: division by zero\n" in done.stdout
    assert "\n7\n" in done.stdout
    assert "----> 3     b = a / rank" in done.stdout and "----> 5 f(7)" in done.stdout
    assert "no error was left there" in kernel.cell("%mesh debug 1 --pm").text
    kernel.ok("%%on_mesh\n1")
    assert "UsageError" in kernel.cell("%mesh debug --pm").text


def test_on_error_debug_looks_first_and_then_ends_as_ever(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh --on-error debug --grace 0.2\nif rank == 3:\n    boom = 1 / 0\ndist.barrier()")
    assert cell.talk("p rank", "q") == ["rank 3 ipdb> "] * 2
    done = cell.end()
    assert done.status == "error" and "ZeroDivisionError" in done.text and "waiting in barrier" in done.text
    kernel.ok("%%on_mesh\ndist.barrier()")


# Ranks at work.

BUSY = {
    "loop": "while not globals().get('go'):\n    pass",
    "sleep": "time.sleep(600) if not globals().get('go') else None",
    "lock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire(timeout=600)",
    "queue": "import queue\nqueue.Queue().get(timeout=600)",
    "socket": "import socket\na, b = socket.socketpair()\na.recv(1)",
    "asyncio": "import asyncio\nawait asyncio.sleep(600)",
    "subprocess": "import subprocess\nsubprocess.run(['sleep', '600'])",
    "collective": "t = torch.ones(1)\nif rank < 3:\n    dist.all_reduce(t)\nelse:\n    time.sleep(600)",
}


@pytest.mark.parametrize("how", BUSY)
def test_a_busy_rank_is_stopped_where_it_is(kernel: Any, how: str) -> None:
    cell = kernel.start(f"%%on_mesh\nprint('go', flush=True)\n{BUSY[how]}")
    cell.until_all(4, "go")
    kernel.start_aside("%mesh debug 1").end()
    assert cell.talk("p 40 + 2") == ["rank 1 ipdb> "]
    cell.asked()
    kernel.interrupt()
    done = cell.end()
    assert "rank 1 (dp=0,tp=1) is stopped at cell" in done.stdout and "\n42\n" in done.stdout
    kernel.ok("%%on_mesh\n1")


@pytest.mark.far
def test_a_collective_goes_on_with_the_right_result(kernel: Any) -> None:
    cell = kernel.start(
        "%%on_mesh\nt = torch.ones(1)\nprint('go', flush=True)\n"
        "while rank == 3 and not globals().get('go'):\n    time.sleep(0.01)\ndist.all_reduce(t)\nt"
    )
    cell.until_all(4, "go")
    kernel.start_aside("%mesh debug 0").end()
    cell.talk("p rank", "c")
    kernel.start_aside("%mesh debug 3").end()
    assert cell.talk("go = True", "c") == ["rank 3 ipdb> "] * 2
    assert "tensor([4.])   ranks 0-3" in cell.end().text


def test_a_rank_held_by_c_code_is_looked_at_while_it_runs(kernel: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    wait = "import ctypes, signal\nlibc = ctypes.CDLL(None)\nmark = 17\n"
    wait += "def f():\n    inner = 5\n    signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 65))\n"
    wait += f"    print('go', flush=True)\n    libc.open({bytes(pipe)!r}, 0)\n"
    wait += "    signal.pthread_sigmask(signal.SIG_UNBLOCK, range(34, 65))\nf()"
    cell = kernel.start(f"%%on_mesh 2-3\n{wait}")
    cell.until_all(2, "go")
    said = kernel.start_aside("%mesh debug 2-3").end().text
    assert "looked at while it runs on" in said
    kernel.until_stopped(2, 3)
    prompts = cell.talk("p inner", "n", "inner = 6", "refresh", "u", "p mark", "q")
    assert prompts[-1] == "rank 2 [1 more: 3] ipdb> "
    pipe.write_text("")  # whoever reads it goes on
    done = cell.end()  # `q` leaves both
    assert "looking at rank 2" in done.stdout and "\n5\n" in done.stdout and "\n17\n" in done.stdout
    assert "the rank runs on and is only looked at" in done.stdout
    assert done.status == "ok"


def test_of_a_rank_that_cannot_answer_the_stack_is_shown(kernel: Any) -> None:
    kernel.ok("%mesh up held -n 1 --device cpu --pg none")
    # A lock of C, taken twice while the GIL is held: nothing of Python runs there any more, and no signal ends it.
    # A child says when it is so: as long as the rank's main thread waits there, and nowhere else.
    is_held = "n=0; until [ $n = 50 ]; do grep -q futex /proc/$PPID/wchan && n=$((n+1)) || n=0; done; echo go"
    cell = kernel.start(
        "%%on_mesh\nimport ctypes, subprocess\nlock, c = ctypes.create_string_buffer(64), ctypes.PyDLL(None)\n"
        f"child = subprocess.Popen({is_held!r}, shell=True)\n"
        "c.pthread_mutex_lock(lock)\nc.pthread_mutex_lock(lock)"
    )
    cell.until("go")
    said = kernel.start_aside("%mesh debug 0").end().text
    assert "no answer" in said and "line 6" in said and "the prompt is" not in said, said
    kernel.start_aside("%mesh interrupt 0 --kill").end()
    assert cell.end().status == "error"
    kernel.ok("%mesh down held")


def test_what_does_not_stop_has_no_prompt_in_the_cell_that_runs(kernel: Any) -> None:
    pid = kernel.pids()[1]
    cell = kernel.start("%%on_mesh 0\nprint('go', flush=True)\ntime.sleep(600)")
    cell.until("go")
    stopped = stop(pid)
    try:
        said = kernel.start_aside("%mesh debug 1-2").end().text
    finally:
        stopped.resume()
    assert "rank 2: nothing runs there" in said and "or the process is stopped; the stack:" in said
    assert "stopped (SIGSTOP): `kill -CONT" in said and "the prompt is" not in said
    kernel.interrupt()
    cell.end()


def test_what_is_idle_or_dead_is_said(kernel: Any) -> None:
    assert "rank 1: nothing runs there" in kernel.cell("%mesh debug 1").text
    assert "no rank is stopped" in kernel.cell("%mesh debug").text
    assert "UsageError" in kernel.cell("%mesh debug 77").text


def test_a_cell_in_the_background_says_how_to_get_to_its_breakpoint(kernel: Any, until: Callable[..., None]) -> None:
    first = kernel.start("%%on_mesh -b -o future\nbreakpoint()\nrank + 1")
    first.end()
    first.until("stopped in the debugger at cell")
    until(lambda: kernel.value("m.desk.stops.ranks") == (0, 1, 2, 3))
    cell = kernel.start("%mesh debug")
    cell.talk("%all c")
    cell.end()
    assert kernel.value("[v for _, v in future.result(10)]") == [1, 2, 3, 4]


def test_a_breakpoint_in_a_forked_child_is_passed_over_and_said(kernel: Any) -> None:
    done = kernel.cell(
        "%%on_mesh 1\nimport os\nif not (pid := os.fork()):\n    breakpoint()\n    os._exit(7)\nos.waitpid(pid, 0)[1]"
    )
    assert "passed over: breakpoint at cell" in done.stderr and "forked child" in done.stderr
    assert "1792   rank 1" in done.text


IN_A_THREAD = """%%on_mesh 0
import threading
def work():
    here = "aside"
    breakpoint()
thread = threading.Thread(target=work, name="helper")
thread.start()
thread.join()
'done'"""


def test_a_breakpoint_in_a_thread_stops_that_thread(kernel: Any) -> None:
    cell = kernel.start(IN_A_THREAD)
    cell.talk("p here", "c")
    done = cell.end()
    assert "thread helper" in done.stdout and "'aside'" in done.stdout and "'done'" in done.text


ACTOR = """
from meshbook import Actor, endpoint

class Doubler(Actor):
    @endpoint
    def double(self, n):
        twice = 2 * n
        breakpoint()
        return twice

doubler = m.spawn("doubler", Doubler)
"""


def test_a_breakpoint_in_an_endpoint_that_a_plain_cell_waits_for(kernel: Any) -> None:
    kernel.ok(ACTOR)
    cell = kernel.start("doubler.slice(dp=1, tp=0).double.call_one(21).get()")
    cell.talk("p twice", "n", "c")
    done = cell.end()
    assert "rank 2 (dp=1,tp=0) is stopped at cell " in done.stdout and " line 7 in double, thread" in done.stdout
    assert "     7         breakpoint()" in done.stdout and "----> 8         return twice" in done.stdout, done.stdout
    assert done.results == ["42"]


@pytest.mark.parametrize("call", ["doubler.double.call(21).get()", "await doubler.double.call(21)"])
def test_abort_at_such_a_prompt_ends_the_cell(kernel: Any, call: str) -> None:
    kernel.ok(ACTOR)
    cell = kernel.start(call)
    cell.talk("%abort")
    assert "KeyboardInterrupt" in cell.end().error
    assert "'well'   ranks 0-3" in kernel.ok("%%on_mesh\n'well'").text


def test_a_breakpoint_in_an_endpoint_that_is_awaited_asks_in_the_cell(kernel: Any) -> None:
    kernel.ok(ACTOR)
    cell = kernel.start("await doubler.slice(dp=1, tp=0).double.call_one(21)")
    cell.talk("p n", "c")
    done = cell.end()
    assert "is stopped at" in done.stdout and "21" in done.stdout and done.results == ["42"]


def test_the_stop_button_at_such_a_prompt_ends_the_cell_and_lets_the_ranks_go_on(kernel: Any) -> None:
    kernel.ok(ACTOR)
    cell = kernel.start("await doubler.double.call(21)")
    cell.asked()
    kernel.interrupt()
    assert "CancelledError" in cell.end().error
    assert "'well'   ranks 0-3" in kernel.ok("%%on_mesh\n'well'").text


def test_a_breakpoint_while_a_cell_computes_says_how_to_get_there(kernel: Any) -> None:
    kernel.ok(ACTOR)
    cell = kernel.start("future = doubler.slice(dp=1, tp=0).double.call_one(21)\nimport time\ntime.sleep(1)")
    cell.until("stopped in the debugger at")
    cell.end()
    kernel.start("%mesh debug").talk("p n", "c")
    assert kernel.ok("future.get()").results == ["42"]


def test_an_endpoint_where_nobody_can_be_asked(kernel: Any) -> None:
    kernel.ok(ACTOR)
    cell = kernel.start("doubler.slice(dp=1, tp=0).double.call_one(21).get()", allow_stdin=False)
    cell.until("passed over")
    assert cell.end().results == ["42"]


def test_percent_debug_looks_at_the_error_of_the_ranks_and_at_one_of_the_notebook_as_ever(kernel: Any) -> None:
    kernel.cell("%%on_mesh 1\nmine = 41\n1 / 0")
    cell = kernel.start("%debug")
    assert cell.talk("p mine + 1", "q") == ["rank 1 ipdb> "] * 2
    done = cell.end()
    assert "42" in done.stdout and "`%mesh debug --pm -m" in done.stdout
    kernel.cell("own = 6\n1 / 0")
    cell = kernel.start("%debug")
    assert cell.talk("p own * 7", "q") == ["ipdb> "] * 2
    assert "42" in cell.end().stdout
