"""Turns: one message for an actor, from what it is to run to what it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from ..actor import GIVEN_PORT
from ..groups.models import end_broken_steps
from ..shape import Point
from ..wire import codec
from ..wire.codec import Encoded
from ..wire.lane import Frames
from ..wire.messages import AnyMessage, Call, Reply, Spawn, StopActor
from .failure import RemoteFailure, describe

if TYPE_CHECKING:
    from .resident import Resident

INTERRUPTED = RemoteFailure("KeyboardInterrupt", "interrupted before it began", "")
"""What a call is told that waited behind one that was interrupted."""

AnswerTo = Callable[[AnyMessage, Encoded | None], None]
"""Sends an answer back to where the message came from."""


class Job(msgspec.Struct, frozen=True):
    """A message for an actor, and how to answer it."""

    call: Call
    frames: Frames
    point: Point
    answer: AnswerTo


class Turn(msgspec.Struct, frozen=True):
    """A message that is being worked on."""

    job: Job
    said: int
    """How much this process had said before (`Node.begin_run`)."""
    started: float
    """By `time.perf_counter`."""


CONSTRUCTOR, CLEANUP = "__init__", "__cleanup__"

Work = Job | str
"""What of the user's a driver runs: the endpoint for a message, `CONSTRUCTOR` or `CLEANUP`."""


class Found(msgspec.Struct, frozen=True):
    """What a call runs: an endpoint, or for `as_endpoint` a plain method."""

    method: Callable[..., Any]
    wants_port: bool
    """Whether it gets a port first and answers through it: one that is made for the call ..."""
    has_given_port: bool
    """... or the one that came as the first argument."""
    is_kept: bool
    """Whether what it gives stays here, with what came as the first argument."""
    is_declared: bool
    """Whether it is an endpoint."""


def run_of(message: Call | Spawn | StopActor) -> int:
    """The run that what is printed meanwhile belongs to."""
    return message.seq if message.run < 0 else message.run


def prepare(resident: Resident, job: Job) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]:
    """The method to run with its arguments, and the port that it answers through, if it does so."""
    args, kwargs = codec.decode(job.frames[0], job.frames[1:])
    job.frames.clear()  # the arguments alone decide how long shared memory is held
    found = resident.find(job.call.endpoint)
    if found.wants_port:
        port = resident.open_port(job)
        return found.method, (port, *args), kwargs, port
    if found.has_given_port:
        args = (args[0].ranked(job.point.rank), *args[1:])
    elif found.is_kept:
        return args[0].around(found.method), args[1:], kwargs, None
    return found.method, args, kwargs, None


def conclude(
    resident: Resident,
    turn: Turn,
    result: object,
    error: BaseException | None,
    port: Any,
    *,
    is_struck: bool = False,
    is_concurrent: bool = False,
) -> None:
    """Answer, and decide what an error means: with somebody waiting it is theirs, else it is the actor's end.

    It is nobody's end where it was interrupted from outside (`is_struck`), nor of a concurrent endpoint, beside which
    others run.
    """
    job = turn.job
    has_given_port = job.call.endpoint.endswith(GIVEN_PORT)
    if error is None:
        if job.call.wants_reply and port is None:
            resident.reply(turn, None if has_given_port else result, None)
        return
    end_broken_steps()
    resident.leave_behind(error)
    is_asked = is_struck and isinstance(error, KeyboardInterrupt)
    is_ordinary = is_asked or isinstance(error, Exception | asyncio.CancelledError)
    if port is None and not has_given_port:
        if job.call.wants_reply and (is_ordinary or is_concurrent):
            resident.reply(turn, None, error)
            return
        if is_ordinary and is_concurrent:
            _report(resident, job, error)
            return
    failure = describe(error) if is_asked else fatal(describe(error), resident)
    if port is not None:
        port.refuse(failure)
    elif job.call.wants_reply:
        job.answer(Reply(job.call.seq, False, perf_counter() - turn.started, True), codec.encode(failure))
    if not is_asked:
        resident.die(failure)


def _report(resident: Resident, job: Job, error: BaseException) -> None:
    """As asyncio does with the error of a task that nobody has looked at."""
    story = {"message": f"Nobody waits for {resident.title_of(job)}, which has failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(story)


def fatal(failure: RemoteFailure, resident: Resident) -> RemoteFailure:
    """The same failure, as the end of its actor."""
    return msgspec.structs.replace(failure, is_fatal=True, actor=repr(resident.instance))


def is_interruptible(work: Work) -> bool:
    """Not where the answer goes to a port of the caller's, who would not hear of it."""
    return isinstance(work, str) or not work.call.endpoint.endswith(GIVEN_PORT)
