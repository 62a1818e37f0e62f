"""What may be typed at the debugger's prompt: statements, a prompt of Python's, a debugger within."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

CELL = """%%on_mesh 0
def g(a):
    twice = a * 2
    return twice
def f():
    n = 3
    breakpoint()
    return n
f()"""

THREADS = """%%on_mesh 0
import threading
from concurrent.futures import ThreadPoolExecutor
ready, go = threading.Event(), threading.Event()
def work(i):
    if i == 1:
        ready.wait()
    breakpoint()
    if i == 0:
        ready.set()
        go.wait()
    return i + 1
with ThreadPoolExecutor(2) as pool:
    futures = [pool.submit(work, i) for i in range(2)]
    futures[1].add_done_callback(lambda future: go.set())
    results = [future.result() for future in futures]
results"""


def test_every_assignment_reaches_the_code_not_only_the_first(kernel: Any) -> None:
    cell = kernel.start(CELL)
    cell.talk("x = 1", "n = 7", "n = 8", "c")
    assert "8   rank 0" in cell.end().text


def test_a_statement_may_have_several_lines(kernel: Any) -> None:
    cell = kernel.start(CELL)
    prompts = cell.talk("for i in range(2):", "    print('i is', i + n)", "", "n = [1,", "    2]", "c")
    assert [prompt.strip() for prompt in prompts[:3]] == ["rank 0 ipdb>", "rank 0 ...", "rank 0 ..."]
    done = cell.end()
    assert "i is 3\ni is 4\n" in done.stdout
    assert "[1, 2]   rank 0" in done.text


def test_the_prompt_of_python_shows_its_values_there_and_is_left_by_a_word(kernel: Any) -> None:
    cell = kernel.start(CELL)
    cell.talk("interact", "n + 40", "exit", "interact", "quit()", "c")
    done = cell.end()
    assert "*interactive*\n43\nleft: " in done.stdout
    assert done.stdout.count("left: this is the debugger again") == 2
    assert "3   rank 0" in done.text


def test_a_debugger_within_the_debugger_steps_through_a_statement(kernel: Any) -> None:
    cell = kernel.start(CELL)
    prompts = cell.talk("debug g(5)", "s", "s", "n", "p twice", "c", "debug g(1)", "s", "q", "debug n = 9", "c", "c")
    nested = [prompt for prompt in prompts if "(ipdb>)" in prompt]
    assert len(nested) == 8
    done = cell.end()
    assert "\n10\nLEAVING RECURSIVE DEBUGGER\n" in done.stdout
    assert "9   rank 0" in done.text


def test_an_error_in_the_debugger_within_is_told_and_the_cell_goes_on(kernel: Any) -> None:
    cell = kernel.start(CELL)
    cell.talk("debug 1/0", "c", "debug )(", "c")
    done = cell.end()
    assert "*** ZeroDivisionError: division by zero" in done.stdout
    assert "*** SyntaxError: unmatched ')'" in done.stdout
    assert "3   rank 0" in done.text


def test_who_leaves_in_one_thread_breaks_no_other_thread_with_a_breakpoint(kernel: Any) -> None:
    cell = kernel.start(THREADS)
    cell.talk("b 12", "c", "q")
    done = cell.end()
    assert "[1, 2]   rank 0" in done.text


@pytest.mark.parametrize("step", ["s", "n"])
def test_the_first_step_leads_to_the_users_next_line(kernel: Any, step: str) -> None:
    cell = kernel.start("%%on_mesh 0\ndef g():\n    return 3\nbreakpoint()\na = g()\na")
    cell.talk(step, "c")
    done = cell.end()
    assert "----> 5 a = g()" in done.stdout
    assert "contextlib" not in done.stdout


def test_the_last_expression_of_a_cell_is_stepped_to_like_any_line(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh 0\nbreakpoint()\na = 3\na + 1")
    cell.talk("n", "n", "c")
    done = cell.end()
    assert "----> 4 a + 1" in done.stdout
    assert "--Call--" not in done.stdout


def test_steps_may_lead_to_another_breakpoint(kernel: Any) -> None:
    body = "def f(n):\n    for i in range(2):\n        breakpoint()\n        n += i\n    return n\nf(1)"
    cell = kernel.start(f"%%on_mesh 0\n{body}")
    cell.talk("n", "n", "n", "p ('i is', i)", "n", "n", "n", "c")
    done = cell.end()
    assert "('i is', 1)" in done.stdout
    assert [done.stdout.count(f"---> {line}") for line in (3, 4, 5, 6)] == [2, 2, 2, 1]
    assert "2   rank 0" in done.text
    assert "bdb" not in done.stdout


def test_threads_of_a_rank_that_wait_are_told_apart(kernel: Any) -> None:
    body = (
        "import threading\ndef work(i):\n    breakpoint()\n"
        "both = [threading.Thread(target=work, args=(i,), name=f'w{i}') for i in range(2)]\n"
        "for each in both: each.start()\nfor each in both: each.join()"
    )
    cell = kernel.start(f"%%on_mesh 0\n{body}")
    assert cell.asked().startswith("rank 0 ")
    cell.type("%rank 0")
    while "more stopped" not in cell.asked():  # the other one may be a moment behind
        cell.type("%rank 0")
    cell.type("%who")
    prompts = cell.talk("%rank 0", "p ('i is', i)", "%rank 0", "p ('i is', i)", "%all c")
    assert prompts == ["rank 0 [1 more stopped: 0] ipdb> "] * 5
    done = cell.end()
    assert "stopped at cell" in done.stdout and ", thread w0\n" in done.stdout and ", thread w1\n" in done.stdout
    assert "('i is', 0)" in done.stdout and "('i is', 1)" in done.stdout


def test_a_breakpoint_that_is_set_meanwhile_takes_no_step_away(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh 0\ndef g():\n    a = 1\n    return a\nbreakpoint()\nv = 1\nw = g()\nw")
    cell.talk("n")
    cell.asked()
    kernel.start_aside("%mesh break 99:1").end()
    cell.type("n")
    cell.talk("s", "s", "s", "p ('a is', a)", "c")
    assert "('a is', 1)" in cell.end().stdout
    kernel.ok("%mesh break --clear all")


def test_a_step_past_the_end_of_a_cell_ends_it(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh 0\nbreakpoint()\na = 4\n1 / a")
    cell.talk("n", "n", "n")
    done = cell.end()
    assert "0.25   rank 0" in done.text
    assert "__init__" not in done.stdout


def test_a_breakpoint_ends_with_its_cell(kernel: Any) -> None:
    kernel.ok("%%on_mesh 0\ndef g():\n    return 3")
    cell = kernel.start("%%on_mesh 0\nbreakpoint()\ng()")
    cell.talk("b g", "c", "c")
    cell.end()
    cell = kernel.start("%%on_mesh 0\nimport sys\nbreakpoint()\ng(), sys.gettrace()")
    cell.talk("c")
    assert "(3, None)" in cell.end().text


def test_who_asks_where_a_stopped_rank_is_sees_no_debugger(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh 0\ndef g():\n    breakpoint()\ng()")
    cell.asked()
    told = kernel.start_aside("%mesh stacks 0").end().text
    cell.type("c")
    cell.end()
    assert "line 3" in told
    assert "pdb" not in told and "cmd.py" not in told


def test_what_is_printed_on_the_way_stands_before_the_next_stop(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh 0\nx = {'a': 40 + 2}\nbreakpoint()\nprint('one')\ndisplay(x)\nb = 2\nb")
    cell.talk("n", "n", "n", "c")
    done = cell.end()
    order = ["-> 4 print", "one\n> cell", "-> 5 display", "{'a': 42}", "-> 6 b = 2"]
    places = [done.text.find(part) for part in order]
    assert places == sorted(places) and -1 not in places, done.text


def test_a_breakpoint_in_what_is_evaluated_at_the_prompt_is_passed_over_after_a_step_too(kernel: Any) -> None:
    cell = kernel.start("%%on_mesh 0\ndef g():\n    breakpoint()\n    return 3\nbreakpoint()\nb = 2\nb")
    cell.talk("p g()", "n", "p g() + 1", "c")
    done = cell.end()
    assert "\n3\n" in done.stdout and "\n4\n" in done.stdout
    assert "2   rank 0" in done.text
