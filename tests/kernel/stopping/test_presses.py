"""The same button again: interrupt, break off, kill."""

from __future__ import annotations

from meshbook.kernel.stopping.patience import Step
from meshbook.kernel.stopping.presses import WINDOW, Presses


def test_the_ladder_is_climbed_while_the_same_call_goes_on() -> None:
    presses = Presses()
    assert [presses.press({0: 7, 1: 7}, now) for now in (0.0, 1.0, 2.0, 3.0)] == [
        Step.INTERRUPT,
        Step.RELEASE,
        Step.KILL,
        Step.KILL,
    ]


def test_it_begins_anew_after_a_while_and_for_another_call() -> None:
    presses = Presses()
    presses.press({0: 7}, 0.0)
    assert presses.press({0: 7}, WINDOW + 0.1) is Step.INTERRUPT
    assert presses.press({0: 8}, WINDOW + 0.2) is Step.INTERRUPT


def test_the_window_begins_when_the_last_step_is_done() -> None:
    presses = Presses()
    presses.press({0: 7}, 0.0)
    presses.press({0: 7}, 1.0)
    presses.renew([0, 1], 5.0)  # to break off collectives of a rank that is deaf takes seconds
    assert presses.press({0: 7}, 5.0 + WINDOW) is Step.KILL


def test_of_several_ranks_the_mildest_step_is_taken() -> None:
    presses = Presses()
    presses.press({0: 7}, 0.0)
    assert presses.press({0: 7, 1: 7}, 1.0) is Step.INTERRUPT


def test_a_new_process_is_not_to_blame_for_the_old_one() -> None:
    presses = Presses()
    presses.press({0: 7}, 0.0)
    presses.forget([0])
    assert presses.press({0: 7}, 0.5) is Step.INTERRUPT
