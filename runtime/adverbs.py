# pyright: reportPrivateUsage=false
# Meshes keep their members private: every public one is a name that no endpoint of an actor can have.

"""Calling endpoints: the five adverbs, and what collects the answers."""

from __future__ import annotations

import contextvars
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

from .actor import GIVEN_PORT, EndpointProperty, plain_name
from .cells import readable
from .channel import Port, ReplyPort
from .controller.last_words import end_of_actors
from .cut_off import lost_peer
from .errors import ActorError, MeshStopped, SupervisionError, checks_for_caller, marked, tell_of_all
from .fleet import Fleet
from .future import Future, Promise
from .limits import check_size
from .orders import Order
from .ranks.failure import RemoteFailure, rebuild
from .scope import context, serial_task
from .shape import Shape
from .values import ValueMesh
from .wire import codec
from .wire.lane import Frames
from .wire.messages import Answer, Note, Reply, View

if TYPE_CHECKING:
    from .mesh import ActorMesh

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")

_MOST_DEAD = 3
"""So many dead ranks are told one by one, as why a collective has failed."""


class Endpoint(Generic[P, R]):
    """An endpoint of an actor mesh, called by an adverb: `mesh.add.call(1)`, `mesh.add.choose(1)`.

    To a type checker it takes what the method takes, and answers what that gives.
    """

    def __init__(self, mesh: ActorMesh[Any], name: str, declared: EndpointProperty[Any, Any]) -> None:
        self._mesh = mesh
        self._name = name
        self._declared = declared
        self._title = f"{mesh._name}.{name}"
        self._wire_name = declared.wire_name(name)
        # A concurrent one waits for no turn, and one that answers through a port has had its turn before it answers.
        self._turn = -1 if declared.is_concurrent or declared.explicit_response_port else mesh._actor

    @checks_for_caller
    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        """Call all actors of the mesh: a `ValueMesh` of the answers.

        The first failure ends it at once; the error's `partial` maps ranks to the answers that had come. Where an actor
        is known to be dead nobody is called: the others would wait for it in the first collective.
        """
        return self._gather(args, kwargs, wait_for_all=False)

    @checks_for_caller
    def call_all(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]:
        """The same, but a failure is told when all have answered: `partial` then has all answers there are."""
        return self._gather(args, kwargs, wait_for_all=True)

    @checks_for_caller
    def call_one(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call the only actor of the mesh. Raises `ValueError` at once if there are more."""
        target = self._mesh._target
        if len(target.ranks) != 1:
            raise ValueError(f"call_one requires exactly 1 actor, but mesh has {len(target.ranks)}")
        return self._single(target, args, kwargs)

    @checks_for_caller
    def choose(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call one actor of the mesh, picked at random."""
        return self._single(_one_of(self._mesh._target), args, kwargs)

    @checks_for_caller
    def stream(self, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[Future[R]]:
        """Call all actors; futures of the answers in the order in which they come. The calls go out at once."""
        fleet = self._mesh._fleet
        count = len(self._mesh)
        promises = [Promise[Any](fleet.reactor, count) for _ in range(count)]
        self._send(fleet, self._mesh._target, Arrivals(self._title, fleet, promises, self._turn), args, kwargs)
        return iter([promise.future for promise in promises])

    @checks_for_caller
    def broadcast(self, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all actors and want no answer; one that raises has failed, and its owner hears of it."""
        self._send(self._mesh._fleet, self._mesh._target, None, args, kwargs)

    @checks_for_caller
    def rref(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call all actors, each with its shards; what they give are distributed tensors (docs/tensors.md).

        The endpoint is declared with a `propagate` that is called here, with tensors that have no values, and gives
        some of the shapes and types that the endpoint will give. Raises `TypeError` where it is not.
        """
        from .tensors.rref import rref

        return rref(self, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise marked(
            TypeError(
                f"{self._title} is an endpoint: say how to call it, .call(...) for all ranks, "
                ".call_one(...), .choose(...), .stream(...) or .broadcast(...)"
            )
        )

    def __repr__(self) -> str:
        return f"<Endpoint {self._title}{self._declared.arguments}>"

    def _gather(self, args: tuple[Any, ...], kwargs: dict[str, Any], wait_for_all: bool) -> Future[ValueMesh[Any]]:
        fleet, target = self._mesh._fleet, self._mesh._target
        promise: Promise[ValueMesh[Any]] = Promise(fleet.reactor, len(target.ranks))
        gather = Gather(self._mesh._shape, target.ranks, self._title, fleet, promise, wait_for_all, self._turn)
        self._send(fleet, target if wait_for_all else self._reached(target), gather, args, kwargs)
        self._guard(promise, target)
        return promise.future

    def _reached(self, target: Target) -> Target:
        """Whom a call goes to that fails with the first failure: those alone that will refuse it, if there are some."""
        fleet = self._mesh._fleet
        dead, failed = fleet.dead(), fleet.failed(self._mesh._actor)
        if not (dead or failed):
            return target
        lost = {*dead, *failed}
        refusing = [rank for rank in target.ranks if rank in lost]
        return target._replace(ranks=refusing) if refusing else target

    def _single(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        fleet = self._mesh._fleet
        promise: Promise[Any] = Promise(fleet.reactor, 1)
        self._send(fleet, target, Arrivals(self._title, fleet, [promise], self._turn), args, kwargs)
        self._guard(promise, target)
        return promise.future

    def _guard(self, promise: Promise[Any], target: Target) -> None:
        """An actor that waits for a call to itself would wait for ever: it is told instead."""
        caller = context().actor_instance
        mesh, rank, actor = caller.address
        if actor == self._mesh._actor and mesh == self._mesh._fleet.mesh and rank in target.ranks:
            promise.forbid(
                f"{self._title}: this actor waits for itself, which would never end: call the method directly",
                serial_task(),
                lambda turn=caller.turn: caller.turn == turn,
            )

    def _send(
        self,
        fleet: Fleet,
        target: Target,
        caller: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        way: str = "",
        lead: object = None,
    ) -> None:
        """In another way (`GIVEN_PORT`, `KEPT`) the ranks give their answers to `lead`, which comes first there."""
        self._declared.check(self._title, args, kwargs)
        mesh, wire_name = self._mesh, self._wire_name
        if way:
            wire_name, args = plain_name(wire_name) + way, (lead, *args)
        payload = (None if kwargs else codec.quick(args, (args, kwargs))) or _fitting(args, kwargs)
        try:
            fleet.call(target.ranks, Order(mesh._actor, wire_name, payload, target.view, mesh._on_main), caller)
        except MeshStopped as stopped:
            if caller is not None:
                for rank in target.ranks:  # as for every other end of an actor: the future tells it
                    caller.on_lost(rank, str(stopped))


@checks_for_caller
def send(
    endpoint: Endpoint[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    port: Port[Any] | None = None,
    selection: str = "all",
) -> None:
    """Send to an endpoint; answers go to `port`, if there is one, in the order in which they come.

    An endpoint with `explicit_response_port` gets this port, and may send through it as often as it wants.
    `selection` is `all` or `choose`.
    """
    if not isinstance(cast("object", endpoint), Endpoint):
        raise TypeError(f"send takes an endpoint of a mesh, such as mesh.step, not {endpoint!r}")
    target = endpoint._mesh._target
    if selection == "choose":
        target = _one_of(target)
    elif selection != "all":
        raise ValueError(f"Invalid selection: {selection!r} is neither all nor choose")
    fleet = endpoint._mesh._fleet
    if port is None:
        endpoint._send(fleet, target, None, args, kwargs)
        return
    is_explicit = endpoint._declared.explicit_response_port
    caller = _ToPort(endpoint._title, fleet, port, target, only_failures=is_explicit)
    if is_explicit:
        endpoint._send(fleet, target, caller, args, kwargs, GIVEN_PORT, port)
    else:
        endpoint._send(fleet, target, caller, args, kwargs)


class Accumulator(Generic[P, R, A]):
    """Folds the answers of all actors into one value, in the order in which they come.

    Example: `Accumulator(mesh.loss, 0.0, operator.add).accumulate().get()`.
    """

    def __init__(self, endpoint: Endpoint[P, R], identity: A, combine: Callable[[A, R], A]) -> None:
        if not isinstance(cast("object", endpoint), Endpoint):
            raise marked(TypeError(f"an Accumulator takes an endpoint of a mesh, such as mesh.loss, not {endpoint!r}"))
        self._endpoint = endpoint
        self._identity = identity
        self._combine = combine

    def accumulate(self, *args: P.args, **kwargs: P.kwargs) -> Future[A]:
        """Call all actors now; the future is done when the last answer has been folded in.

        `combine` runs on a thread of its own, in the caller's context: it may take its time, and call actors.
        """
        answers = self._endpoint.stream(*args, **kwargs)
        promise: Promise[A] = Promise(self._endpoint._mesh._fleet.reactor)
        fold = contextvars.copy_context().run, (_fold, answers, self._identity, self._combine, promise)
        threading.Thread(target=fold[0], args=fold[1], name="meshbook-fold", daemon=True).start()
        return promise.future


class Gather:
    """Collects the answers of all ranks of a view; the first failure settles the whole, or waits for the rest."""

    # With many calls in flight there are many of these: each object more costs the garbage collector's time.
    __slots__ = (
        "_answers",
        "_count",
        "_errors",
        "_fleet",
        "_outcome",
        "_ranks",
        "_shape",
        "_wait_for_all",
        "title",
        "turn",
    )

    def __init__(
        self,
        shape: Shape,
        ranks: Sequence[int],
        title: str,
        fleet: Fleet,
        outcome: Promise[Any],
        wait_for_all: bool = False,
        turn: int = -1,
    ) -> None:
        """`turn` is the actor that works on this call alone while it does, and on one after the other of such."""
        self._shape = shape
        self._ranks = ranks
        self._count = len(ranks)
        self.title = title
        self.turn = turn
        self._fleet = fleet
        self._outcome = outcome
        self._wait_for_all = wait_for_all
        self._answers: dict[int, Any] = {}
        self._errors: dict[int, BaseException] | None = None

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        try:
            self._answers[rank] = opened(reply.ok, frames, self.title, self._fleet, rank)
        except Exception as error:  # noqa: BLE001 - an actor may give its port any
            self._on_error(rank, error)
        else:
            if self._errors is not None:
                self._settle_failed(self._errors)
            elif len(self._answers) == self._count:
                self._outcome.resolve(ValueMesh(self._shape, map(self._answers.__getitem__, self._ranks)))

    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...

    def on_lost(self, rank: int, why: str) -> None:
        self._on_error(rank, lost(self.title, why))

    def _on_error(self, rank: int, error: BaseException) -> None:
        if self._errors is None:
            self._errors = {}
        self._errors[rank] = error
        self._settle_failed(self._errors)

    def _settle_failed(self, errors: dict[int, BaseException]) -> None:
        is_over = len(self._answers) + len(errors) == self._count
        if is_over or not self._wait_for_all:
            error = next(iter(errors.values()))
            tell_of_all(error, dict(sorted(self._answers.items())), dict(errors))
            self._outcome.fail(error)


class Arrivals:
    """Settles promises one after the other as answers come."""

    __slots__ = ("_fleet", "_waiting", "title", "turn")

    def __init__(self, title: str, fleet: Fleet, promises: Sequence[Promise[Any]], turn: int = -1) -> None:
        self.title = title
        self.turn = turn
        self._fleet = fleet
        self._waiting = list(reversed(promises))

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        promise = self._waiting.pop()
        try:
            promise.resolve(opened(reply.ok, frames, self.title, self._fleet, rank))
        except Exception as error:  # noqa: BLE001 - an actor may give its port any
            promise.fail(error)

    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...

    def on_lost(self, rank: int, why: str) -> None:
        self._waiting.pop().fail(lost(self.title, why))


class _ToPort:
    """Hands answers on to a port, or only failures where the ranks answer through it themselves."""

    def __init__(self, title: str, fleet: Fleet, port: Port[Any], target: Target, only_failures: bool = False) -> None:
        self._title = title
        self._fleet = fleet
        self._port = port
        self._only_failures = only_failures
        self._places = {rank: place for place, rank in enumerate(target.ranks)}

    def on_reply(self, rank: int, reply: Reply | Answer, frames: Frames) -> None:
        if self._is_answered():
            return
        port = self._port.ranked(self._places[rank])
        try:
            answer = opened(reply.ok, frames, self._title, self._fleet, rank)
            if not self._only_failures:
                port.send(answer)
        except Exception as error:  # noqa: BLE001 - an actor may give its port any
            port.exception(error)

    def on_note(self, rank: int, note: Note, frames: Frames) -> None: ...

    def on_lost(self, rank: int, why: str) -> None:
        if not self._is_answered():
            self._port.ranked(self._places[rank]).exception(lost(self._title, why))

    def _is_answered(self) -> bool:
        """Is the port that of a call? Several answer it here: the first counts."""
        return isinstance(self._port, ReplyPort) and self._port.is_used


def _fold(
    answers: Iterator[Future[Any]], value: Any, combine: Callable[[Any, Any], Any], promise: Promise[Any]
) -> None:
    try:
        for answer in answers:
            value = combine(value, answer.get())
    except BaseException as error:  # noqa: BLE001 - the user's combine may raise anything; it is the caller's
        promise.fail(error)
    else:
        promise.resolve(value)


def view_of(shape: Shape) -> View:
    """A shape as it travels."""
    piece = shape.ndslice
    return View(tuple(shape.labels), piece.offset, tuple(piece.sizes), tuple(piece.strides))


class Target(NamedTuple):
    """Where a call goes: the ranks, and the view of their mesh that they are to find themselves in.

    No view: the one in which the actors were spawned, which their ranks know.
    """

    ranks: Sequence[int]
    view: View | None

    @staticmethod
    def of(shape: Shape) -> Target:
        """All ranks of a shape."""
        return Target(tuple(shape.ranks()), view_of(shape))


def _one_of(target: Target) -> Target:
    """A random one of these ranks, which finds itself at its place in the same view."""
    return Target((random.choice(target.ranks),), target.view)


def _fitting(args: tuple[Any, ...], kwargs: dict[str, Any]) -> codec.Encoded:
    """The arguments of a call. Raises `ValueError` where they are too much for one message."""
    return check_size((*args, *kwargs.values()), lambda: codec.encode((args, kwargs)), "arguments")


def opened(ok: bool, frames: Frames, title: str, fleet: Fleet, rank: int) -> Any:
    """The value of an answer. Raises what the call failed with."""
    value = codec.decode(frames[0], frames[1:])
    if ok:
        return value
    assert isinstance(value, RemoteFailure), value
    rank_name = fleet.name_of(rank)
    if not value.is_fatal:
        raised = rebuild(value, f"Actor call {title}", rank_name + _cut_off(value, fleet))
        if isinstance(raised, ActorError):
            vars(raised)["raised_on"] = fleet.mesh, rank  # not by assignment: as above
        raise raised
    end = f"The actor {value.actor} and all its descendants have failed" if value.actor else "the actor is gone"
    story = f"{value.type_name}: {value.message}\n{readable(value.traceback)}".rstrip()
    error = SupervisionError(f"Endpoint call {title}() failed, {end}:\n  {rank_name}: {story}")
    error.endpoint = title
    if value.traceback:  # else it is refused, and nothing was raised
        error.raised_on = fleet.mesh, rank
    raise error


def _cut_off(failure: RemoteFailure, fleet: Fleet) -> str:
    """Of whose end the collective has failed, where that is why: torch says that somebody has crashed, and not who."""
    dead = fleet.dead() if lost_peer(failure.type_name, failure.message) else []
    told = [fleet.why_dead(rank).partition("\n")[0] for rank in dead[:_MOST_DEAD]]
    if len(dead) > _MOST_DEAD:
        told.append(f"{len(dead) - _MOST_DEAD} more")
    return f", cut off: {', '.join(told)}" if told else ""


def lost(title: str, why: str) -> SupervisionError:
    """The error of a call whose rank is gone."""
    if end := end_of_actors(why):
        why = f"{why}\n  The actor {title.rpartition('.')[0]} and all its descendants have failed: {end}"
    error = SupervisionError(f"Endpoint call {title}() failed, {why}")
    error.endpoint = title
    return error
