"""Folding: what equal ranks print is told once, live and within a budget. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from .lines import BAR, CUT, MARK, Stream, byte_size, fitting
from .spread import FLOOD, LEAST_RANKS, MOST_ALONE, Gatherer, in_rounds
from .weave import FoldedLine, Voice, merge

_LEAST_TAIL: Final = 200
"""Fewer characters than these of a rank's last lines tell nothing: then fewer ranks are shown."""
_PATIENCE: Final = 0.3
"""Seconds that an unfinished line may have: most end soon."""


class FoldedGap(NamedTuple):
    """What is left out of the notebook; the ranks' logs have it all."""

    lines: int
    """Counted a rank: a line that eight ranks said is eight lines. 0: the rest of a line of which the end is told."""
    bytes: int
    num_ranks: int
    """Whose lines these are."""


class LineFolder:
    """Merges what ranks print, live: a line that several ranks say is told once, with all their ranks.

    `feed` it text as it comes and `poll` it often; at the end of the run `finish` it. Each rank's own order
    is kept. A line waits `window` seconds at most for the ranks that have not said it yet, and not at all
    once all have. At most `budget` bytes are told: two thirds of them as they come, the last third at the end, after a
    gap. A line counts `margin` bytes more than its text, for what is written around it. Lines that differ only in their
    stamps are the same; that of the lowest rank is told. Where it `spreads`, many that differ in numbers alone are one.

    Example:
        >>> folder = LineFolder([0, 1])
        >>> folder.feed(0, "stdout", "step 0\\n", now=0.0)
        >>> folder.feed(1, "stdout", "step 0\\nloss is nan\\n", now=0.01)
        >>> [(line.ranks, line.text) for line in folder.poll(now=0.02)]
        [((0, 1), 'step 0')]
        >>> [(line.ranks, line.text) for line in folder.finish(now=0.03)]
        [((1,), 'loss is nan')]
    """

    def __init__(
        self,
        ranks: Sequence[int],
        window: float = 0.05,
        budget: int = 48_000,
        margin: int = 0,
        *,
        spreads: bool = False,
    ) -> None:
        self._gatherer = Gatherer() if spreads else None
        self._voices = {rank: Voice(rank) for rank in sorted(ranks)}
        self._window = window
        self._margin = margin
        self._room = budget - budget // 3
        self._tail_budget = max(budget // 3, 1)

    @property
    def is_full(self) -> bool:
        """Has more come than the budget has room for? What its rank says from then on is told at the end."""
        return any(voice.tail is not None for voice in self._voices.values())

    @property
    def is_waiting(self) -> bool:
        """Is there a line that was not told yet, be it unfinished?"""
        return any(voice.lines or voice.cutter.has_rest for voice in self._voices.values() if voice.tail is None)

    def feed(self, rank: int, stream: Stream, text: str, now: float) -> None:
        """Take text that a rank wrote: any piece of any number of lines."""
        voice = self._voices[rank]
        if voice.tail:
            return voice.tail.add(stream, text)
        voice.hear(stream, text, now)
        if voice.size > self._room:
            voice.spill(self._room, self._tail_budget)

    def poll(self, now: float, *, stops_at_bars: bool = False) -> list[FoldedLine]:
        """The lines that are due; of each rank those alone that come before a bar of it begins, if there are some."""
        voices = self._voices.values()
        for voice in voices:
            voice.lose_patience(now - self._window)
        held = [(voice, voice.hold_back()) for voice in voices if stops_at_bars and len(voice.lines) > 1]
        lines = self._merged(voices, now - self._window)
        for voice, rest in held:
            if rest is not None:
                voice.put_back(rest)
        return self._admit(lines)

    def overtaken(self) -> dict[tuple[int, Stream], str]:
        """Bars that began before what their ranks have said since and `poll` has not told yet: they stand above it."""
        waiting = (voice for voice in self._voices.values() if voice.lines and voice.tail is None)
        return {key: text for voice in waiting for key, text in voice.overtaken().items()}

    def unfinished(self, now: float) -> dict[tuple[int, Stream], str]:
        """The last state of each rank's unfinished line: the one that it wrote to last, if all before it was told.

        Of those that are not rewritten in place (a progress bar is), only what is older than 0.3 seconds.
        Blank is a bar that was erased.
        """
        states: dict[tuple[int, Stream], str] = {}
        for voice in self._voices.values():
            stream = voice.cutter.last
            line = voice.cutter.open[stream]
            text = line.text()
            is_due = line.is_rewritten or (text and line.since <= now - _PATIENCE)
            if is_due and not voice.lines and voice.cutter.held is None and voice.tail is None:
                states[voice.rank, stream] = text
        return states

    def add(self, ranks: Iterable[int]) -> None:
        """Fold what these ranks say too."""
        for rank in ranks:
            self._voices.setdefault(rank, Voice(rank))

    def flush(self, now: float) -> list[FoldedLine]:
        """All that waits, also unfinished lines; more may come."""
        for voice in self._voices.values():
            if voice.tail is None:
                voice.say(voice.cutter.rest(), now)
        return self._admit(self._merged(self._voices.values(), now))

    def finish(self, now: float) -> list[FoldedLine | FoldedGap]:
        """All that is left: what waited, and where it was too much a `FoldedGap` and the last lines."""
        return [*self.flush(now), *self._ending(now)]

    def _admit(self, lines: list[FoldedLine]) -> list[FoldedLine]:
        """Charge lines to the budget; from the first that does not fit on, all goes over it."""
        count = 0
        for line in lines:
            cost = byte_size(line.text) + 1 + self._margin
            if line.is_spread:
                cost += len(line.ranks) // 2  # it takes work for each, which the budget bounds too
            if cost > self._room:
                break
            self._room -= cost
            count += 1
        if count == len(lines):
            return lines
        self._room = 0
        for voice in self._voices.values():
            voice.spill(0, self._tail_budget)
        for line in reversed(lines[count:]):
            for rank in line.ranks:
                tail = self._voices[rank].tail
                assert tail is not None
                tail.prepend((BAR if line.is_bar else MARK[line.stream]) + line.text)
        return lines[:count]

    def _ending(self, now: float) -> list[FoldedLine | FoldedGap]:
        tails = {voice.rank: voice.tail for voice in self._voices.values() if voice.tail}
        lines = {rank: tail.lines() for rank, tail in tails.items()}
        shown = [Voice(rank) for rank in tails]
        for voice, last in zip(shown, _last_lines(lines, self._tail_budget, self._margin), strict=True):
            voice.say(last, now)
        num_lines = sum(tail.num_lines for tail in tails.values()) - sum(len(voice.lines) for voice in shown)
        num_bytes = sum(tail.num_bytes for tail in tails.values()) - sum(voice.size for voice in shown)
        is_cut = any(line[1:].startswith(CUT) for voice in shown for line in voice.lines)
        gap = [FoldedGap(num_lines, max(num_bytes, 0), len(tails))] if num_lines or (is_cut and num_bytes > 0) else []
        return [*gap, *self._merged(shown, now)]

    def _merged(self, voices: Collection[Voice], due: float) -> list[FoldedLine]:
        lines = merge(list(voices), due)
        most = FLOOD if len(self._voices) <= MOST_ALONE else len(lines)
        if self._gatherer is None or len(self._voices) < LEAST_RANKS or len(lines) > most:
            return lines
        if any(map(self._gatherer.knows, lines)):
            lines += in_rounds(lines, {voice.rank: voice.take(self._gatherer.knows) for voice in voices})
        return self._gatherer.gather(lines)


def _last_lines(lines: Mapping[int, list[str]], budget: int, margin: int) -> list[list[str]]:
    """The last lines of each rank: an equal share for each different text, which ranks that say it share."""
    groups: dict[tuple[str, ...], int] = {}
    for said in filter(None, lines.values()):
        groups.setdefault(tuple(said), len(groups))
    share = max(budget // max(len(groups), 1), min(_LEAST_TAIL, budget))
    num_shown = budget // max(share, 1)
    return [_last(said, share, margin) if said and groups[tuple(said)] < num_shown else [] for said in lines.values()]


def _last(lines: list[str], share: int, margin: int) -> list[str]:
    count = fitting(lines[::-1], share, margin)
    if count or share < 4:
        return lines[len(lines) - count :]
    mark, text = lines[-1][0], lines[-1][1:].removeprefix(CUT)  # of one that was cut before
    return [f"{mark}{CUT}{text[-(share - 3) :]}"]
