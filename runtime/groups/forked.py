"""The process groups of a rank in a child that it forks (`multiprocessing`): they are the rank's, and of no use there.

The child has copies of them, of their connections too, and not the threads that serve these. A collective would write
into what the rank sends, and wait for ever; a destructor waits for a thread that is not there, or aborts. So the child
keeps them as they are for those who ask for a rank or a size, as datasets do in the workers of a `DataLoader`; it
refuses collectives, and training steps of models in DistributedDataParallel; and an init of its own takes their place.

Not covered are functional collectives, which C++ does alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from . import models

_USES = re.compile(r"_?(all|reduce|broadcast|gather|scatter|barrier|monitored_barrier|send|recv)([a-z]|_|$).*")
"""The names of `ProcessGroup`'s methods that reach the other ranks, and in torch 2.13 no others."""

_ENDS = ("shutdown", "abort")

_TAKE_A_GROUP = ("_verify_params_across_processes", "_broadcast_coalesced")
"""What DistributedDataParallel calls in C++ as it is made."""

REFUSAL = (
    "a forked process cannot use its rank's process group: call this on the rank itself, as each rank runs all of it "
    "already, or let the processes make a group of their own, by init_process_group(init_method='tcp://...')"
)

_inherited: list[Any] = []
"""Groups of the rank. They stay to the end of the process: nobody may run their destructors."""


def leave(c10d: Any, dist: Any) -> None:
    """In the child, right after the fork, with torch's own functions in place: let its groups be the rank's."""
    _inherited.extend(c10d._world.pg_map)
    if not _inherited:
        return
    for name in filter(_USES.fullmatch, dir(c10d.ProcessGroup)):
        setattr(c10d.ProcessGroup, name, _refused(getattr(c10d.ProcessGroup, name)))
    for name in filter(partial(hasattr, c10d.ProcessGroup), _ENDS):
        setattr(c10d.ProcessGroup, name, _passed_over(getattr(c10d.ProcessGroup, name)))
    for name in filter(partial(hasattr, dist), _TAKE_A_GROUP):
        setattr(dist, name, _refused(getattr(dist, name)))
    if of_models := models.reducers():
        dist.Reducer.prepare_for_backward = _refused_of(of_models, dist.Reducer.prepare_for_backward)
    c10d.new_group = dist.new_group = _beside_the_default(c10d, c10d.new_group)
    c10d.init_process_group = dist.init_process_group = _in_its_place(c10d, c10d.init_process_group)


def _beside_the_default(c10d: Any, make: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(make)
    def new_group(*args: Any, **options: Any) -> Any:
        _check(c10d.GroupMember.WORLD)  # they would meet in the rank's store, over its connection
        return make(*args, **options)

    return new_group


def _in_its_place(c10d: Any, init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def init_process_group(*args: Any, **options: Any) -> None:
        if _is_inherited(c10d.GroupMember.WORLD):
            c10d.destroy_process_group()
        init(*args, **options)

    return init_process_group


def _refused(use: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(use)
    def refused(group: Any, *args: Any, **options: Any) -> Any:
        _check(group)
        return use(group, *args, **options)

    return refused


def _refused_of(reducers: list[Any], prepare: Callable[..., None]) -> Callable[..., None]:
    @wraps(prepare)
    def refused(reducer: Any, *args: Any, **options: Any) -> None:
        if any(reducer is each for each in reducers):
            raise RuntimeError(REFUSAL)
        prepare(reducer, *args, **options)

    return refused


def _passed_over(end: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(end)
    def passed_over(group: Any, *args: Any, **options: Any) -> Any:
        return None if _is_inherited(group) else end(group, *args, **options)

    return passed_over


def _check(group: Any) -> None:
    """Raises `RuntimeError` for a group of the rank."""
    if _is_inherited(group):
        raise RuntimeError(REFUSAL)


def _is_inherited(group: Any) -> bool:
    return any(group is each for each in _inherited)
