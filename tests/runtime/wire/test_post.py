"""The bookkeeping of calls: never an answer twice, never a caller forgotten."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from meshbook.runtime.wire.messages import Answer, Note, Reply
from meshbook.runtime.wire.post import Post

RANKS = range(4)

ranks = st.sampled_from(RANKS)


class Caller:
    """Keeps what each rank has said to it."""

    def __init__(self) -> None:
        self.heard: dict[int, list[str]] = {rank: [] for rank in RANKS}
        self.notes: list[int] = []

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Any) -> None:
        self.heard[rank].append("reply")

    def on_note(self, rank: int, note: Note, frames: Any) -> None:
        self.notes.append(rank)

    def on_lost(self, rank: int, why: str) -> None:
        self.heard[rank].append(why)


class Calls(RuleBasedStateMachine):
    """Calls open, ranks answer or die in any order, and say things twice."""

    opened = Bundle("opened")

    def __init__(self) -> None:
        super().__init__()
        self.post = Post()
        self.calls: dict[int, tuple[Caller, dict[int, str]]] = {}
        """By number: the caller, and what each of its ranks is to have said to it ("" nothing yet)."""

    @rule(target=opened, to=st.sets(ranks))
    def open(self, to: set[int]) -> int:
        caller = Caller()
        seq = self.post.open(to, caller)
        assert seq not in self.calls
        self.calls[seq] = (caller, dict.fromkeys(to, ""))
        return seq

    @rule(seq=opened, rank=ranks, control=st.booleans())
    def reply(self, seq: int, rank: int, control: bool) -> None:
        self.post.deliver(rank, Answer(seq) if control else Reply(seq), [])
        if self.calls[seq][1].get(rank) == "":
            self.calls[seq][1][rank] = "reply"

    @rule(seq=opened, rank=ranks)
    def note(self, seq: int, rank: int) -> None:
        caller, said = self.calls[seq]
        before = len(caller.notes)
        self.post.deliver_note(rank, Note(seq, "topic"), [])
        assert len(caller.notes) - before == ("" in said.values())

    @rule(rank=ranks, why=st.sampled_from(["died", "was stopped"]))
    def lose(self, rank: int, why: str) -> None:
        self.post.lose(rank, why)
        for _, said in self.calls.values():
            if said.get(rank) == "":
                said[rank] = why

    @rule(seq=opened, rank=ranks)
    def lose_one(self, seq: int, rank: int) -> None:
        self.post.lose_one(seq, rank, "found nobody")
        if self.calls[seq][1].get(rank) == "":
            self.calls[seq][1][rank] = "found nobody"

    @rule(rank=ranks)
    def reply_to_nothing(self, rank: int) -> None:
        self.post.deliver(rank, Reply(0), [])

    @invariant()
    def each_caller_heard_each_rank_once(self) -> None:
        for caller, said in self.calls.values():
            assert caller.heard == {rank: [said[rank]] if said.get(rank) else [] for rank in RANKS}

    @invariant()
    def what_is_owed_is_what_was_not_said(self) -> None:
        for seq, (_, said) in self.calls.items():
            assert self.post.owed(seq) == {rank for rank, what in said.items() if not what}

    @invariant()
    def settled_calls_are_forgotten(self) -> None:
        waiting = sum("" in said.values() for _, said in self.calls.values())
        assert len(self.post._open) == waiting


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class Touchy(Caller):
    def on_lost(self, rank: int, why: str) -> None:
        raise RuntimeError("OncePortRef already used")


def test_a_caller_that_raises_keeps_the_loss_from_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    post, others = Post(), [Caller(), Caller()]
    for caller in (others[0], Touchy(), others[1]):
        post.open([1], caller)
    post.lose(1, "killed")
    assert [caller.heard[1] for caller in others] == [["killed"]] * 2
    assert len(reported) == 1
