"""Completion on a rank: what it finds, and that it runs no code of the user."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kernel.conftest import Notebook


@pytest.mark.parametrize(
    ("text", "start", "some"),
    [
        ("ran", 0, "rank"),
        ("x = ran", 4, "range"),
        ("y = 1\nran", 6, "rank"),
        ("words.app", 6, "append"),
        ("print(words.app", 12, "append"),
        ("os.pa", 3, "path"),
        ("os.path.joi", 8, "join"),
        ("point.x.rea", 8, "real"),
        ("%timei", 0, "%timeit"),
        ("sizes['d", 7, "dp"),
        ("area(wi", 5, "width="),
        ("y = area(\n    1,\n    hei", 21, "height="),
    ],
)
def test_completion(notebook: Notebook, text: str, start: int, some: str) -> None:
    notebook.run("import os\nwords = []\nsizes = {'dp': 2}\ndef area(width, height): ...")
    notebook.run("class Point:\n    def __init__(self): self.x = 1\npoint = Point()")
    found, words = notebook.shell.complete(text, len(text))
    assert some in words
    assert found == start


def test_completion_runs_no_code_of_a_cell(notebook: Notebook) -> None:
    notebook.run(
        "ran = []\n"
        "class Trap:\n"
        "    @property\n"
        "    def size(self): ran.append('property')\n"
        "    def __dir__(self): ran.append('dir'); return []\n"
        "    def __getattr__(self, name): ran.append(name); raise AttributeError(name)\n"
        "    def __init__(self): self.inner = 3\n"
        "trap = Trap()"
    )
    assert notebook.shell.complete("trap.", 5)[1] == ["inner", "size"]
    assert notebook.shell.complete("trap.size.", 10)[1] == []
    assert notebook.shell.namespace["ran"] == []


def test_completion_of_an_import_imports_nothing(notebook: Notebook) -> None:
    assert notebook.shell.complete("from this import ", 17) == (17, [])
    assert "this" not in sys.modules


def test_completion_is_bounded(notebook: Notebook) -> None:
    notebook.run("globals().update({f'name_{i}': i for i in range(1000)})")
    assert len(notebook.shell.complete("name_", 5)[1]) == 200


def test_completion_answers_while_a_cell_runs(notebook: Notebook) -> None:
    started, go_on = threading.Event(), threading.Event()
    notebook.shell.namespace.update(started=started, go_on=go_on)
    thread = threading.Thread(target=notebook.run, args=("fresh_name = 1\nstarted.set()\ngo_on.wait(10)",))
    thread.start()
    started.wait(10)
    try:
        assert notebook.shell.complete("fresh_n", 7) == (0, ["fresh_name"])
    finally:
        go_on.set()
        thread.join()
