"""`%mesh diff EXPR` and `--show diff`: which ranks disagree on a value."""

from __future__ import annotations

import json

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


def test_an_expression_compared(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\nx = torch.arange(4.)\nif rank == 3: x[2] += 1")
    kernel.ok("kept = %on_mesh 0 -- rank")
    told = kernel.ok("%mesh diff x")
    assert told.text == (
        "rank 3 differs from ranks 0-2   Tensor\n≠ rank 3  1 of 4 differ by up to 1 (0.33 relative), first at [2]\n"
    )
    assert 'class="mb-odd"' in told.shown[0]["text/html"]
    assert kernel.ok("%mesh diff x[:2] * 2").text == "ranks 0-3 are equal   Tensor\n"
    assert kernel.ok("%mesh diff x --sel dp=0").text == "ranks 0-1 are equal   Tensor\n"
    assert kernel.ok("%mesh diff x --atol 1").text.startswith("ranks 0-3 are equal")
    assert kernel.ok("%mesh diff --atol 2 -- x --x").text.startswith("ranks 0-3 are equal")  # x minus minus x
    assert kernel.value("repr(_mesh) == repr(kept)")  # the last result is still that of the last cell


def test_as_json_and_as_an_object(kernel: Kernel) -> None:
    told = json.loads(kernel.value("get_ipython().run_line_magic('mesh', 'diff {\"a\": rank % 2, \"b\": 1} --json')"))
    assert told["groups"] == [[0, 2], [1, 3]]
    assert [leaf["name"] for leaf in told["leaves"]] == ["a"]
    kernel.ok("found = %mesh diff coord")
    assert kernel.value("found.comparison.groups") == [(0,), (1,), (2,), (3,)]


def test_the_value_of_a_cell(kernel: Kernel) -> None:
    told = kernel.ok("%%on_mesh --show diff -o r\nprint('in')\n{'lr': 0.1, 'seed': rank // 3}")
    assert told.text == (
        "0-3 │ in\nrank 3 differs from ranks 0-2   dict, 1 of 2 leaves differ\n"
        "≠ seed  0  rank 3  1 instead of 0, by 1 (1 relative)\n"
    )
    assert kernel.value("r[3]") == {"lr": 0.1, "seed": 1}
    assert kernel.ok("%%on_mesh --show diff\ny = 1").text == ""
    assert kernel.ok("%on_mesh dp=1 --show diff -- rank // 2").text == "ranks 2-3 are equal   int, 1\n"


def test_an_expression_that_fails_tells_its_story(kernel: Kernel) -> None:
    failed = kernel.cell("%mesh diff 1 // (rank - 1)")
    assert failed.error == "MeshError: 1 of 4 ranks failed (dp=0,tp=1)"
    assert "ZeroDivisionError" in failed.traceback
    assert "%mesh debug --pm" in failed.traceback
    assert "run again" not in failed.traceback  # it is no cell
    assert "run it again" not in kernel.cell("%mesh diff nothing_such").traceback
    assert kernel.cell("%%on_mesh --show diff\n1 // (rank - 1)").error == failed.error


def test_what_failed_before_can_still_be_looked_at(kernel: Kernel) -> None:
    kernel.cell("%%on_mesh\nif rank == 2:\n    odd = 7\n    1 / 0")
    kernel.ok("%mesh diff rank // 4")
    cell = kernel.start("%mesh debug --pm")
    cell.talk("p odd", "q")
    assert "\n7\n" in cell.end().text
    assert kernel.ok("found = %on_mesh @failed -- rank").text == ""
    assert kernel.value("[*found.ranks]") == [2]
    kernel.cell("%mesh diff [][rank]")
    cell = kernel.start("%mesh debug 0 --pm")
    cell.talk("q")
    assert "[][rank]" in cell.end().text, "what fails itself comes in its place"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%mesh diff", "UsageError: %mesh diff: write the expression to compare, such as %mesh diff model --rtol 1e-5"),
        ("%mesh diff --", "UsageError: an expression is missing after --, such as %mesh diff -- model --rtol 1e-5"),
        ("%mesh diff x --rtol -1", "UsageError: %mesh diff: --rtol: '-1' is not a number of 0 or more, such as 1e-6"),
        ("%mesh diff x --rtoll 1", "UsageError: %mesh diff: no option --rtoll: did you mean '--rtol'?"),
        ("%mesh diff x --sel dp=7", "UsageError: dp=7 is out of range"),
        ("%mesh diff x -m nope", "UsageError: there is no mesh 'nope'"),
        ("%%on_mesh -b --show diff\n1", "UsageError: %%on_mesh: --show diff and --bg exclude each other"),
    ],
)
def test_mistakes_are_told_in_one_line(kernel: Kernel, line: str, expected: str) -> None:
    outputs = kernel.cell(line)
    assert outputs.error.startswith(expected)
    assert outputs.text.strip() == outputs.error


def test_completion(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\nsome_model = torch.nn.Linear(2, 2)")
    assert "%mesh diff some_model" in kernel.completions("%mesh diff some_mo")
    assert kernel.completions("%mesh diff x --rt") == ["%mesh diff x --rtol"]
    assert kernel.completions("%%on_mesh --show d") == ["%%on_mesh --show diff"]
