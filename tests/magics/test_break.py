"""Breakpoints that are set from the notebook: in code that runs already, on some ranks, on ranks that come later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from meshbook.magics.breaks import read_break
from meshbook.magics.grammar import COMMANDS
from meshbook.magics.options import GrammarError

pytestmark = [pytest.mark.real, pytest.mark.slow]

LOOP = """%%on_mesh
def step(i):
    j = i * 2
    return j
print("go", flush=True)
for i in range(10**9):
    step(i)
    time.sleep(0.001)"""


@pytest.fixture
def clean(kernel: Any) -> Iterator[Any]:
    yield kernel
    kernel.ok("%mesh break --clear all")


def test_armed_in_a_rank_that_runs(clean: Any) -> None:
    cell = clean.start(LOOP)
    cell.until_all(4, "go")
    said = clean.start_aside("%mesh break step 2 if i > 5").end().text
    assert "breakpoint " in said and "step if i > 5, on rank 2" in said
    assert cell.talk("p i > 5", "p rank") == ["rank 2 ipdb> "] * 2
    cell.asked()
    assert "hit 1 time on rank 2" in clean.start_aside("%mesh break").end().text
    clean.interrupt()
    done = cell.end()
    assert ": step if i > 5" in done.stdout and "\nTrue\n" in done.stdout


def test_it_goes_with_a_cell_that_is_run_again(clean: Any) -> None:
    body = "%%on_mesh 0\ny = 1\ny = y + rank\ny"
    first = clean.cell(body)
    clean.ok(f"%mesh break {first.reply['execution_count']}:3")
    for _ in range(2):
        cell = clean.start(body)
        assert cell.talk("p y + 41", "c") == ["rank 0 ipdb> "] * 2
        done = cell.end()
        assert "42" in done.stdout
        assert f"cell {done.reply['execution_count']} line 3" in clean.ok("%mesh break").text
    assert clean.cell(body.replace("y = 1", "y = 2")).status == "ok", "another cell is not that one"


def test_a_line_of_a_cell_before_it_runs_on_all_ranks_until_it_is_cleared(clean: Any) -> None:
    clean.ok("%mesh break sum-up:3")
    body = "%%on_mesh --label sum-up\nx = 1\nx = x + rank\nx"
    cell = clean.start(body)
    clean.until_stopped(0, 1, 2, 3)
    cell.talk("%all p x", "%all c")
    done = cell.end()
    assert "0-3 │ 1\n" in done.stdout and done.status == "ok"
    clean.ok("%mesh break --off all")
    assert clean.cell(body).status == "ok"
    assert "off  sum-up line 3" in clean.ok("%mesh break").text
    clean.ok("%mesh break --on all")
    cell = clean.start(body)
    cell.talk("q")
    cell.end()
    assert "no breakpoints" in clean.ok("%mesh break --clear all").text
    assert clean.cell(body).status == "ok"


def test_a_line_without_code_is_told(clean: Any) -> None:
    (clean.folder / "later.py").write_text("x = 1\n\ny = 2\n")
    said = "note: line 2 has no code, so nothing stops there: the next that has is line 3"
    assert said in clean.ok("%mesh break later.py:2").text
    clean.ok("%%on_mesh 0\n# words\nx = 1")
    number = clean.value("get_ipython().execution_count") - 1
    assert said in clean.ok(f"%mesh break {number}:2").text
    assert "note" not in clean.ok(f"%mesh break {number}:3").text


def test_a_file_that_is_not_here_is_told_and_may_be_somewhere_else(clean: Any) -> None:
    said = "note: no {} is found here: nothing stops until ranks run a file whose path ends so"
    made = clean.ok("%mesh break not-there-yet.py:2").text
    assert "not-there-yet.py line 2, on all ranks" in made and said.format("not-there-yet.py") in made
    for known in ("magics/breaks.py", "inspect.py"):
        assert "note" not in clean.ok(f"%mesh break {known}:9").text
    (clean.folder / "elsewhere").mkdir()
    (clean.folder / "elsewhere" / "theirs.py").write_text("def f():\n    return 1\n")
    assert said.format("theirs.py") in clean.ok("%mesh break theirs.py:2").text
    cell = clean.start("%%on_mesh 0\nimport runpy\nrunpy.run_path('elsewhere/theirs.py')['f']()")
    cell.talk("c")
    assert cell.end().status == "ok"


def test_what_will_stop_nowhere_is_told(clean: Any) -> None:
    assert "note: there is no cell 999 yet: nothing stops until it runs" in clean.ok("%mesh break 999:3").text
    clean.ok("%%on_mesh\nclass Netlet:\n    def go(self):\n        return 1")
    assert "note" not in clean.ok("%mesh break Netlet.go").text
    assert (
        "note: no code of Python that Netlet.nosuch stands for is loaded there"
        in clean.ok("%mesh break Netlet.nosuch").text
    )


def test_a_file_that_was_edited_since_ranks_loaded_it_is_told(clean: Any) -> None:
    file = clean.folder / "edited_since.py"
    file.write_text("def f():\n    return 1\n")
    clean.ok("%%on_mesh 1\nimport edited_since")
    assert "note" not in clean.ok("%mesh break edited_since.py:2").text
    file.write_text("import math\n\ndef f():\n    return 1\n")
    said = clean.ok("%mesh break edited_since.py:4").text
    assert "note: rank 1 runs an older edited_since.py, whose lines count: `%mesh autoreload on` loads" in said


def test_a_function_of_ours_or_a_library_that_has_the_same_name(clean: Any) -> None:
    said = clean.ok("%mesh break helper 0").text
    assert "note: your code there has no helper yet: it stops where a library has one" in said
    cell = clean.start("%%on_mesh\ndef helper(x):\n    return x + 1\nhelper(40)")
    assert cell.talk("p x + 2", "c") == ["rank 0 ipdb> "] * 2
    assert "\n42\n" in cell.end().stdout
    assert "hit 1 time on rank 0" in clean.ok("%mesh break").text


def test_it_goes_on_stopping_after_a_step(clean: Any) -> None:
    clean.ok("%mesh break again:4 0")
    cell = clean.start("%%on_mesh 0 --label again\nfor i in range(3):\n    a = i\n    b = a\nb")
    cell.talk("p i", "n", "n", "c", "p i", "c", "p i", "c")
    done = cell.end()
    assert "\n0\n" in done.stdout and "\n1\n" in done.stdout and "\n2\n" in done.stdout


def test_it_stops_in_what_another_debugger_steps_over(clean: Any) -> None:
    clean.ok("%mesh break inner_of_step 0")
    cell = clean.start(
        "%%on_mesh 0\ndef inner_of_step():\n    a = 41\n    return a\nbreakpoint()\nw = inner_of_step()\nw"
    )
    cell.talk("n", "n", "n", "p ('a is', a + 1)", "c")
    assert "('a is', 42)" in cell.end().stdout
    assert "hit 1 time on rank 0" in clean.ok("%mesh break").text


@pytest.mark.far
def test_a_restarted_rank_has_it_too(clean: Any) -> None:
    clean.ok("%mesh up later -n 2 --device cpu --pg none")
    clean.ok("%mesh break again:2 1")
    clean.ok("%mesh restart 1")
    cell = clean.start("%%on_mesh --label again\ny = rank\ny")
    assert cell.talk("q") == ["rank 1 ipdb> "]
    cell.end()
    clean.ok("%mesh down later")
    clean.ok("%mesh use m")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("break 5:", "is no place"),
        ("break 5:3 if x ===", "is no expression"),
        ("break --clear 77", "there is no breakpoint 77"),
        ("break 5:3 zz=1", "zz"),
    ],
)
def test_mistakes_are_one_line(clean: Any, line: str, said: str) -> None:
    done = clean.cell(f"%mesh {line}")
    assert done.error.startswith("UsageError: ") and said in done.error


def test_the_condition_stands_as_it_was_typed() -> None:
    command = COMMANDS["break"]
    args = read_break('break train.py:12 dp=1 if name == "a  b" and x if y else z', command)
    assert (args.where, args.selector, args.condition) == ("train.py:12", "dp=1", 'name == "a  b" and x if y else z')
    assert read_break("break cell 5:3", command).where == "cell 5:3"
    assert read_break("break --off 1,2", command).off == (1, 2)
    with pytest.raises(GrammarError, match="write the place in front"):
        read_break("break if x", command)
