"""`%mesh auto on`: which cells run on the mesh that do not say so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.magics.auto import is_for_ranks, local_part
from meshbook.magics.grammar import Auto, GrammarError, parse_mesh
from tests.magics.front_end import Kernel


@pytest.mark.parametrize(
    "text", ["x = 1", "\n\n# a note\n  # another\nx", "'%'", "a % b", "x  # why?", "'?'\n", "@f\ndef g(): ..."]
)
def test_python_is_for_ranks(text: str) -> None:
    assert is_for_ranks(text)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "# only a note", "%time x", "\n# a note\n%%time\nx", "!ls", "?x", "x?", "x.y??  \n", "  %matplotlib"],
)
def test_what_is_about_the_notebook_runs_here(text: str) -> None:
    assert not is_for_ranks(text)


@pytest.mark.parametrize("text", ["w = %mesh pull w", "x = 1\nfor i in y:\n    %mesh who", "a.b[0] = %on_mesh -- 3"])
def test_cells_with_lines_of_ours_run_here(text: str) -> None:
    assert not is_for_ranks(text)
    assert is_for_ranks("'%mesh'") and is_for_ranks("a %mesh_size")


@given(st.text("%!?#x \n"))
def test_comments_above_a_cell_change_nothing(text: str) -> None:
    assert is_for_ranks(f"# above\n\n{text}") == is_for_ranks(text)


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("%%local\nx = 1\ny", "\nx = 1\ny"),
        ("# why\n%%local  \nx", "# why\n\nx"),
        ("%%local\n%%time\nx", "%%time\nx"),
        ("%%local", "\n"),
        ("%%locally\nx", None),
        ("x\n%%local\n", None),
    ],
)
def test_what_runs_here_keeps_its_lines(text: str, here: str | None) -> None:
    assert local_part(text) == here


def test_the_line() -> None:
    assert [parse_mesh(f"auto {word}").args for word in ("", "on", "off")] == [Auto(None), Auto(True), Auto(False)]
    for words in ("auto", "on off", "auto on"):
        with pytest.raises(GrammarError, match="%mesh auto: write `on` or `off`, not"):
            parse_mesh(f"auto {words}")


@pytest.fixture
def auto(kernel: Kernel) -> Iterator[Kernel]:
    """A kernel whose plain cells run on the mesh."""
    kernel.ok("%mesh auto on")
    yield kernel
    kernel.ok("%mesh auto off")


@pytest.mark.slow
@pytest.mark.real
class TestInANotebook:
    def test_plain_cells_run_on_the_mesh(self, auto: Kernel) -> None:
        assert auto.ok("# a note\nx = rank * 2\nx").text.splitlines()[-1].startswith("6   rank 3")
        assert "→ 3  1 / (rank - 1)" in auto.cell("\nx = 1\n1 / (rank - 1)").text
        assert auto.ok("%mesh diff x").status == "ok"

    def test_some_run_here(self, auto: Kernel) -> None:
        auto.ok("%%local\nonly_here = 'the notebook'")
        assert auto.ok("%%local\nonly_here").results == ["'the notebook'"]
        assert auto.ok("%time only_here").results == ["'the notebook'"]
        assert "line 3" in auto.cell("# above\n%%local\n1 / 0").traceback
        assert "NameError: name 'only_here' is not defined" in auto.cell("only_here").text

    def test_what_it_misses_can_be_pushed(self, auto: Kernel) -> None:
        auto.ok("%%local\nrate, scale = 0.5, 2")
        told = auto.cell("rate * scale").text
        assert "rate is in the notebook: %mesh push rate" in told
        auto.ok("%mesh push rate scale")
        assert auto.ok("rate * scale").text.startswith("1.0   ranks 0-3")
        assert "in the notebook" not in auto.cell("no_such_name").text

    def test_a_slice_that_is_in_use(self, auto: Kernel) -> None:
        auto.ok("%mesh use m[dp=1]")
        assert "run on m[dp=1]; here run" in auto.ok("%mesh auto").text
        assert auto.ok("coord['dp']").text.startswith("1   ranks 2-3")
        auto.ok("%mesh use m")

    def test_what_a_front_end_asks_stays_here(self, auto: Kernel) -> None:
        auto.ok("%%local\nasked = None")
        auto.cell("asked = 'a variable inspector'", store_history=False)
        assert auto.ok("%%local\nasked").results == ["'a variable inspector'"]

    def test_what_a_cell_runs_stays_here(self, auto: Kernel) -> None:
        auto.ok("%%local\nget_ipython().run_cell('nested = 7')")
        assert auto.ok("%%local\nnested").results == ["7"]

    def test_tab_knows_the_ranks_names(self, auto: Kernel) -> None:
        auto.ok("only_on_ranks = 1")
        assert auto.completions("y = 1\nonly_on_r") == ["y = 1\nonly_on_ranks"]
        assert "only_on_ranks" not in "".join(auto.completions("%%local\nonly_on_r"))

    def test_it_ends_with_its_mesh(self, kernel: Kernel) -> None:
        kernel.ok("%mesh up brief -n 1 --pg none --device cpu")
        assert "plain cells run on brief; here run" in kernel.ok("%mesh auto on").text
        assert "auto is off: plain cells run here" in kernel.ok("%mesh down brief").text
        assert kernel.ok("6 * 7").results == ["42"]
        assert "auto is off" in kernel.ok("%mesh auto").text
