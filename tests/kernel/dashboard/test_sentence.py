"""The first thing a colleague would say about a mesh."""

from __future__ import annotations

from typing import Any

import pytest

from meshbook.kernel.dashboard.facts import STATES, RankFacts
from meshbook.kernel.dashboard.sentence import sentence

NOW = 100.0


def mesh(**states: Any) -> list[RankFacts]:
    """Facts by state: `busy=3` is three busy ranks, one after the other."""
    facts: list[RankFacts] = []
    for state, count in states.items():
        facts += [RankFacts(len(facts) + i, state, NOW - 12) for i in range(count)]
    for each in facts:
        each.cell, each.place = "cell 7", "cell 7 line 12"
        each.waiting, each.waiting_since = ("all_reduce", NOW - 42) if each.state == "waiting" else ("", 0.0)
        each.why = {"dead": "died of SIGKILL", "stopped": "stopped (SIGSTOP)"}.get(each.state, "")
    return facts


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (mesh(idle=8), "all 8 ranks idle"),
        (mesh(idle=1), "rank 0 is idle"),
        (mesh(starting=2, idle=6), "2 of 8 ranks are starting"),
        (mesh(busy=16), "all 16 ranks run cell 7, for 12 s"),
        (mesh(busy=4), "all 4 ranks run cell 7, for 12 s: cell 7 line 12"),
        (mesh(busy=1, idle=3), "rank 0 runs cell 7, for 12 s: cell 7 line 12"),
        (mesh(failed=1, idle=3), "rank 0 failed in its last cell"),
        (mesh(failed=2, busy=2), "ranks 2-3 run cell 7, for 12 s: cell 7 line 12"),
        (mesh(waiting=8), "all 8 ranks wait in all_reduce, cell 7 line 12 for 42 s"),
        (
            mesh(waiting=63, busy=1),
            "rank 63 is 42 s behind: at cell 7 line 12; all others wait in all_reduce, cell 7 line 12",
        ),
        (
            mesh(waiting=3, failed=1),
            "rank 3 is 42 s behind: failed; all others wait in all_reduce, cell 7 line 12",
        ),
        (
            mesh(waiting=2, busy=4),
            "ranks 0-1 wait in all_reduce, cell 7 line 12: ranks 2-5 are busy at cell 7 line 12",
        ),
        (mesh(dead=1, idle=3), "rank 0 died of SIGKILL 12 s ago"),
        (mesh(dead=2, waiting=6), "ranks 0-1 died of SIGKILL 12 s ago: ranks 2-7 wait in all_reduce"),
        (mesh(stopped=1, busy=3), "rank 0 is stopped (SIGSTOP) for 12 s"),
        (mesh(debug=1, busy=3), "rank 0 is in the debugger: cell 7 line 12"),
    ],
)
def test_the_sentence(facts: list[RankFacts], text: str) -> None:
    assert str(sentence(facts, NOW)) == text


def test_what_is_bad_is_marked_so() -> None:
    tones = {state: sentence(mesh(**{state: 1, "idle": 3}), NOW).tone for state in STATES if state != "idle"}
    assert {state for state, tone in tones.items() if tone == "bad"} == {"dead", "stopped", "failed"}
    assert sentence(mesh(waiting=3, busy=1), NOW).tone == "wait"


def test_who_failed_in_the_cell_that_others_still_run_is_told_first() -> None:
    facts = mesh(failed=2, busy=2)
    facts[1].run = 9
    assert str(sentence(facts, NOW)) == "rank 1 failed: ranks 2-3 run cell 7, for 12 s"


def test_deaths_of_several_kinds_are_told_by_the_last() -> None:
    facts = mesh(dead=2, idle=2)
    facts[1].why, facts[1].since = "exited with code 3", NOW - 1
    assert str(sentence(facts, NOW)) == "ranks 0-1 are dead, the last exited with code 3 1 s ago"


def test_what_the_ledgers_found_is_told_where_nobody_says_that_it_waits() -> None:
    found = sentence(mesh(busy=4), NOW, "ranks 0-2 wait in reduce; rank 3 has issued none")
    assert found.tone == "wait" and "rank 3 has issued none" in str(found)


LATE = "rank 3 comes 30 ms late to all_reduce at cell 7, line 12: 52 % of 4 s were waiting for it"


def test_who_is_slow_is_told_until_somebody_is_behind() -> None:
    facts = mesh(waiting=3, busy=1)
    for age in (0.1, 0.0, 42.0):  # the others wait for it again and again, each for a moment
        facts[2].waiting_since = NOW - age
        found = sentence(facts, NOW, late=LATE)
        assert (str(found) == LATE) == (age < 1) and found.tone == "wait"
    assert str(sentence(mesh(busy=4), NOW, late=LATE)) == LATE
    assert str(sentence(mesh(busy=4), NOW, "ranks 0-2 wait", LATE)).endswith(": ranks 0-2 wait")
    assert "died" in str(sentence(mesh(dead=1, busy=3), NOW, late=LATE))


def test_a_loop_is_told_from_the_slowest_to_the_fastest() -> None:
    facts = mesh(busy=16)
    for each in facts:
        each.done, each.total, each.loop, each.rate = 200 + each.rank, 1000, "step", 3.14159
    assert str(sentence(facts, NOW)).endswith("for 12 s: step 200-215 of 1000, 3.14 it/s")


def test_long_times_are_short_to_read() -> None:
    facts = mesh(dead=1)
    for seconds, text in ((119, "119 s"), (600, "10 min"), (9000, "2 h 30 min")):
        facts[0].since = NOW - seconds
        assert f" {text} ago" in str(sentence(facts, NOW))


def test_a_rank_that_its_user_interrupted_has_not_failed() -> None:
    one = RankFacts(2, "failed", 40.0, why="interrupted", run=7)
    busy = RankFacts(0, "busy", 40.0, cell="cell 3", run=7)
    assert str(sentence([busy, one], now=50.0)).startswith("rank 2 was interrupted: rank 0 runs cell 3, for 10 s")
    assert str(sentence([one, RankFacts(1, "idle")], now=50.0)) == "rank 2 was interrupted in its last cell"
    assert sentence([one, RankFacts(1, "failed", 40.0)], now=50.0).tone == "bad"
