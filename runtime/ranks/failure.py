"""An exception on its way from a rank to the caller: always as text, and as itself where that survives the journey."""

from __future__ import annotations

import traceback
from types import TracebackType

import msgspec

from ..cells import readable
from ..errors import ActorError, actor_error
from ..system.ours import is_ours
from ..wire import codec
from .quoted import Quoted, is_remote, quoted_in, said_by

_BEGIN = "Traceback (most recent call last):\n"

_SAYS_ALL = (NameError, ValueError, codec.DecodeError)
"""What we raise where a user asked for what cannot be: its message says all. What else is raised in our code alone is
our mistake, and told with its place."""


class RemoteFailure(msgspec.Struct, frozen=True, array_like=True):
    """What a rank tells of an exception: enough for a good message even if its class cannot be rebuilt."""

    type_name: str
    message: str
    traceback: str
    pickled: bytes | None = None
    is_fatal: bool = False
    """Whether the actor is dead of it: the caller gets a `SupervisionError` then."""
    actor: str = ""
    """The actor that is dead, where it is."""
    is_given: bool = False
    """Whether the actor gave it to `Port.exception`: the caller gets it as it is then, not as an `ActorError`."""


def describe(error: BaseException) -> RemoteFailure:
    """Put an exception into a form that always travels."""
    try:
        # Of a call that an actor has made one line: its traceback is part of that of this error.
        message = error.message if isinstance(error, ActorError) else message_of(error)
        text = "".join(_format(error)).rstrip("\n")
        return RemoteFailure(type(error).__name__, message, text, pickled_or_none(error))
    except BaseException:  # noqa: BLE001 - what a user's class makes of its attributes may raise anything
        text = "".join(traceback.format_tb(plain_traceback(error))).rstrip("\n")
        return RemoteFailure(plain_name(error), safe_str(error), text)


def rebuild(failure: RemoteFailure, what: str, where: str = "") -> Exception:
    """The error to raise at the caller; `what` names the endpoint, `where` the rank."""
    original: BaseException | None = None
    if failure.pickled is not None:
        try:
            loaded = codec.loads(failure.pickled)
        except codec.DecodeError:
            loaded = None  # its class does not exist here: the text must do
        original = loaded if isinstance(loaded, BaseException) else None
    if failure.is_given and isinstance(original, Exception):
        return original
    headline = f"{what} failed{where and f' on {where}'}: {failure.type_name}: {failure.message}".rstrip(": ")
    return actor_error(headline, original, readable(failure.traceback))


def pickled_or_none(error: BaseException) -> bytes | None:
    """The exception pickled, if a copy can be made from that: many classes pickle and then cannot be unpickled."""
    try:
        data = codec.dumps(error)
        copy = codec.loads(data)
    except Exception:  # noqa: BLE001 - the constructor and reducers of a user's class may raise anything
        return None
    return data if type(copy) is type(error) or type(copy).__name__ == type(error).__name__ else None


def message_of(error: BaseException) -> str:
    """What it says; of one that quotes another, what that says."""
    told = quoted(error)
    return safe_str(error) if told is None else said_by(told, type(error).__name__)


def quoted(error: BaseException) -> Quoted | None:
    """The error that an exception quotes, by a traceback in its message or as its cause."""
    cause = error.__cause__
    if cause is not None and is_remote(cause):
        told = quoted_in(safe_str(cause))
        return told and told._replace(is_of_process=True)
    return quoted_in(safe_str(error))


def safe_str(error: BaseException) -> str:
    """`str(error)`, or a line that says why there is none."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may raise anything
        return f"<its __str__ raised {type(broken).__name__}>"


def plain_name(error: BaseException) -> str:
    """The name of its class, whatever that makes of its attributes."""
    return type.__dict__["__name__"].__get__(type(error))


def plain_traceback(error: BaseException) -> TracebackType | None:
    """Its traceback, whatever its class makes of its attributes."""
    return BaseException.__dict__["__traceback__"].__get__(error)


def _format(error: BaseException) -> list[str]:
    """The traceback between our own frames, chained causes included; none of what only we were at work in."""
    if isinstance(error, _SAYS_ALL) and not has_users(error):
        return []
    lines = traceback.format_exception(type(error), error, cut(error.__traceback__))
    if lines[0] == _BEGIN:  # else the text of a cause that has no frames, as pools of processes give it
        lines = lines[1:]
    return ["Traceback of where the remote call failed (most recent call last):\n", *lines]


def has_users(error: BaseException | None) -> bool:
    """Is code in its traceback, or in that of its cause, that is not ours?"""
    frames = [] if error is None else [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(not is_ours(each.f_code.co_filename) for each in frames) or (
        error is not None and has_users(error.__cause__)
    )


def cut(tb: TracebackType | None) -> TracebackType | None:
    """A traceback without our frames at its ends: that of who called, and of what of ours it was raised in.

    Torch's collectives wait in a function of ours. What is ours altogether stays as it is.
    """
    entries: list[TracebackType] = []
    while tb is not None:
        entries.append(tb)
        tb = tb.tb_next
    users = [at for at, entry in enumerate(entries) if not is_ours(entry.tb_frame.f_code.co_filename)]
    if not users:
        return entries[-1] if entries else None
    cut = None
    for entry in reversed(entries[users[0] : users[-1] + 1]):
        cut = TracebackType(cut, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return cut
