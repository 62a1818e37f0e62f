"""A crew over several hosts: to each goes one message, whatever the number of its ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..errors import SpawnError
from ..proc import Stat
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
    Packet,
    Relay,
    Replies,
    Reply,
    Said,
    decoder,
    encoder,
)
from ..wire.reactor import Reactor, contained
from .base import Exit, Listener
from .outside import DUMP_TIMEOUT, SPY_TIMEOUT, Glimpse
from .remote_host import News, Pending, RemoteHost
from .sayings import events_of
from .spec import RankSpec, encode_spec

_END_SECONDS = 10.0
"""How long a host may take to end its ranks."""


class HostedCrew:
    """The ranks of one mesh on other hosts. `find` gives the host of a name, started again where it was lost."""

    def __init__(
        self,
        reactor: Reactor,
        number: int,
        find: Callable[[str], RemoteHost],
        specs: Sequence[RankSpec],
        listener: Listener,
        how: str,
    ) -> None:
        self.pids: dict[int, int] = {}
        self.number = number
        self._reactor = reactor
        self._find = find
        self._listener = listener
        self._how = how
        self._hosts: dict[int, RemoteHost] = {}  # of each living rank
        self._used: set[RemoteHost] = set()
        self._due: set[int] = set()  # ranks whose end has not been told
        self._is_closed = False
        first = find(specs[0].host)
        port = first.ask(lambda seq: Hold(seq, number)).wait().port
        try:
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
            births = tuple(encode_spec(spec) for spec in own)
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

    # What goes out.

    def post(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        self._relay(ranks, message, payload, is_control=False)

    def post_control(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None = None) -> None:
        self._relay(ranks, message, payload, is_control=True)

    def _relay(self, ranks: Sequence[int], message: AnyMessage, payload: Encoded | None, *, is_control: bool) -> None:
        packet = encoder.encode(Packet(message))
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
        except SpawnError as error:
            exit = Exit(why=f"ended: {error}")
            missing = [spec.rank for spec in specs if spec.rank not in self._hosts]
            self._reactor.schedule(lambda: [self._end(rank, exit) for rank in missing])
            self.kill([spec.rank for spec in specs])
            raise

    def renumber(self, kept: Mapping[int, int]) -> None:
        """Only as everything stays: `check_room` has refused any other."""
        assert all(rank == number for rank, number in kept.items())

    def keep_spares(self, count: int, like: RankSpec) -> None:
        raise SpawnError("this engine keeps no spares: a host's zygote forks a rank in milliseconds")

    @property
    def num_spares(self) -> tuple[int, int]:
        return 0, 0

    def check_room(self, more: int) -> None:
        raise SpawnError("a mesh over several hosts cannot be resized: take it down, and bring it up with other sizes")

    def stats(self, ranks: Sequence[int]) -> Mapping[int, Stat]:
        found: dict[int, Stat] = {}
        for host, chosen in self._by_host(ranks):
            seen = host.stats.get(self.number, {})
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
            try:
                pending.wait(_END_SECONDS)
            except SpawnError:
                if not host.trouble:  # else its ranks have ended with it
                    raise
            host.branches.pop(self.number, None)

    # What comes in.

    def on_news(self, news: News, frames: Frames) -> None:
        if isinstance(news, Replies):
            self._on_replies(news, frames)
        elif isinstance(news, Heard):
            self._listener.on_message(news.rank, decoder.decode(news.packet).message, frames)
        elif isinstance(news, Said):
            self._listener.on_output(news.rank, events_of(news.events))
        else:
            self._end(news.rank, Exit(news.code, news.signum, news.why))

    def _on_replies(self, news: Replies, frames: Frames) -> None:
        for rank, body, seconds, talked in zip(news.ranks, news.bodies, news.seconds, news.talked, strict=True):
            reply = Reply(news.seq, True, seconds, talked)
            # One that raises must not take the answers of others with it.
            contained(lambda rank=rank, reply=reply, body=body: self._listener.on_message(rank, reply, [frames[body]]))

    def on_host_lost(self, host: RemoteHost) -> None:
        for rank in [rank for rank, its in list(self._hosts.items()) if its is host]:
            self._end(rank, Exit(why=f"ended: {host.trouble}"))

    def _end(self, rank: int, exit: Exit) -> None:
        self._hosts.pop(rank, None)
        if rank in self._due:
            self._due.remove(rank)
            self._listener.on_exit(rank, exit)
