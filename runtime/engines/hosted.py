"""A crew over several hosts: to each goes one message, whatever the number of its ranks."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..errors import SpawnError
from ..system.proc import Stat
from ..wire import codec
from ..wire.codec import Encoded
from ..wire.lane import Frames
from ..wire.messages import (
    AnyMessage,
    Disband,
    Enlist,
    Heard,
    Hold,
    Kill,
    Look,
    Muster,
    Packet,
    Relay,
    Renumber,
    Renumbered,
    Replies,
    Reply,
    Room,
    Said,
    decoder,
)
from ..wire.reactor import Reactor, contained
from ..wire.unicode import packed
from .base import Exit, Listener, not_started
from .outside import DUMP_TIMEOUT, SPY_TIMEOUT, Glimpse
from .remote_host import News, Pending, RemoteHost
from .seating import wanted_hosts
from .spec import RankSpec, encode_spec

_END_SECONDS = 10.0
"""How long a host may take to end its ranks."""


class HostedCrew:
    """The ranks of one mesh on other hosts.

    `find` gives the host of a name, started again where it was lost; `leave` is told of one that the mesh leaves, and
    says whether it ends.
    """

    def __init__(
        self,
        reactor: Reactor,
        number: int,
        find: Callable[[str], RemoteHost],
        leave: Callable[[RemoteHost], bool],
        specs: Sequence[RankSpec],
        listener: Listener,
        how: str,
    ) -> None:
        self.pids: dict[int, int] = {}
        self.number = number
        self._reactor = reactor
        self._find = find
        self._leave = leave
        self._listener = listener
        self._how = how
        self._hosts: dict[int, RemoteHost] = {}  # of each living rank
        self._used: set[RemoteHost] = set()
        self._due: set[int] = set()  # ranks whose end has not been told
        # By host, what renumberings mean that it has not confirmed yet: what is under way has the numbers of before.
        self._renumbered: dict[RemoteHost, deque[Mapping[int, int]]] = {}
        self._is_closed = False
        first = find(specs[0].host)
        self._used.add(first)  # it may hold ports for this crew from here on
        try:
            port, self._script_port = first.ask(lambda seq: Hold(seq, number)).wait().ports
            self._enlist([replace(spec, master_port=port) for spec in specs])
        except BaseException:
            self.close()
            raise

    def _enlist(self, specs: Sequence[RankSpec]) -> None:
        self._due.update(spec.rank for spec in specs)
        hosts = {name: self._find(name) for name in dict.fromkeys(spec.host for spec in specs)}
        waiting: list[tuple[Pending, list[RankSpec]]] = []
        for name, host in hosts.items():
            host.branches[self.number] = self
            self._used.add(host)
            own = [spec for spec in specs if spec.host == name]
            self._hosts.update({spec.rank: host for spec in own})
            births = tuple(encode_spec(replace(spec, script_port=self._script_port)) for spec in own)
            waiting.append((host.ask(lambda seq, births=births: Enlist(seq, self.number, births, self._how)), own))
        troubles = [trouble for pending, own in waiting if (trouble := self._why_not(pending, own))]
        if troubles:
            raise SpawnError(troubles[0])

    def _why_not(self, pending: Pending, specs: Sequence[RankSpec]) -> str:
        try:
            pending.wait()
        except SpawnError as error:
            for spec in specs:
                self._hosts.pop(spec.rank, None)
            return str(error)
        return ""

    def host_of(self, rank: int) -> RemoteHost | None:
        """The host that a living rank is on."""
        return self._hosts.get(rank)

    def post(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        self._relay(ranks, message, payload, is_control=False)

    def post_control(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        self._relay(ranks, message, payload, is_control=True)

    def _relay(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None, *, is_control: bool) -> None:
        packet = packed(Packet(message))
        for host, chosen in self._by_host(ranks):
            host.post(Relay(self.number, tuple(chosen), packet, is_control), payload)

    def _by_host(self, ranks: Iterable[int]) -> Iterable[tuple[RemoteHost, list[int]]]:
        chosen: dict[RemoteHost, list[int]] = {}
        for rank in ranks:
            if (host := self._hosts.get(rank)) is not None:
                chosen.setdefault(host, []).append(rank)
        return chosen.items()

    def respawn(self, specs: Sequence[RankSpec]) -> None:
        """Also on hosts that were lost, where they can be started again one by one."""
        # A port of an agent that is new: where groups meet comes later, as for those that take an old one's place.
        try:
            self._enlist([replace(spec, master_port=0) for spec in specs])
        except BaseException as error:
            exit = Exit(why=not_started(error))
            missing = [spec.rank for spec in specs if spec.rank not in self._hosts]
            self._reactor.schedule(lambda: [self._end(rank, exit) for rank in missing])
            self.kill([spec.rank for spec in specs])
            raise

    def renumber(self, kept: Mapping[int, int]) -> None:
        for host, own in self._by_host(list(self._hosts)):
            numbers = {rank: kept[rank] for rank in own if rank in kept}
            if any(rank != number for rank, number in numbers.items()):
                self._renumbered.setdefault(host, deque()).append(numbers)
                host.post(Renumber(self.number, numbers))
        self._hosts = {kept[rank]: host for rank, host in self._hosts.items() if rank in kept}
        self._due = {kept[rank] for rank in self._due if rank in kept}

    def settle(self, axes: Mapping[str, int]) -> list[str]:
        wanted, given_back = wanted_hosts(axes), list[str]()
        out = [host for host in self._used if wanted is not None and host.index >= wanted]
        for host in sorted(out, key=lambda host: host.index):
            self._end_on(host, host.ask(lambda seq: Disband(seq, self.number)))
            self._used.discard(host)
            if self._leave(host):
                given_back.append(host.name)
        return given_back

    def keep_spares(self, count: int, like: RankSpec) -> None:
        spec = encode_spec(like)
        asked = [(host, host.ask(lambda seq: Muster(seq, self.number, count, spec))) for host in self._living()]
        for host, pending in asked:
            try:
                pending.wait()
            except SpawnError:
                if not host.trouble:  # else the death of its ranks tells of it
                    raise

    @property
    def num_spares(self) -> tuple[int, int]:
        counts = [host.spares.get(self.number, (0, 0)) for host in self._living()]
        return sum(num for num, _ in counts), sum(num_warm for _, num_warm in counts)

    def _living(self) -> list[RemoteHost]:
        return [host for host in self._used if not host.trouble]

    def check_room(self, hosts: Sequence[str], again: Sequence[str] = ()) -> None:
        new, former = Counter(hosts), Counter(again)
        asked = [
            self._find(name).ask(lambda seq, rooms=(new[name], former[name]): Room(seq, *rooms))
            for name in new | former
        ]
        for pending in asked:
            pending.wait()

    def stats(self, ranks: Sequence[int]) -> Mapping[int, Stat]:
        found: dict[int, Stat] = {}
        for host, chosen in self._by_host(ranks):
            seen = host.stats.get(self.number, {}) if host not in self._renumbered else {}
            found.update({rank: seen[rank] for rank in chosen if rank in seen})
        return found

    def look(self, ranks: Sequence[int], native: bool = False) -> dict[int, Glimpse]:
        asked = [
            (host, chosen, host.ask(lambda seq, c=chosen: Look(seq, self.number, tuple(c), native)))
            for host, chosen in self._by_host(ranks)
        ]
        deadline = time.monotonic() + DUMP_TIMEOUT + SPY_TIMEOUT + 1
        seen: dict[int, Glimpse] = {}
        for host, chosen, pending in asked:
            try:
                pending.wait(max(0.0, deadline - time.monotonic()))
            except SpawnError as error:
                seen.update({rank: Glimpse(trouble=f"host {host.name} cannot look: {error}") for rank in chosen})
            else:
                seen.update(codec.decode(pending.frames[0], pending.frames[1:]))
        return seen

    def kill(self, ranks: Sequence[int]) -> None:
        for host, chosen in self._by_host(ranks):
            host.post(Kill(self.number, tuple(chosen)))

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        asked = [(host, host.ask(lambda seq: Disband(seq, self.number))) for host in self._used]
        for host, pending in asked:
            self._end_on(host, pending)

    def _end_on(self, host: RemoteHost, pending: Pending) -> None:
        try:
            pending.wait(_END_SECONDS)
        except SpawnError:
            if not host.trouble:  # else its ranks have ended with it
                raise
        host.branches.pop(self.number, None)

    def on_news(self, host: RemoteHost, news: News, frames: Frames) -> None:
        if isinstance(news, Renumbered):
            self._on_renumbered(host)
            return
        if isinstance(news, Replies):
            self._on_replies(host, news, frames)
            return
        rank = self._number_now(host, news.rank)
        if isinstance(news, Heard):
            self._listener.on_message(rank, decoder.decode(news.packet).message, frames)
        elif isinstance(news, Said):
            self._listener.on_output(rank, news.events)
        else:
            self._end(rank, Exit(news.code, news.signum, news.why))

    def _number_now(self, host: RemoteHost, rank: int) -> int:
        for numbers in self._renumbered.get(host, ()):
            rank = numbers[rank]  # who is left out has ended, and says nothing
        return rank

    def _on_renumbered(self, host: RemoteHost) -> None:
        host.stats.pop(self.number, None)  # by numbers of before
        self._renumbered[host].popleft()
        if not self._renumbered[host]:
            del self._renumbered[host]

    def _on_replies(self, host: RemoteHost, news: Replies, frames: Frames) -> None:
        ranks = [self._number_now(host, rank) for rank in news.ranks]
        for rank, body, seconds, talked in zip(ranks, news.bodies, news.seconds, news.talked, strict=True):
            reply = Reply(news.seq, True, seconds, talked)
            # One that raises must not take the answers of others with it.
            contained(lambda rank=rank, reply=reply, body=body: self._listener.on_message(rank, reply, [frames[body]]))

    def on_host_lost(self, host: RemoteHost) -> None:
        self._renumbered.pop(host, None)
        for rank in [rank for rank, its in list(self._hosts.items()) if its is host]:
            self._end(rank, Exit(why=f"ended: {host.trouble}"))

    def _end(self, rank: int, exit: Exit) -> None:
        self._hosts.pop(rank, None)
        if rank in self._due:
            self._due.remove(rank)
            self._listener.on_exit(rank, exit)
