"""`%mesh who`: the names on the ranks, also of busy ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture
def spare(kernel: Kernel) -> Any:
    """The kernel with another mesh of three ranks, `spare`, on which only these names are."""
    kernel.ok("%mesh up spare dp=3 --device cpu --pg none")
    yield kernel
    kernel.ok("%mesh down spare --grace 0.2")


def test_names_of_ranks(spare: Kernel) -> None:
    assert spare.ok("%mesh who").text == "no names yet: what cells assign is listed here\n"
    spare.ok(
        "%%on_mesh\nimport torch\nx = torch.ones(2 + (rank == 2), 3)\nlr = 0.1\nlayers = [1, 2]\n"
        "class Odd:\n    def __repr__(self): raise SystemExit\nodd = Odd()\nif rank == 1: extra = {}"
    )
    told = spare.ok("%mesh who")
    assert [line.split() for line in told.text.splitlines()] == [
        ["≠", "extra", "missing", "ranks", "0,2"],
        ["≠", "extra", "dict", "length", "0", "rank", "1"],
        ["≠", "x", "Tensor", "float32", "[2,", "3]", "ranks", "0-1"],
        ["≠", "x", "Tensor", "float32", "[3,", "3]", "rank", "2"],
        ["layers", "list", "length", "2", "ranks", "0-2"],
        ["lr", "float", "0.1", "ranks", "0-2"],
        ["odd", "Odd", "ranks", "0-2"],
        ["classes:", "Odd"],
        ["modules:", "torch"],
    ]
    html = told.shown[0]["text/html"]
    assert html.count('class="mb-odd"') == 4 and "float32 [3, 3]" in html
    assert spare.ok("%mesh who dp=0").text.startswith("layers  list    length 2")


def test_busy_ranks_answer_too_and_as_json(spare: Kernel) -> None:
    cell = spare.start("%%on_mesh -b\nx = 5\nprint('in')\nwhile True: pass")
    cell.until_all(3, "in")
    told = json.loads(spare.value("get_ipython().run_line_magic('mesh', 'who --json')"))
    assert told == {
        "names": [
            {"name": "x", "ranks": [0, 1, 2], "is_agreed": True, "kind": "value", "type_name": "int", "value": "5"}
        ],
        "silent": [],
    }
    assert spare.start_aside("%mesh who 1").end().text == "x  int  5    rank 1\n"
    spare.ok("%mesh interrupt")


def test_completion(kernel: Kernel) -> None:
    assert kernel.completions("%mesh who d") == ["%mesh who dp="]
    assert kernel.completions("%mesh wh") == ["%mesh who"]
    assert "%mesh logs --grep" in kernel.completions("%mesh logs --")
