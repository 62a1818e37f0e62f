"""A cell on its way: sent to ranks, watched while they work, folded into one result when they are done."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ..runtime.controller.roster import Roster
from ..runtime.future import Future, Promise
from ..runtime.ranks.failure import RemoteFailure, rebuild
from ..runtime.ranks.users import is_users
from ..runtime.supervision import end_told
from ..runtime.system.crash import Place, Sieve
from ..runtime.system.ours import is_ours
from ..runtime.wire import codec
from ..runtime.wire.lane import Frames
from ..runtime.wire.messages import Answer, Note, Reply
from ..runtime.wire.tape import Event, Text
from .failures.story import place_text
from .outcome import Display, Frame
from .output.display_order import DisplayOrder
from .ranks.comms import CommMessage
from .sources.source import lines_text
from .waiting.sightings import Sightings

Said = tuple[int, Text | Display | CommMessage]
"""A rank, and what it printed or showed, or what a widget of it says to its other half."""


@dataclass(slots=True)
class Progress:
    """What has come back from the ranks of a run so far."""

    outcomes: dict[int, bytes] = field(default_factory=dict[int, bytes])
    seconds: dict[int, float] = field(default_factory=dict[int, float])
    lost: dict[int, str] = field(default_factory=dict[int, str])
    failed: list[int] = field(default_factory=list[int])
    """Ranks whose cell raised, in the order in which they told."""
    missed: set[int] = field(default_factory=set[int])
    """Dead ranks that some of the run wait for in a collective."""
    stopped: dict[int, str] = field(default_factory=dict[int, str])
    """Ranks that the user stopped one by one, or that waited for these, each with what is told of it."""
    freed: set[int] = field(default_factory=set[int])
    """Those of them that only waited."""
    gone: set[int] = field(default_factory=set[int])
    """Those of `lost` whose process has ended, in a mesh that was not taken down."""
    unclear: set[int] = field(default_factory=set[int])
    """Those of `lost` that live and are done, but could not tell what the cell came to."""


class Run:
    """One run of a cell on some ranks: the caller of the endpoint and the audience of what the ranks print.

    The loop's thread hands things in; whoever shows the run takes them out with `take`, also after its end, for what
    comes late.
    """

    def __init__(
        self,
        roster: Roster,
        axes: Mapping[str, int],
        ranks: Sequence[int],
        cell: int,
        name: str,
        mended: str = "",
    ) -> None:
        self.roster = roster
        self.axes = axes
        """Those of the mesh as it was then: a resize gives it others."""
        self.ranks = tuple(ranks)
        self.cell = cell
        self.name = name
        self.mended = mended
        """What had to be done to the process groups before it could be sent."""
        self.call = 0
        self.started = time.monotonic()
        self.progress = Progress()
        self.news = threading.Event()
        """Set when there is something to take, a failure to react to, or nothing more to wait for."""
        self.on_late: Callable[[], object] | None = None
        """Called, on the thread that runs the loop, when a rank says something after whoever took the rest has left."""
        self.on_trouble: Callable[[], object] | None = None
        """Called there too, when a rank fails or dies: for a loop that cannot wait for `news`."""
        self.on_said: Callable[[], object] | None = None
        """Called there too, when a rank says something and all before it was taken."""
        self._promise: Promise[Run] = Promise(roster.reactor)
        self._said: deque[Said] = deque()
        self._orders: defaultdict[int, DisplayOrder] = defaultdict(DisplayOrder)  # most runs say nothing
        self._sieves: defaultdict[int, Sieve] = defaultdict(Sieve)
        self.is_left = False
        """Given up while ranks of it save something, the process groups were renewed for those behind it."""
        self.is_driven = False
        """Whether somebody still looks after it, also when it has finished: process groups may be out of step."""
        self.events: deque[int] = deque()
        """The calls that brought events to widgets of this run, the oldest first."""
        self.sightings = Sightings(self.started, len(self.ranks))
        self._owing = set(self.ranks)
        if not self._owing:  # all were dead: nobody is to answer
            self._promise.resolve(self)

    @property
    def finished(self) -> Future[Run]:
        """Done when every rank has answered or died."""
        return self._promise.future

    @property
    def owing(self) -> list[int]:
        """The ranks that have not answered yet."""
        return sorted(self._owing)

    def miss(self, ranks: set[int]) -> None:
        """It waits in a collective for these ranks, which are dead: that counts as a failure."""
        self.progress.missed = self.progress.missed or ranks

    def take(self) -> list[Said]:
        """What the ranks have said since the last time, each rank in its own order."""
        self.news.clear()
        said: list[Said] = []
        while self._said:
            said.append(self._said.popleft())
        return said

    @property
    def has_more(self) -> bool:
        """Is there something to take?"""
        return bool(self._said)

    def abandon(self, places: Mapping[int, str] = MappingProxyType({}), heard: Collection[int] = ()) -> None:
        """Wait no longer for the ranks that have not answered; where they are, as far as that is known.

        Those in `heard` were interrupted, and go on.
        """
        for rank in self.owing:
            halt = self.roster.states[rank].halt
            place = f"at {places[rank]}" if rank in places else self.sightings.last(rank)
            reaction = "was interrupted" if rank in heard else "did not react"
            words = f"{self.roster.name_of(rank)} {reaction} and is {halt or 'still busy'}"
            self.progress.lost[rank] = f"{words}, {place}" if place else words
        self._owing.clear()
        self._promise.resolve(self)

    def take_back(self, ranks: Mapping[int, str]) -> None:
        """Wait no longer for these, which have not begun and will not: the cell that each of them works on is told."""
        for rank, name in ranks.items():
            self.progress.lost[rank] = f"{self.roster.name_of(rank)} had not begun it, and still works on {name}"
            self._owing.discard(rank)
        if not self._owing:
            self._promise.resolve(self)

    # From here on: the thread that runs the loop.

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        assert isinstance(reply, Reply)
        if rank in self._sieves and (held := self._sieves.pop(rank).rest()):
            self._say(rank, self._orders[rank].on_event(Text(self.call, "stderr", held)))
        try:
            answer = codec.decode(frames[0], frames[1:])
        except codec.DecodeError as error:  # this process is out of descriptors or memory
            self.progress.lost[rank] = f"{self.roster.name_of(rank)} has run the cell, but what it came to {error}"
            self.progress.unclear.add(rank)
            self.rouse()
            self._settle(rank)
            return
        if isinstance(answer, RemoteFailure):
            # The kernel actor itself failed: no outcome of the cell, but a reason why there is none.
            self.progress.lost[rank] = str(rebuild(answer, self.roster.name_of(rank)))
            self.progress.unclear.add(rank)
        else:
            is_ok, outcome, has_no_groups = answer
            self.roster.groups.note_destroyed(rank, has_no_groups)
            self.progress.outcomes[rank] = outcome
            self.progress.seconds[rank] = reply.seconds
            if not is_ok:
                self.progress.failed.append(rank)
                self.rouse()
        self._settle(rank)

    def on_lost(self, rank: int, why: str) -> None:
        self._owing.discard(rank)  # first: another thread may look as soon as the loss is noted
        if rank not in self.progress.lost:
            if not self.roster.is_stopped:
                self.progress.gone.add(rank)
            end_told(why.partition("\n")[0])
            end = why.partition("\n")[0] + self._last_place(rank)
            self.progress.lost[rank] = "\n".join([end, *self.roster.last_words(rank, self.call)])
            self._say(rank, self._orders[rank].rest())
        self.rouse()
        self._settle(rank)

    def rouse(self) -> None:
        """Let whoever drives the run look at once."""
        self.roster.reactor.announce(self.news)
        if self.on_trouble is not None:
            self.on_trouble()

    def on_note(self, rank: int, note: Note, frames: Frames) -> None:
        try:
            said = codec.decode(frames[0], frames[1:])
        except codec.DecodeError as error:
            self._say(rank, self._orders[rank].on_event(Text(self.call, "stderr", f"a display {error}\n")))
            return
        if note.topic == "comm":
            self._say(rank, [said])  # not held for a place in the text: a widget is to be known before it is shown
        else:
            self._say(rank, self._orders[rank].on_display(said))

    def on_output(self, rank: int, event: Event) -> None:
        if isinstance(event, Text) and event.stream == "stderr":
            event = Text(event.run, "stderr", self._sieves[rank].feed(event.text))
            if not event.text:
                return
        self._say(rank, self._orders[rank].on_event(event))

    def _last_place(self, rank: int) -> str:
        """The line of the cell that a rank ended at: as it told itself, or else where it was last seen."""
        crash = self._sieves[rank].crash() if rank in self._sieves else None
        if crash is not None:
            stack = crash.stack or crash.others
            if lines := lines_text((place.file, place.line) for place in reversed(stack)):
                return f", at {lines}{_within(crash.stack)}"
        seen = self.sightings.last(rank)
        return f", {seen}" if seen else ""

    def _say(self, rank: int, items: Sequence[Text | Display | CommMessage]) -> None:
        if items:
            is_first = not self._said
            self._said.extend((rank, item) for item in items)
            self.news.set()
            if is_first:
                self.roster.reactor.wake()
                if self.on_said is not None:
                    self.on_said()
            if self.on_late is not None:
                self.on_late()

    def _settle(self, rank: int) -> None:
        self._owing.discard(rank)
        if not self._owing:
            self._promise.resolve(self)
            self.roster.reactor.announce(self.news)


def _within(stack: Sequence[Place]) -> str:
    """Which line of a library that was, if it was one; the innermost frame comes first."""
    inner = next((each for each in stack if not (is_ours(each.file) or each.file.startswith("<frozen "))), None)
    if inner is None or is_users(inner.file):
        return ""
    return f" ({place_text(Frame(inner.file, inner.line, inner.name, '', False))})"
