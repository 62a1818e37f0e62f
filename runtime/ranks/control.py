"""The second thread of a rank: it answers while the main thread runs a cell, waits in a collective or hangs."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from ..actor import endpoints_of
from ..errors import LinkClosed
from ..wire import codec
from ..wire.lane import Frames, Lane
from ..wire.messages import Answer, AnyMessage, Ask, Interrupt, Sample, Strike
from .failure import describe
from .intake import Intake
from .interrupts import Interrupts
from .mailbox import Mailbox


class Control:
    """Serves the control lane of a rank: what comes in by `intake`, and is no call that an actor has taken."""

    def __init__(
        self,
        lane: Lane,
        intake: Intake,
        mailbox: Mailbox,
        interrupts: Interrupts,
        strike: Callable[[], object],
        on_other: Callable[[AnyMessage, Frames, list[int]], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._lane = lane
        self._intake = intake
        self._mailbox = mailbox
        self._interrupts = interrupts
        self._strike = strike
        self._on_other = on_other
        self._on_gone = on_gone

    def run(self) -> None:
        """Answer until the controller is gone, or nothing can be read any more; then call `on_gone`."""
        try:
            while True:
                message, frames, fds = self._intake.next()
                if isinstance(message, Interrupt):
                    running = self._interrupts.request(message.call)
                    self._lane.send(Answer(message.seq), codec.encode(running))
                elif isinstance(message, Strike):
                    self._answer(message.seq, self._strike)
                elif isinstance(message, Sample):
                    self._answer(message.seq, self._mailbox.sample)
                elif isinstance(message, Ask):
                    self._answer(message.seq, lambda message=message, frames=frames: self._ask(message, frames))
                else:
                    self._on_other(message, frames, fds)
        except LinkClosed:
            self._on_gone()
        except BaseException:  # noqa: BLE001 - the rim: a rank that hears nothing any more would be waited for for ever
            traceback.print_exc()
            self._on_gone()

    def _answer(self, seq: int, work: Callable[[], object]) -> None:
        try:
            payload = codec.encode(work())
            ok = True
        except Exception as error:  # noqa: BLE001 - the rim: it travels to the one who asked
            payload = codec.encode(describe(error))
            ok = False
        self._lane.send_anyway(Answer(seq, ok), payload)

    def _ask(self, message: Ask, frames: Frames) -> object:
        actor = self._mailbox.actors.get(message.actor)
        if actor is None:
            raise LookupError(f"there is no actor {message.actor} on this rank")
        found = endpoints_of(type(actor)).get(message.endpoint)
        if found is None or not found.on_control:
            raise AttributeError(f"{type(actor).__name__} has no control endpoint {message.endpoint!r}")
        args, kwargs = codec.decode(frames[0], frames[1:])
        return found.method(actor, *args, **kwargs)
