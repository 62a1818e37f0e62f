"""What an agent takes in from a rank, for which the test speaks: there is no process."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from meshbook.runtime.engines.agent import Agent
from meshbook.runtime.engines.base import Exit
from meshbook.runtime.engines.interpreter import Interpreter
from meshbook.runtime.engines.openings import output_pipe
from meshbook.runtime.engines.spec import RankFds, RankSpec
from meshbook.runtime.engines.starter import Births
from meshbook.runtime.session import specs_for
from meshbook.runtime.wire.lane import Frames, Lane, pack
from meshbook.runtime.wire.link import PairLink
from meshbook.runtime.wire.messages import AnyMessage, Note
from meshbook.runtime.wire.reactor import Reactor
from meshbook.runtime.wire.tape import Event
from meshbook.runtime.wire.zmq_link import ZmqLink

Until = Callable[..., Any]


class Stub:
    """Starts nothing: keeps what the process would be born with."""

    def __init__(self) -> None:
        self.python = Interpreter()
        self.births: Births | None = None
        self.ticket = 0
        self.lane: Lane | None = None

    def start(self, ticket: int, spec: RankSpec, fds: RankFds, births: Births) -> None:
        self.ticket, self.births = ticket, births
        if spec.data is None:
            self.lane = Lane(PairLink(socket.socket(fileno=os.dup(fds.data))))
        else:
            self.lane = Lane(ZmqLink(spec.data))

    def end(self) -> None:
        """End as a process does that could not be started."""
        births, self.births = self.births, None
        if births is not None:
            births.on_started(self.ticket, 0, "it was never there")

    def close(self) -> None: ...


class Touchy:
    """A listener that raises at every odd note, and at output."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.exits: list[Exit] = []

    def on_message(self, rank: int, message: AnyMessage, frames: Frames) -> None:
        assert isinstance(message, Note)
        self.heard.append(message.seq)
        if message.seq % 2:
            raise ValueError("odd")

    def on_output(self, rank: int, events: Sequence[Event]) -> None:
        raise ValueError("it prints")

    def on_exit(self, rank: int, exit: Exit) -> None:
        self.exits.append(exit)


@pytest.fixture
def reactor() -> Iterator[Reactor]:
    reactor = Reactor()
    yield reactor
    reactor.close()


@contextlib.contextmanager
def alone(reactor: Reactor, ears: Touchy, link: Any, stub: Stub | None = None) -> Iterator[Stub]:
    """An agent with one rank."""
    stub = stub or Stub()
    agent = Agent(reactor, lambda: stub, specs_for({"rank": 1}, backend="none", link=link), ears)
    assert stub.lane is not None
    yield stub
    reactor.schedule(stub.end)
    stub.lane.close()
    agent.close()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    return reported


@pytest.mark.parametrize("link", ["pair", "zmq"])
def test_a_message_that_its_listener_chokes_on_keeps_no_other_back(
    reactor: Reactor, link: str, reported: list[Any], until: Until
):
    ears = Touchy()
    with alone(reactor, ears, link) as stub:
        assert stub.lane is not None
        stub.lane.link.send([b"".join(pack(Note(seq, "topic"))) for seq in range(6)])  # together, as one datagram
        until(lambda: ears.heard == list(range(6)), 5)
    assert [report.exc_type for report in reported] == [ValueError] * 4, "also what it printed"


def test_nor_does_it_keep_the_last_words_and_the_end_back(reactor: Reactor, reported: list[Any], until: Until):
    ears = Touchy()
    with alone(reactor, ears, "pair") as stub:

        def speak_and_end() -> None:  # on the loop: the words are heard when it has ended
            assert stub.lane is not None
            for seq in (1, 2):
                stub.lane.send(Note(seq, "topic"))
            stub.end()

        reactor.schedule(speak_and_end)
        until(lambda: ears.exits, 5)
    assert ears.heard == [1, 2]
    assert [report.exc_type for report in reported] == [ValueError] * 2


def test_who_prints_on_at_the_end_of_a_rank_is_not_heard_out(reactor: Reactor, until: Until):
    """A child of it in a session of its own, which has its output."""
    nobody = 1 << 30

    class Parent(Stub):
        out = -1

        def start(self, ticket: int, spec: RankSpec, fds: RankFds, births: Births) -> None:
            super().start(ticket, spec, fds, births)
            self.out = os.dup(fds.out)

        def end(self) -> None:
            births, self.births = self.births, None
            if births is not None:
                os.write(self.out, b"still here\n")
                births.on_exit(nobody, 0)

    class Fed(Touchy):
        rounds = 0

        def on_output(self, rank: int, events: Sequence[Event]) -> None:
            self.rounds += 1
            if self.rounds < 1000:
                os.write(parent.out, b"still here\n")

    ears, parent = Fed(), Parent()
    with alone(reactor, ears, "pair", parent):
        assert parent.births is not None
        parent.births.on_started(parent.ticket, nobody, "")
        reactor.schedule(parent.end)
        until(lambda: ears.exits, 5)
        assert 0 < ears.rounds < 10
    os.close(parent.out)


def test_a_rank_that_cannot_be_started_is_not_waited_for(reactor: Reactor, reported: list[Any]):
    class Refusing(Stub):
        def start(self, ticket: int, spec: RankSpec, fds: RankFds, births: Births) -> None:
            raise ValueError("embedded null byte")

    ears = Touchy()
    with pytest.raises(ValueError, match="null byte"):
        Agent(reactor, Refusing, specs_for({"rank": 1}, backend="none"), ears)
    assert ears.exits == [Exit()]
    assert len(reported) == 1, "of why there is no process"


@pytest.mark.parametrize("link", ["pair", "zmq"])
def test_what_was_opened_for_a_rank_is_closed_where_there_is_no_room_for_all(
    reactor: Reactor, link: Any, monkeypatch: pytest.MonkeyPatch
):
    pipes = [output_pipe()]
    monkeypatch.setattr("meshbook.runtime.engines.agent.output_pipe", pipes.pop)  # there is no second one
    with pytest.raises(IndexError):
        Agent(reactor, Stub, specs_for({"rank": 1}, backend="none", link=link), Touchy())
