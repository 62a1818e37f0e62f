"""The names of cells' files: by them libraries know what was typed, and we the cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.sources.source import Sources, file_of, name_of
from tests.kernel.conftest import Notebook

NAMES = st.integers(0, 10**6).map("cell {}".format) | st.text()


@given(NAMES, st.text(), st.integers(1, 50))
def test_the_cell_of_a_file_is_known(name: str, source: str, first_line: int) -> None:
    file = file_of(name, source, first_line)
    assert name_of(file) == name
    assert file.startswith("<ipython-input-") and file.endswith(">"), "numba and line_profiler look at that"


def test_another_text_has_another_file() -> None:
    files = {file_of("cell 5", source, line) for source in ("x = 1", "x = 2") for line in (1, 2)}
    assert len(files) == 4
    assert name_of("<ipython-input-5-6dea98a43db6>") is None, "what IPython has named itself"


def test_what_ran_last_under_a_name_is_told_where_a_text_comes_back() -> None:
    sources = Sources()
    for source in ("x = 1", "x = 2", "x = 1"):
        sources.add("cell 5", source, 1)
    assert sources.last_of("cell 5") == ("x = 1", 1)


CACHED = """
@memory.cache
def slow(x):
    calls.append(x)
    return 2 * x
slow(4)"""


def test_joblib_finds_what_a_cell_has_computed_before(new_notebook: Callable[[], Notebook], tmp_path: Path) -> None:
    """When it runs again, and in another session."""
    joblib = pytest.importorskip("joblib")
    calls: list[int] = []
    for _ in range(2):
        notebook = new_notebook()
        notebook.shell.namespace.update(memory=joblib.Memory(tmp_path, verbose=0), calls=calls)
        assert [notebook.value(CACHED).text for _ in range(2)] == ["8", "8"]
    assert calls == [4]
