"""The condition of a breakpoint: in the variables of a function, or of a cell; what it raises is told."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from meshbook.kernel.debug import conditions
from meshbook.kernel.debug.conditions import Condition


def frame_of(loss: float, step: int = 3) -> FrameType:
    steps = [step]
    if step < 0:
        late = steps
        assert late
    return sys._getframe()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("loss != loss", False),
        ("loss > 1 and step == 3", True),
        ("any(each == step for each in steps)", True),
        ("[each for each in steps if each > loss]", True),
        ("len(steps) == 2  # a comment", False),
        ("__name__ and frame_of", True),
        ("(lambda: loss)() == 2.0", True),
    ],
)
def test_it_reads_the_variables_of_a_function(text: str, holds: bool) -> None:
    frame = frame_of(2.0)
    condition = Condition(text, frame.f_code)
    assert [condition.holds(frame), condition.holds(frame)] == [holds, holds]


def test_names_of_a_cell_are_its_globals() -> None:
    names: dict[str, Any] = {"sys": sys, "x": 3}
    exec(compile("frame = sys._getframe()", "<ipython-input-5-00000009>", "exec"), names)
    condition = Condition("x > 2", names["frame"].f_code)
    assert condition.holds(names["frame"])
    names["x"] = 1
    assert not condition.holds(names["frame"])


@pytest.mark.parametrize(
    ("text", "error"),
    [("late", NameError), ("nobody > 1", NameError), ("loss +", SyntaxError), ("1 / (loss - 2)", ZeroDivisionError)],
)
def test_what_it_raises_is_raised_where_it_stands(text: str, error: type[Exception]) -> None:
    frame = frame_of(2.0)
    with pytest.raises(error):
        Condition(text, frame.f_code).holds(frame)


def test_another_thread_that_runs_the_line_waits_for_nothing_half_made(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = frame_of(2.0)
    condition = Condition("loss > 3", frame.f_code)
    make, seen = conditions._source, list[bool]()

    def run_meanwhile(*args: Any) -> str:
        monkeypatch.setattr(conditions, "_source", make)
        seen.append(condition.holds(frame))
        return make(*args)

    monkeypatch.setattr(conditions, "_source", run_meanwhile)
    assert (condition.holds(frame), seen) == (False, [False])
