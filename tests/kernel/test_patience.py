from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.patience import Patience, Step


def steps(rule: Patience, *looks: tuple[float, bool, bool]) -> list[str]:
    """What the rule says at each look: (now, has a rank failed, has the user pressed stop)."""
    return [rule.step(*look).name for look in looks]


def test_without_trouble_it_waits_for_ever() -> None:
    rule = Patience(0.0)
    assert steps(rule, (1, False, False), (1e6, False, False)) == ["WAIT", "WAIT"]
    assert rule.reason == ""


def test_after_a_failure_the_others_have_the_grace() -> None:
    rule = Patience(0.0, grace=3.0)
    looks = [(10, True, False), (12.9, True, False), (13, True, False), (14.9, True, False), (15, True, False)]
    assert steps(rule, *looks) == ["WAIT", "WAIT", "INTERRUPT", "WAIT", "ABANDON"]
    assert rule.reason == "failure"


def test_the_grace_counts_from_when_the_failure_was_seen() -> None:
    rule = Patience(0.0, grace=1.0)
    assert rule.failing_for(5) == 0
    rule.step(5, True)
    assert rule.failing_for(5.5) == 0.5


def test_no_grace_interrupts_at_once() -> None:
    assert steps(Patience(0.0, grace=0.0), (1, True, False)) == ["INTERRUPT"]


def test_with_wait_a_failure_changes_nothing_but_stop_and_timeout_do() -> None:
    assert steps(Patience(0.0, on_error="wait"), (1, True, False), (1e6, True, False)) == ["WAIT", "WAIT"]
    timed = Patience(0.0, on_error="wait", timeout=5.0)
    assert steps(timed, (1, True, False), (5, True, False)) == ["WAIT", "INTERRUPT"]
    assert timed.reason == "timeout"


def test_the_timeout_counts_from_the_start() -> None:
    rule = Patience(100.0, timeout=5.0)
    assert steps(rule, (104.9, False, False), (105, False, False), (107, False, False)) == [
        "WAIT",
        "INTERRUPT",
        "ABANDON",
    ]
    assert rule.reason == "timeout"


def test_the_user_comes_before_all_else() -> None:
    rule = Patience(0.0, grace=0.0, timeout=1.0)
    assert steps(rule, (5, True, True)) == ["INTERRUPT"]
    assert rule.reason == "user"


def test_a_second_press_does_not_interrupt_again() -> None:
    rule = Patience(0.0, patience=2.0)
    looks = [(1, False, True), (1.1, False, True), (2.9, False, True), (3, False, False)]
    assert steps(rule, *looks) == ["INTERRUPT", "WAIT", "WAIT", "ABANDON"]


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.booleans(), st.booleans()), max_size=60),
    st.sampled_from(["stop", "wait"]),
    st.sampled_from([None, 3.0]),
)
def test_whatever_happens_it_interrupts_once_and_then_gives_up(
    looks: list[tuple[float, bool, bool]], on_error: str, timeout: float | None
) -> None:
    rule = Patience(0.0, on_error=on_error, timeout=timeout)
    now, failed, said = 0.0, False, list[Step]()
    for pause, fails, stops in looks:
        now, failed = now + pause, failed or fails
        said.append(rule.step(now, failed, stops))
    active = [step for step in said if step is not Step.WAIT]
    assert active[:1] in ([], [Step.INTERRUPT])
    assert set(active[1:]) <= {Step.ABANDON}
    assert bool(rule.reason) == bool(active)


@pytest.mark.parametrize("on_error", ["stop", "wait"])
def test_a_press_always_counts(on_error: str) -> None:
    assert steps(Patience(0.0, on_error=on_error), (1, False, True)) == ["INTERRUPT"]
