"""The sentence that a colleague would say first about a mesh. Pure: facts and the time in, words out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...runtime.ranges import named
from .facts import INTERRUPTED, RankFacts

Tone = Literal["quiet", "wait", "bad"]

BEHIND = 0.5
"""Seconds that ranks have waited for one before it is behind."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """What stands out, then what belongs to it."""

    lead: str
    rest: str = ""
    tone: Tone = "quiet"

    def __str__(self) -> str:
        return f"{self.lead}{': ' if self.rest else ''}{self.rest}"


def sentence(facts: Sequence[RankFacts], now: float, finding: str = "", late: str = "") -> Sentence:
    """The one thing to know about these ranks at `now`.

    Their collectives tell of ranks that have parted (`finding`), and of those that keep the others waiting (`late`).

    Example:
        >>> waiting = [RankFacts(r, "waiting", 0, "cell 7 line 12", "all_reduce", 8.0) for r in (0, 1)]
        >>> print(sentence([*waiting, RankFacts(2, "busy", 0.0, "cell 7 line 9")], now=50.0))
        rank 2 is 42 s behind: at cell 7 line 9; all others wait in all_reduce, cell 7 line 12
        >>> print(sentence([RankFacts(0, "idle"), RankFacts(1, "dead", 46.0, why="died of SIGKILL")], now=50.0))
        rank 1 died of SIGKILL 4 s ago
    """
    by_state: dict[str, list[RankFacts]] = {}
    for each in facts:
        by_state.setdefault(each.state, []).append(each)
    for state, tell in (("dead", _dead), ("stopped", _stopped)):
        if found := by_state.get(state):
            return tell(found, by_state.get("waiting", []), now)
    waiting = by_state.get("waiting", [])
    if late and not finding and not _is_behind(waiting, now):
        return Sentence(*late.split(": ", 1), tone="wait")
    if waiting:
        return _waiting(waiting, by_state, len(facts), now)
    if found := by_state.get("debug"):
        return Sentence(f"{_who(found)} {_is(found)} in the debugger", found[0].place, "wait")
    if finding:
        return Sentence("ranks have parted", finding, "wait")
    if found := by_state.get("busy"):
        return _busy(found, by_state, len(facts), now)
    if found := by_state.get("failed"):
        return Sentence(f"{_failed(found)} in {_its(found)} last cell", "", _tone(found))
    if found := by_state.get("starting"):
        return Sentence(f"{len(found)} of {len(facts)} ranks are starting")
    return Sentence(_all(facts, "idle"))


def _is_behind(waiting: Sequence[RankFacts], now: float) -> bool:
    """Have ranks waited for long since the last of them came?"""
    return bool(waiting) and now - max(each.waiting_since for each in waiting) >= BEHIND


def _dead(dead: Sequence[RankFacts], waiting: Sequence[RankFacts], now: float) -> Sentence:
    last = max(dead, key=lambda each: each.since)
    how = {each.why for each in dead}
    ago = f"{span_text(now - last.since)} ago"
    lead = f"{_who(dead)} {last.why} {ago}" if len(how) == 1 else f"{_who(dead)} are dead, the last {last.why} {ago}"
    rest = f"{_who(waiting)} {_s(waiting, 'wait')} in {waiting[0].waiting}" if waiting else ""
    return Sentence(lead, rest, "bad")


def _stopped(stopped: Sequence[RankFacts], waiting: Sequence[RankFacts], now: float) -> Sentence:
    first = min(stopped, key=lambda each: each.since)
    lead = f"{_who(stopped)} {_is(stopped)} {first.why} for {span_text(now - first.since)}"
    rest = f"{_who(waiting)} {_s(waiting, 'wait')} in {waiting[0].waiting}" if waiting else ""
    return Sentence(lead, rest, "bad")


def _waiting(
    waiting: Sequence[RankFacts], by_state: dict[str, list[RankFacts]], num_ranks: int, now: float
) -> Sentence:
    """Ranks that wait, and those that they wait for: the few are what to look at."""
    seconds = now - max(each.waiting_since for each in waiting)  # since the last of them came
    others = [each for state in ("busy", "failed", "idle", "debug") for each in by_state.get(state, [])]
    held = f"{_s(waiting, 'wait')} in {waiting[0].waiting}{_at(waiting)}"
    if not others:
        return Sentence(f"{_all(waiting, held)} for {span_text(now - min(w.waiting_since for w in waiting))}")
    if seconds < BEHIND or len(others) >= len(waiting) > 1 or (len(others) > 1 and len(waiting) == 1):
        return Sentence(f"{_who(waiting)} {held}", f"{_who(others)} {_do(others)}{_place(others)}")
    who = "all others" if len(waiting) + len(others) == num_ranks and len(waiting) > 1 else _who(waiting)
    lead = f"{_who(others)} {_is(others)} {span_text(seconds)} behind"
    doing = f"{others[0].state}; " if others[0].state in ("failed", "idle") else _where(others)
    return Sentence(lead, f"{doing}{who} {held}", "wait")


def _busy(busy: Sequence[RankFacts], by_state: dict[str, list[RankFacts]], num_ranks: int, now: float) -> Sentence:
    cells = {each.cell for each in busy}
    what = f"run {busy[0].cell}" if len(cells) == 1 and busy[0].cell else "are busy"
    what = what if len(busy) > 1 else what.replace("run ", "runs ").replace("are ", "is ")
    since = span_text(now - min(each.since for each in busy))
    is_all = len(busy) == num_ranks
    lead = f"{_all(busy, what) if is_all else f'{_who(busy)} {what}'}, for {since}"
    rest = [_place(busy).removeprefix(" at ")] if not is_all or num_ranks <= 8 else []
    if loops := [each for each in busy if each.total > 0 or each.done]:
        rest.append(_loop(loops))
    if failed := [each for each in by_state.get("failed", []) if each.run]:  # in a cell that others still run
        return Sentence(_failed(failed), f"{lead}", _tone(failed))
    return Sentence(lead, "; ".join(filter(None, rest)))


def _failed(failed: Sequence[RankFacts]) -> str:
    is_fault = _tone(failed) == "bad"
    return f"{_who(failed)} {'failed' if is_fault else 'was interrupted' if len(failed) == 1 else 'were interrupted'}"


def _tone(failed: Sequence[RankFacts]) -> Tone:
    return "wait" if all(each.why == INTERRUPTED for each in failed) else "bad"


def _loop(loops: Sequence[RankFacts]) -> str:
    """How far the slowest is, and how far the fastest."""
    slow, fast = min(loops, key=lambda each: each.done), max(loops, key=lambda each: each.done)
    done = f"{slow.done}" if slow.done == fast.done else f"{slow.done}-{fast.done}"
    total = f" of {slow.total}" if slow.total > 0 else ""
    rate = f", {slow.rate:.3g} it/s" if slow.rate else ""
    return f"{slow.loop or 'step'} {done}{total}{rate}"


def _at(ranks: Sequence[RankFacts]) -> str:
    places = {each.place for each in ranks}
    return f", {ranks[0].place}" if len(places) == 1 and ranks[0].place else ""


def _place(ranks: Sequence[RankFacts]) -> str:
    places = {each.place for each in ranks}
    return f" at {ranks[0].place}" if len(places) == 1 and ranks[0].place else ""


def _where(ranks: Sequence[RankFacts]) -> str:
    place = _place(ranks).strip()
    return f"{place}; " if place else ""


def _do(ranks: Sequence[RankFacts]) -> str:
    states = {each.state for each in ranks}
    return f"{_is(ranks)} {ranks[0].state}" if len(states) == 1 else _s(ranks, "do") + " not"


def _all(ranks: Sequence[RankFacts], what: str) -> str:
    return f"all {len(ranks)} ranks {what}" if len(ranks) > 1 else f"rank {ranks[0].rank} {_single(what)}"


def _single(what: str) -> str:
    return f"is {what}" if what == "idle" else what


def _who(ranks: Sequence[RankFacts]) -> str:
    return named([each.rank for each in ranks])


def _is(ranks: Sequence[RankFacts]) -> str:
    return "are" if len(ranks) > 1 else "is"


def _its(ranks: Sequence[RankFacts]) -> str:
    return "their" if len(ranks) > 1 else "its"


def _s(ranks: Sequence[RankFacts], verb: str) -> str:
    return verb if len(ranks) > 1 else {"do": "does"}.get(verb, f"{verb}s")


def span_text(seconds: float) -> str:
    """Whole seconds, minutes or hours, as they are read at a glance.

    Example:
        >>> span_text(42.7), span_text(600), span_text(9000)
        ('42 s', '10 min', '2 h 30 min')
    """
    whole = int(max(seconds, 0))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"
