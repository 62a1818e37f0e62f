"""What is said of lines of the notebook."""

from __future__ import annotations

import linecache
import sys
from types import SimpleNamespace

import pytest

from meshbook.runtime.cells import Line, cell_of, readable

FILE = "/tmp/ipykernel_7/1.py"

CAME = """\
Traceback of where the remote call failed (most recent call last):
  File "/tmp/ipykernel_7/1.py", line 2, in f
  File "/lib/torch.py", line 5, in g
  File "/tmp/ipykernel_7/1.py", line 1, in <module>
    def f():
  File "/tmp/ipykernel_7/1.py", line 9, in past_its_end
ValueError: boom"""


@pytest.fixture(autouse=True)
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook whose cell 5 has two lines."""
    labels = {FILE: ("Cell", "In[5]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=labels.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(linecache.cache, FILE, (20, None, ["def f():\n", "    return g()\n"], FILE))


def test_a_cell_has_the_name_that_its_reader_knows() -> None:
    assert (cell_of(FILE), cell_of("train.py")) == ("cell 5", "")
    assert str(Line(FILE, 1, "<module>")) == "cell 5, line 1"
    assert str(Line(FILE, 2, "f")) == "cell 5, line 2, in f"
    assert str(Line("train.py", 2, "<module>")) == "train.py, line 2, in <module>"
    assert Line(FILE, 2, "f").text == "return g()"


def test_a_traceback_from_a_rank_has_names_and_lines() -> None:
    assert readable(CAME).splitlines()[1:] == [
        "  cell 5, line 2, in f",
        "    return g()",
        '  File "/lib/torch.py", line 5, in g',
        "  cell 5, line 1, in <module>",
        "    def f():",
        "  cell 5, line 9, in past_its_end",
        "ValueError: boom",
    ]


def test_so_has_that_of_an_exception_group() -> None:
    came = """\
  + Exception Group Traceback (most recent call last):
  |   File "/tmp/ipykernel_7/1.py", line 2, in f
  | ExceptionGroup: two (1 sub-exception)
  +-+---------------- 1 ----------------
    |   File "/tmp/ipykernel_7/1.py", line 1, in <module>
    |     def f():
    | ValueError: 1
    +------------------------------------"""
    lines = came.splitlines()
    lines[1:2] = ["  |   cell 5, line 2, in f", "  |     return g()"]
    lines[5] = "    |   cell 5, line 1, in <module>"
    assert readable(came).splitlines() == lines


def test_outside_of_notebooks_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert readable(CAME) == CAME
