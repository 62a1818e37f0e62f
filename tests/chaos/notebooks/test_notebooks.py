"""A short run of random notebooks; `make chaos` is the long one. And of what they are made of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from meshbook.magics.selector import parse_selector
from meshbook.magics.terms import SelectorError
from tests.chaos.notebooks.cells import Author, Body, Line, Ran, plain, said_in
from tests.chaos.notebooks.choice import Choice
from tests.chaos.notebooks.model import Grid, Notebook, Selection

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", [(), ("--presses",)], ids=["cells", "presses"])
def test_cells_do_in_a_kernel_what_they_do_here(how: tuple[str, ...]) -> None:
    """In a process of its own, which nothing is to outlive."""
    command = [sys.executable, "-m", "tests.chaos.notebooks", "--steps", "25", *how]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("seed 0: well")


@given(st.integers(min_value=0))
def test_what_is_written_can_be_read(seed: int) -> None:
    author = Author(Random(seed))
    for may_fail in (True, False):
        body = author.body(4, may_fail=may_fail)
        flags = 0x2000  # PyCF_ALLOW_TOP_LEVEL_AWAIT
        compile(TransformerManager().transform_cell(body.text), "cell", "exec", flags)
        compile("\n".join(line.here for line in body.lines), "here", "exec")


@settings(max_examples=30)
@given(st.integers(min_value=0))
def test_a_selection_means_whom_the_selector_means(seed: int) -> None:
    notebook = Notebook()
    choice, random = Choice(seed, notebook), Random(seed)
    grid = Grid("m", {"dp": random.randint(1, 3), "tp": random.randint(1, 2)})
    notebook.grids["m"] = grid
    notebook.use("m")
    for rank in random.sample(grid.everyone, random.randrange(len(grid.everyone))):
        grid.die(rank)
    grid.failed = set(random.sample(sorted(grid.alive), random.randint(0, len(grid.alive))))
    states = {rank: "failed" if rank in grid.failed else "idle" for rank in grid.alive} | dict.fromkeys(
        grid.dead, "dead"
    )
    for _ in range(30):
        operation = choice.next()
        if operation.name == "restart":  # which means the dead, too, without a selector
            continue
        for selection in (each for each in operation.args if isinstance(each, Selection)):
            assert resolved(selection, grid, states) == selection.on(grid)


def resolved(selection: Selection, grid: Grid, states: dict[int, str]) -> set[int]:
    try:
        return set(parse_selector(selection.text).resolve(grid.axes, states))
    except SelectorError:
        return set()


def test_a_cell_runs_on_those_that_live_and_ends_some() -> None:
    grid = Grid("m", {"dp": 3})
    grid.die(0)
    ends = Line("", "if rank == 1: raise Died")
    ran = grid.run(Body((plain("print('said', rank)"), ends, plain("a = rank")), "a + 1"), grid.everyone)
    assert ran == {1: Ran(("said 1",), ("Died", ""), None, True), 2: Ran(("said 2",), None, 3)}
    assert (grid.alive, grid.failed, grid.held()) == ({2}, {0, 1}, {2: {"a": "2"}})


def test_a_new_process_gets_what_went_well_and_what_was_pushed() -> None:
    grid = Grid("m", {"dp": 2})
    grid.run(Body((plain("a = 1 + rank"),)), [0, 1])
    grid.push("b", 5, [1])
    grid.run(Body((plain("a = a + b"),)), [1])
    grid.run(Body((plain("c = 3"), plain("1 / 0"))), [1])
    grid.restart([0, 1], "auto")
    assert grid.held() == {0: {"a": "1"}, 1: {"a": "7", "b": "5", "c": "3"}}, "of what failed, the constants"
    grid.restart([1], "none")
    assert grid.held() == {0: {"a": "1"}, 1: {}}


def test_who_said_what_is_read_from_the_labels() -> None:
    assert said_in("  0 │ a\n0-4:2,7 │ b\n✗ 1 of 2 ranks failed\n") == [
        (0, "a"),
        (0, "b"),
        (2, "b"),
        (4, "b"),
        (7, "b"),
    ]
