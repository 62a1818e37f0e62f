"""What an agent tells of its ranks, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from meshbook.runtime.engines.base import Exit
from meshbook.runtime.engines.bundles import HOLD
from meshbook.runtime.engines.ears import Ears
from meshbook.runtime.wire.codec import Encoded
from meshbook.runtime.wire.messages import AnyMessage, Call, Gone, Heard, Metered, Replies, Reply, Said
from meshbook.runtime.wire.reactor import Reactor
from meshbook.runtime.wire.tape import Text

BODY = [bytearray(b"well")]


class Controller:
    """Keeps what it is told, with the time."""

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.ears = Ears(5, reactor, self.hear)
        self.told: list[AnyMessage] = []
        self.came = threading.Event()

    def hear(self, message: AnyMessage, payload: Encoded | None) -> None:
        self.told.append(message)
        self.reactor.announce(self.came)

    def on_loop(self, act: Callable[[Ears], Any]) -> None:
        """Let something be heard, all in one turn of the loop."""
        done = threading.Event()
        self.reactor.schedule(lambda: (act(self.ears), self.reactor.announce(done)))
        assert self.reactor.wait(done, 10)

    @property
    def kinds(self) -> list[type[AnyMessage]]:
        return [type(message) for message in self.told]


@pytest.fixture
def controller(reactor: Reactor) -> Controller:
    controller = Controller(reactor)
    controller.ears.expect(Call(1, 1, "endpoint"), range(4))
    return controller


def answer(ears: Ears, *ranks: int) -> None:
    for rank in ranks:
        ears.on_message(rank, Reply(1), list(BODY))


def test_four_answers_are_one_message(controller: Controller):
    controller.on_loop(lambda ears: answer(ears, 0, 1, 2, 3))
    (told,) = controller.told
    assert isinstance(told, Replies)
    assert (told.crew, told.seq, told.ranks, told.bodies) == (5, 1, (0, 1, 2, 3), (0, 0, 0, 0))


def test_who_has_answered_is_told_though_another_has_not(controller: Controller):
    started = time.monotonic()
    controller.on_loop(lambda ears: answer(ears, 0, 1))
    assert controller.reactor.wait(controller.came, 10)
    assert time.monotonic() - started >= HOLD
    controller.came.clear()
    controller.on_loop(lambda ears: answer(ears, 3))
    assert controller.reactor.wait(controller.came, 10)
    assert [told.ranks for told in controller.told if isinstance(told, Replies)] == [(0, 1), (3,)]


def test_errors_text_and_ends_do_not_wait(controller: Controller):
    def hear(ears: Ears) -> None:
        answer(ears, 0)
        ears.on_output(1, [Text(1, "stdout", "hello")])
        ears.on_message(1, Reply(1, ok=False), list(BODY))
        ears.on_exit(2, Exit(code=1))

    controller.on_loop(hear)
    assert controller.kinds == [Said, Heard, Replies, Gone]


def test_what_a_rank_says_comes_after_its_answer(controller: Controller):
    def hear(ears: Ears) -> None:
        answer(ears, 0, 1)
        ears.on_message(2, Metered({}), [])
        ears.on_message(1, Metered({}), [])

    controller.on_loop(hear)
    assert controller.kinds == [Heard, Replies, Heard]


def test_a_rank_that_comes_back_is_waited_for_again(controller: Controller):
    def hear(ears: Ears) -> None:
        ears.on_exit(3, Exit(code=1))
        ears.welcome([3])
        ears.expect(Call(2, 1, "endpoint"), [2, 3])
        ears.on_message(2, Reply(2), list(BODY))
        ears.on_message(3, Reply(2), list(BODY))

    controller.on_loop(hear)
    assert controller.kinds == [Gone, Replies]
