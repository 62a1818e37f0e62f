"""A rank whose collective lost its peer fails before the peer's end is known: the call says whose end it was."""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Actor, ActorError, SupervisionError, current_rank, endpoint
from meshbook.runtime.cut_off import Doubts
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.messages import Note, Reply
from meshbook.runtime.wire.post import Post

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage

SAID = "[/__w/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:46998"


class Connected(Actor):
    """Rank 0 fails as collectives do."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def lose_each_other(self) -> None:
        if current_rank().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        select.select([self.peer], [], [])
        os.close(self.peer)
        raise RuntimeError(SAID)

    @endpoint
    def watch(self, pid: int) -> None:
        self.peer = os.pidfd_open(pid)

    @endpoint
    def outlive(self, is_collective: bool) -> None:
        """Rank 1 is done at once, the other when rank 1 has died."""
        if current_rank().rank == 0:
            select.select([self.peer], [], [])
            os.close(self.peer)
            raise RuntimeError(SAID) if is_collective else ConnectionResetError("Connection reset by peer")


class Heard:
    """A caller, and the clock that it hears by."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.timers: list[Any] = []
        self.is_one_ending = False

    def on_reply(self, rank: int, reply: Any, frames: Any) -> None:
        self.said.append(f"{rank} {codec.loads(frames[0])}")

    def on_note(self, rank: int, note: Note, frames: Any) -> None: ...

    def on_lost(self, rank: int, why: str) -> None:
        self.said.append(f"{rank} {why}")

    def later(self, seconds: float, call: Any) -> None:
        self.timers.append(call)


class TestDoubts:
    def test_a_death_is_told_before_what_it_did_to_others(self) -> None:
        heard, post = Heard(), Post()
        doubts: Any = Doubts(post, heard, lambda: heard.is_one_ending)  # type: ignore[arg-type]
        seq = post.open(range(4), heard)
        doubts.deliver(0, Reply(seq, False), [codec.dumps(SAID)])
        doubts.deliver(2, Reply(seq, False), [codec.dumps("ValueError")])
        doubts.deliver(3, Reply(seq, True), [codec.dumps(SAID)])
        assert heard.said == ["2 ValueError", f"3 {SAID}"]
        post.lose(1, "killed")
        doubts.release()
        assert heard.said[2:] == ["1 killed", f"0 {SAID}"]
        heard.timers[0]()
        assert len(heard.said) == 4

    def test_where_nobody_dies_it_is_told_soon(self) -> None:
        heard, post = Heard(), Post()
        doubts: Any = Doubts(post, heard, lambda: heard.is_one_ending)  # type: ignore[arg-type]
        for rank in (0, 1):
            doubts.deliver(rank, Reply(post.open([rank], heard), False), [codec.dumps(SAID)])
        assert len(heard.timers) == 1
        heard.timers[0]()
        doubts.deliver(2, Reply(post.open([2], heard), False), [codec.dumps(SAID)])
        heard.timers[0]()  # that of those before
        assert len(heard.said) == 2
        heard.timers[1]()
        assert heard.said == [f"{rank} {SAID}" for rank in range(3)]

    def test_where_a_process_is_seen_to_end_it_is_waited_for(self) -> None:
        heard, post = Heard(), Post()
        heard.is_one_ending = True
        doubts: Any = Doubts(post, heard, lambda: heard.is_one_ending)  # type: ignore[arg-type]
        doubts.deliver(0, Reply(post.open([0], heard), False), [codec.dumps(SAID)])
        heard.timers[0]()
        assert not heard.said
        heard.is_one_ending = False
        heard.timers[1]()
        assert heard.said == [f"0 {SAID}"]

    def test_but_not_for_ever(self) -> None:
        heard, post = Heard(), Post()
        doubts: Any = Doubts(post, heard, lambda: True)  # type: ignore[arg-type]
        doubts.deliver(0, Reply(post.open([0], heard), False), [codec.dumps(SAID)])
        for look in heard.timers:
            look()
        assert heard.said == [f"0 {SAID}"] and len(heard.timers) < 30


def test_a_call_to_a_rank_that_dies_says_so_and_not_what_that_did_to_the_others(process_stage: Stage) -> None:
    actors = process_stage.spawn(Connected, on=process_stage.procs({"r": 3}))
    actors.watch.call(actors.slice(r=1).pid.call_one().get(20)).get(20)
    with pytest.raises(SupervisionError, match=r"rank 1 .* killed by SIGKILL") as raised:
        actors.lose_each_other.call().get(20)
    assert not isinstance(raised.value, ActorError)
    process_stage.faults.get(timeout=10)


@pytest.mark.parametrize("is_collective", [True, False])
def test_whose_end_it_was_that_had_answered(process_stage: Stage, is_collective: bool) -> None:
    procs = process_stage.procs({"r": 2})
    actors = process_stage.spawn(Connected, on=procs)
    pid = actors.slice(r=1).pid.call_one().get(20)
    actors.slice(r=0).watch.call_one(pid).get(20)
    calling = actors.outlive.call(is_collective)
    actors.slice(r=1).pid.call_one().get(20)  # it has answered the other, too
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ActorError, match=r"Actor call connected.outlive failed on rank 0 \(r=0, pid \d+\)") as raised:
        calling.get(20)
    told = f", cut off: rank 1 (r=1, pid {pid}) killed by SIGKILL (signal 9) on host"
    assert (told in str(raised.value).splitlines()[0]) == is_collective
    process_stage.faults.get(timeout=10)
