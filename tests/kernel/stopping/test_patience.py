from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.stopping.patience import Patience, Step


def steps(rule: Patience, *looks: tuple[float, bool, int]) -> list[str]:
    """What the rule says at each look: (now, has a rank failed, how often the user has pressed stop since)."""
    return [rule.step(*look).name for look in looks]


def test_without_trouble_it_waits_for_ever() -> None:
    rule = Patience(0.0)
    assert steps(rule, (1, False, 0), (1e6, False, 0)) == ["WAIT", "WAIT"]
    assert rule.reason == ""


def test_after_a_failure_the_others_have_the_grace() -> None:
    rule = Patience(0.0, grace=3.0)
    looks = [(10, True, 0), (12.9, True, 0), (13, True, 0), (13.2, True, 0), (13.3, True, 0), (15.2, True, 0)]
    assert steps(rule, *looks) == ["WAIT", "WAIT", "INTERRUPT", "WAIT", "RELEASE", "WAIT"]
    assert steps(rule, (15.31, True, 0), (99, True, 0)) == ["ABANDON", "WAIT"]
    assert rule.reason == "failure"


def test_the_grace_counts_from_when_the_failure_was_seen() -> None:
    rule = Patience(0.0, grace=1.0)
    assert rule.failing_for(5) == 0
    rule.step(5, True)
    assert rule.failing_for(5.5) == 0.5


def test_who_waits_in_vain_has_no_grace() -> None:
    rule = Patience(0.0, grace=60.0)
    rule.give_up()  # nothing has failed: nobody waits for what has
    assert steps(rule, (10, False, 0), (10, True, 0)) == ["WAIT", "WAIT"] and rule.is_patient
    rule.give_up()
    assert steps(rule, (10.5, True, 0), (10.7, True, 0), (10.8, True, 0)) == ["INTERRUPT", "WAIT", "RELEASE"]
    assert (rule.reason, rule.has_given_up, rule.is_patient) == ("failure", True, False)


def test_with_wait_nobody_is_given_up() -> None:
    rule = Patience(0.0, on_error="wait")
    rule.step(1, True)
    rule.give_up()
    assert steps(rule, (2, True, 0)) == ["WAIT"] and not rule.has_given_up


def test_no_grace_interrupts_at_once() -> None:
    assert steps(Patience(0.0, grace=0.0), (1, True, 0)) == ["INTERRUPT"]


def test_with_wait_a_failure_changes_nothing_but_stop_and_timeout_do() -> None:
    assert steps(Patience(0.0, on_error="wait"), (1, True, 0), (1e6, True, 0)) == ["WAIT", "WAIT"]
    timed = Patience(0.0, on_error="wait", timeout=5.0)
    assert steps(timed, (1, True, 0), (5, True, 0)) == ["WAIT", "INTERRUPT"]
    assert timed.reason == "timeout"


def test_the_timeout_counts_from_the_start() -> None:
    rule = Patience(100.0, timeout=5.0)
    looks = [(104.9, False, 0), (105, False, 0), (105.4, False, 0), (107.5, False, 0)]
    assert steps(rule, *looks) == ["WAIT", "INTERRUPT", "RELEASE", "ABANDON"]
    assert rule.reason == "timeout"


def test_the_user_comes_before_all_else() -> None:
    rule = Patience(0.0, grace=0.0, timeout=1.0)
    assert steps(rule, (5, True, 1)) == ["INTERRUPT"]
    assert rule.reason == "user"


def test_the_user_climbs_by_hand() -> None:
    rule = Patience(0.0)
    looks = [(1, False, 1), (2, False, 0), (3.9, False, 1), (4, False, 1), (4.1, False, 1), (7.1, False, 0)]
    assert steps(rule, *looks) == ["INTERRUPT", "WAIT", "RELEASE", "KILL", "WAIT", "ABANDON"]


def test_for_the_next_press_there_is_a_window() -> None:
    rule = Patience(0.0, window=3.0)
    assert steps(rule, (1, False, 1), (3.9, False, 0), (4, False, 0), (4.1, False, 1)) == [
        "INTERRUPT",
        "WAIT",
        "ABANDON",
        "WAIT",
    ]


def test_presses_in_one_look_are_all_heard_a_rung_at_a_time() -> None:
    assert steps(Patience(0.0), (1, False, 3), (1.1, False, 0), (1.2, False, 0)) == ["INTERRUPT", "RELEASE", "KILL"]


def test_one_press_does_not_kill_ranks_that_are_being_released_after_a_failure() -> None:
    rule = Patience(0.0, grace=0.0)
    assert steps(rule, (1, True, 0), (1.3, True, 0), (1.4, True, 1)) == ["INTERRUPT", "RELEASE", "WAIT"]
    assert rule.reason == "failure"
    assert steps(rule, (1.5, True, 2)) == ["KILL"]


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.booleans(), st.integers(0, 2)), max_size=60),
    st.sampled_from(["stop", "wait"]),
    st.sampled_from([None, 3.0]),
)
def test_whatever_happens_the_ladder_is_climbed_and_each_rung_taken_once(
    looks: list[tuple[float, bool, int]], on_error: str, timeout: float | None
) -> None:
    rule = Patience(0.0, on_error=on_error, timeout=timeout)
    now, failed, said = 0.0, False, list[Step]()
    for pause, fails, presses in looks:
        now, failed = now + pause, failed or fails
        said.append(rule.step(now, failed, presses))
    active = [step for step in said if step is not Step.WAIT]
    assert active == sorted(set(active))
    assert active[:1] in ([], [Step.INTERRUPT])
    if Step.KILL in active:
        assert sum(presses for _, _, presses in looks) >= 3 and Step.RELEASE in active
    assert bool(rule.reason) == bool(active)


@given(st.integers(0, 5), st.sampled_from(["stop", "wait"]))
def test_once_it_has_begun_it_ends(presses: int, on_error: str) -> None:
    rule = Patience(0.0, on_error=on_error, timeout=1.0)
    said = [rule.step(0.1 * look, False, presses if look == 0 else 0) for look in range(200)]
    assert said.count(Step.ABANDON) == 1


@pytest.mark.parametrize("on_error", ["stop", "wait"])
def test_a_press_always_counts(on_error: str) -> None:
    assert steps(Patience(0.0, on_error=on_error), (1, False, 1)) == ["INTERRUPT"]


def test_the_user_chooses_the_next_step_or_waits_on() -> None:
    rule = Patience(start=0.0)
    assert rule.step(1.0, False, 1) is Step.INTERRUPT
    rule.wait_on()
    assert [rule.step(now, False) for now in (5.0, 500.0)] == [Step.WAIT, Step.WAIT]
    assert rule.step(501.0, False, 1) is Step.RELEASE
    rule.choose(Step.KILL)
    assert [rule.step(now, False) for now in (501.1, 503.0, 504.5)] == [Step.KILL, Step.WAIT, Step.ABANDON]


def test_what_the_user_chooses_is_done_at_once_without_the_steps_before_it() -> None:
    rule = Patience(start=0.0)
    rule.step(1.0, False, 1)
    rule.choose(Step.KILL)
    assert rule.step(1.6, False) is Step.KILL


def test_the_user_gives_them_up_at_once() -> None:
    rule = Patience(start=0.0)
    rule.step(1.0, False, 1)
    rule.choose(Step.ABANDON)
    assert rule.step(1.6, False) is Step.ABANDON
