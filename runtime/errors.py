"""Every error that meshbook raises of its own.

    MeshbookError
    ├── MeshError            a cell or call failed on some ranks: who, why, and what the others answered
    │   └── DeviceMeshError  ... because the mesh has lost ranks: `heal_mesh` brings them back
    ├── SpawnError           ranks did not come up
    ├── ActorError           an endpoint raised on a rank
    ├── SupervisionError     the actor, or the process it lived in, is gone
    │   └── MeshStopped      a call to a mesh that was taken down
    └── LinkClosed           the other end of a link went away (inside the runtime; users see the others)

What a user typed wrong is a `ValueError` or `TypeError`, as everywhere in Python.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=BaseException)


def as_it_is(error: BaseException) -> None:
    """Does nothing to an error before it is raised to who has called."""


mark: list[Callable[[BaseException], None]] = [as_it_is]
"""What is done to an error of a call, a wait or Ctrl-C in it before it leaves us: the last entry. A notebook puts there
what leaves our own frames out of the traceback that it shows."""


def marked(error: E) -> E:
    """The error, ready to be raised to who has called.

    Example:
        >>> raise marked(TypeError("an axis has a name"))
        Traceback (most recent call last):
            ...
        TypeError: an axis has a name
    """
    mark[-1](error)
    return error


def checks_for_caller(function: Callable[P, R]) -> Callable[P, R]:
    """Of a function that users call: what it raises is marked, as their line is wrong, or was ended by Ctrl-C.

    Example:
        >>> @checks_for_caller
        ... def double(x):
        ...     return 2 * int(x)
        >>> double("4")
        8
    """

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            mark[-1](error)
            raise

    return checked


class MeshbookError(Exception):
    """The root: `except MeshbookError` catches everything meshbook raises about ranks and meshes."""


class LinkClosed(MeshbookError):
    """The process at the other end of a link is gone."""


class SpawnError(MeshbookError, RuntimeError):
    """Some ranks did not say they are ready; the text names the first with its last stderr lines."""


class Storied(BaseException):
    """An error that IPython shows by its story, and `%tb` afterwards with all that its tracebacks say."""

    story = ""
    in_full = ""

    def _render_traceback_(self) -> list[str]:
        """IPython's hook, instead of the controller's own frames. `%tb` asks when nothing is being handled any more."""
        text = self.story if sys.exc_info()[1] is self else self.in_full or self.story
        return [*text.splitlines(), f"{type(self).__name__}: {self}"]


class MeshError(Storied, MeshbookError, RuntimeError):
    """A cell or a call failed on some ranks.

    `by_rank` maps each failed rank to its exception, `result` holds what came back from all of them, also from the
    ranks that did well, `story` is the account a reader sees, and `in_full` has the tracebacks.

    Example:
        >>> error = MeshError("1 of 4 ranks failed (dp=1)", by_rank={1: ValueError("boom")})
        >>> str(error), list(error.by_rank)
        ('1 of 4 ranks failed (dp=1)', [1])
    """

    def __init__(
        self,
        message: str,
        *,
        by_rank: Mapping[int, BaseException] | None = None,
        result: Any = None,
        story: str = "",
    ) -> None:
        super().__init__(message)
        self.by_rank = dict(by_rank or {})
        self.result = result
        self.story = story


class DeviceMeshError(MeshError):
    """A step failed because its mesh has lost ranks: catch it, `heal_mesh(mesh)`, restore a checkpoint, go on.

    `lost` holds the ranks that are gone.
    """

    def __init__(self, message: str, *, lost: Sequence[int] = (), **options: Any) -> None:
        super().__init__(message, **options)
        self.lost = tuple(lost)


class SupervisionError(MeshbookError, RuntimeError):
    """The actor that was called, or the process it lived in, is gone; the text says which rank, how and why."""

    endpoint: str | None = None
    raised_on: tuple[int, int] | None = None
    """The number of the mesh and the rank whose code has ended the actor, where it was code."""


class MeshStopped(SupervisionError):
    """The mesh was taken down; nothing can be sent to it any more."""


class ActorError(MeshbookError):
    """An endpoint raised: `exception` is the original where it could travel, the text its remote traceback.

    The error a caller catches is at the same time an instance of the original's type, so `except ValueError` works
    (see `actor_error`). Not so for what is no `Exception`: a rank's `SystemExit` must not end the notebook.
    """

    raised_on: tuple[int, int] | None = None
    """The number of the mesh and the rank that it was raised on, where that is known."""

    exception: BaseException | None
    message: str
    exception_formatted: str

    def __init__(
        self,
        exception: BaseException | None = None,
        message: str = "A remote actor call has failed.",
        remote_traceback: str | None = None,
    ) -> None:
        if remote_traceback is None:
            remote_traceback = "" if exception is None else "".join(traceback.format_exception(exception))
        # Not `super()`: in a class with two parents that would be `SyntaxError`, which wants other arguments.
        Exception.__init__(self, exception, message)
        # Not by assignment: the class of the original may forbid that.
        vars(self).update(exception=exception, message=message, exception_formatted=remote_traceback)

    def __reduce__(self) -> Any:
        # By what it was made from: its class is made here, and has no module to be found in.
        kept = {name: value for name, value in vars(self).items() if name != "_render_traceback_"}  # see `mark`
        return actor_error, (self.message, self.exception, self.exception_formatted), kept

    def __str__(self) -> str:
        return f"{self.message}\n{self.exception_formatted}" if self.exception_formatted else self.message


def actor_error(message: str, exception: BaseException | None, remote_traceback: str) -> ActorError:
    """An `ActorError` that is also an instance of the type of `exception`, where a class of both can exist.

    Example:
        >>> try:
        ...     raise actor_error("a.f failed on rank 1", ValueError("boom"), "")
        ... except ValueError as error:
        ...     print(type(error).__name__, error.message)
        ActorError a.f failed on rank 1
    """
    cls = _twin(type(exception)) if exception is not None else ActorError
    try:
        error = cls.__new__(cls)
    except TypeError:  # a class such as `ExceptionGroup`, which cannot be made without its arguments
        error = ActorError.__new__(ActorError)
    ActorError.__init__(error, exception, message, remote_traceback)
    if exception is not None:
        # Its notes are in the text: whoever prints a traceback would tell them twice.
        own = {*vars(error), *(("__notes__",) if remote_traceback else ())}
        vars(error).update((name, value) for name, value in vars(exception).items() if name not in own)
        _copy_members(exception, error)
    return error


def _copy_members(original: BaseException, twin: ActorError) -> None:
    """What exceptions of Python's own keep beside their `__dict__`, such as `errno` of an `OSError`."""
    for base in type(original).__mro__[: -len(Exception.__mro__)]:
        for name, member in vars(base).items():
            is_kept = isinstance(member, MemberDescriptorType | GetSetDescriptorType) and not name.startswith("__")
            if is_kept and name not in vars(twin):
                with contextlib.suppress(AttributeError, TypeError):  # it has none, or the twin is of another base
                    setattr(twin, name, getattr(original, name))


@functools.lru_cache(maxsize=256)  # a class that an endpoint makes is another in each of its answers
def _twin(original: type[BaseException]) -> type[ActorError]:
    if issubclass(original, ActorError):  # of a call that an actor has made: it is of the type of that one's error
        return original
    return _made_twin(original)


_OF_THE_RUNNING_CODE = (StopIteration, StopAsyncIteration)
"""With `SystemExit`, `KeyboardInterrupt`, `CancelledError`, ...: they steer the code they are raised in, not ours."""


_OF_OURS: dict[str, Any] = {"message": "", "exception": None, "exception_formatted": ""}
"""Plain attributes of a twin: properties of these names, of the original's class, could not be set."""


def _made_twin(original: type[BaseException]) -> type[ActorError]:
    if not issubclass(original, Exception) or issubclass(original, _OF_THE_RUNNING_CODE):
        return ActorError
    try:
        twin = type("ActorError", (ActorError, original), {"__init__": ActorError.__init__, **_OF_OURS})
        twin.__new__(twin)
    except Exception:  # noqa: BLE001 - incompatible layouts, a class that forbids subclasses, a `__new__` of its own
        return ActorError
    return twin


def tell_of_all(error: BaseException, partial: dict[int, Any], by_rank: dict[int, BaseException]) -> None:
    """Put the answers of the other ranks, and their errors, on the error of a call; but for what it has of its own.

    Not by assignment: the exception may be a user's, who may have a property of that name, or allow none.
    """
    own: object = getattr(error, "exception", None)
    is_users = own is not None and not isinstance(own, MeshbookError)
    vars(error).update(
        (name, value)
        for name, value in {"partial": partial, "by_rank": by_rank}.items()
        if not (is_users and (name in vars(own) or hasattr(cast("type[object]", type(own)), name)))
    )
