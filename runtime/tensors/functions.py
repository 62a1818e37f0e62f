"""Functions of the program that are called on every rank with its shards."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, overload

from torch.utils import _pytree as pytree

from ..adverbs import Endpoint
from ..errors import checks_for_caller
from ..future import Future
from ..mesh import ProcMesh
from ..shape import Point
from ..values import ValueMesh
from .activation import active_mesh
from .dispatch import dispatcher_of
from .fetch import rank_at
from .learnt import Learnt
from .movement import slice_mesh
from .on_ranks import OfUsers
from .propagate import propagated
from .tensor import Tensor, as_argument, issue, mesh_of


class Remote:
    """A function that runs on the ranks. Its distributed arguments are shards there; what it gives is distributed.

    Or it comes here, by the adverbs of endpoints: `call` and its like compute after what was issued before.
    """

    def __init__(self, function: Callable[..., Any] | str, propagate: object) -> None:
        self._function = function
        self._propagate = propagate
        self._learnt = Learnt(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it on the mesh of the arguments, or on the active one.

        Raises `ValueError` where there is none, and `RemoteException` where it fails and its result is to be learnt.
        """
        procs = _mesh_for(args, kwargs)
        if self._propagate in (None, "cached"):
            return self._learnt(procs, args, kwargs)
        results = propagated("remote", self._propagate, args, kwargs)
        return issue(procs, OfUsers(self._function, results is not None), args, kwargs, results)

    rref = __call__

    def call(self, *args: Any, **kwargs: Any) -> Future[ValueMesh[Any]]:
        """What it gives on each rank."""
        return self._asked(lambda ranks: ranks.call, args, kwargs)

    def call_one(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """What it gives on the only rank of the mesh. Raises `ValueError` where there are more."""
        return self._asked(lambda ranks: ranks.call_one, args, kwargs)

    def choose(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """What it gives on one rank, picked at random, which alone computes it."""
        return self._asked(lambda ranks: ranks.choose, args, kwargs)

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[Future[Any]]:
        """What it gives on each rank, in the order in which they are done."""
        procs = _mesh_for(args, kwargs)
        return dispatcher_of(procs).endpoint(procs._shape).stream(*self._words(args, kwargs))

    def broadcast(self, *args: Any, **kwargs: Any) -> None:
        """Call it for what it does. What it raises is told to nobody."""
        issue(_mesh_for(args, kwargs), OfUsers(self._function, False), args, kwargs, None)

    def _asked(
        self,
        adverb: Callable[[Endpoint[Any, Any]], Callable[..., Future[Any]]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[Any]:
        procs = _mesh_for(args, kwargs)
        dispatcher = dispatcher_of(procs)
        future = adverb(dispatcher.endpoint(procs._shape))(*self._words(args, kwargs))
        future._promise.on_interrupt = dispatcher.interrupted
        return future

    def _words(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return OfUsers(self._function, True), *pytree.tree_map(as_argument, (args, kwargs))


@overload
def remote(function: Callable[..., Any] | str, *, propagate: Callable[..., Any] | str | None = None) -> Remote: ...


@overload
def remote(*, propagate: Callable[..., Any] | str | None = None) -> Callable[[Callable[..., Any] | str], Remote]: ...


@checks_for_caller
def remote(
    function: Callable[..., Any] | str | None = None, *, propagate: Callable[..., Any] | str | None = None
) -> Remote | Callable[[Callable[..., Any] | str], Remote]:
    """A function, or one that ranks import by its name (`"module.name"`), to call with distributed tensors.

    Also as a decorator: `@remote`, or `@remote(propagate=...)`.

    `propagate` is called here with tensors that have no values, and gives some of the shapes and types that the
    function will give. Without it they are those of the first call with arguments of such shapes, which is waited for;
    each call is, where the function gives anything but tensors: that of the first rank. With `"inspect"` what it gives
    is not kept.

    Example:
        >>> from meshbook.runtime import this_host
        >>> norm = remote(lambda x: float(x.norm()))
        >>> with this_host().spawn_procs({"dp": 2}) as procs, procs.activate():
        ...     norm.call(procs.rank_tensor("dp") * 2.0).get().values()
        [0.0, 2.0]
    """
    if function is None:
        return partial(remote, propagate=propagate)
    if isinstance(function, str) and "." not in function:
        raise ValueError(f"{function!r} names no function: say 'module.name'")
    return Remote(function, propagate)


@checks_for_caller
def call_on_shard_and_fetch(
    remote: Remote | Endpoint[Any, Any] | Callable[..., Any],
    *args: Any,
    shard: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> Future[Any]:
    """What a function, or an endpoint, gives on one rank, which alone computes it with its shards.

    The rank is that at these coordinates, by default the first (see `fetch_shard`). Raises `ValueError` where a
    coordinate is missing, or there is no such axis or rank.
    """
    mesh: Any = remote._mesh if isinstance(remote, Endpoint) else _mesh_for(args, kwargs)
    point = Point(rank_at(mesh.sizes, shard or {}), mesh.extent)
    args, kwargs = slice_mesh((args, kwargs), **point)
    alone = mesh.slice(**point)
    if isinstance(remote, Endpoint):
        endpoint: Endpoint[Any, Any] = Endpoint(alone, remote._name, remote._declared)
        return endpoint.call_one(*args, **kwargs)
    function = remote if isinstance(remote, Remote) else Remote(remote, None)
    with alone.activate():
        return function.call_one(*args, **kwargs)


@checks_for_caller
def _mesh_for(args: tuple[Any, ...], kwargs: dict[str, Any]) -> ProcMesh:
    """The mesh of these arguments, or the active one."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    procs = mesh_of(tensors) if tensors else active_mesh()
    if procs is None:
        raise ValueError("on which ranks? Give it a distributed tensor, or call it under procs.activate()")
    return procs
