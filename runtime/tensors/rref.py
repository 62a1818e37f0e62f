"""Endpoints of actors called with distributed tensors, whose results are distributed tensors."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
from typing import Any

from torch.utils import _pytree as pytree

from ..actor import KEPT
from ..adverbs import Endpoint, Gather
from ..errors import MeshStopped, checks_for_caller
from ..future import Promise
from ..mesh import ProcMesh
from .dispatch import dispatcher_of
from .kept import Keep, TakeOver
from .moving import transfer
from .program import Poison, split_story
from .propagate import propagated
from .tensor import Tensor, issue, words


@checks_for_caller
def rref(endpoint: Endpoint[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call all actors of the mesh, each with the shards of its rank; what they give stays there (`Endpoint.rref`)."""
    title, declared, mesh = endpoint._title, endpoint._declared, endpoint._mesh
    if declared.explicit_response_port:
        raise TypeError(f"{title} answers through a port: .rref takes what an endpoint returns")
    declared.check(title, args, kwargs)
    procs = ProcMesh(mesh._fleet, mesh._shape, is_owned=False)
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, Tensor) and leaf._procs != procs:
            raise TypeError(
                f"{title}.rref: a distributed tensor is on {words(leaf._procs)}, and not on the ranks of the actors, "
                f"{words(procs)}: slice_mesh(...) gives the shards of a part, to_mesh(...) moves them"
            )
    results = propagated(title, declared.propagate, args, kwargs)
    if results is None:
        endpoint.broadcast(*args, **kwargs)
        return None
    receivers = dispatcher_of(procs).receivers()._new_with_shape(procs._shape)
    with transfer() as number:
        answers = _Failures(procs._shape, mesh._target.ranks, title, mesh._fleet, Promise())  # nobody waits for these
        answers.tell = receivers, number
        endpoint._send(mesh._fleet, mesh._target, answers, args, kwargs, KEPT, Keep(number))
        return issue(procs, TakeOver(number), (), {}, results)


class _Failures(Gather):
    """Where a call has failed, its rank is told, which waits for what was to come of it."""

    __slots__ = ("tell",)

    tell: tuple[Any, int]
    """The actors that take in, and the number of the transfer."""

    def _on_error(self, rank: int, error: BaseException) -> None:
        (receivers, number), point = self.tell, self._shape.point_of(rank)
        head, rest = split_story(error)
        with contextlib.suppress(MeshStopped):
            at = receivers.slice(**dict(point))
            at.arrive.broadcast(number, Poison(0, point.rank, head, rest))
        super()._on_error(rank, error)
