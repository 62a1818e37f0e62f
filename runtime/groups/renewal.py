"""Process groups that get new backends under them: what holds such a group, a model in DDP say, goes on with it.

torch has no call for that, but a way: a `ProcessGroup` has a table of its backends by type, and one by device, which
names the backend in use. A type is a number of one byte, and torch has given a few of them away; a backend that comes
under another one is in use from then on. What was in use before stays in the first table as long as the group lives,
with its three threads: `group_state.MOST_RENEWALS` bounds that. Backends of gloo and of nccl can be renewed, and a
group may have both, for CPUs and for GPUs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, cast

_FIRST_TYPE = 32
"""The first number of a type that is ours; torch counts its own from 0."""

_NUM_TYPES = 256 - _FIRST_TYPE

_KINDS = ("ProcessGroupNCCL", "ProcessGroupGloo")
"""What can be renewed. What a group with both has issued is counted by the first, as torch itself does."""


class Members(NamedTuple):
    """The process groups of a rank."""

    default: str
    """The name of the default group."""
    groups: dict[str, tuple[int, ...]]
    """By name, with their ranks."""
    generation: int
    """Of the groups: a rank that was busy as others were made may have those of before still."""


def members(c10d: Any, generation: int) -> Members | None:
    """The groups of this process; None where there are none, or one cannot be renewed."""
    world = c10d._world
    groups = list(world.pg_map)
    if c10d.GroupMember.WORLD not in groups or not all(map(_backends, groups)):
        return None
    made = [group for group in groups if group in world.pg_group_ranks]  # one that was interrupted before is not whole
    ranks = {world.pg_names[group]: tuple(sorted(world.pg_group_ranks[group])) for group in made}
    return Members(world.pg_names[c10d.GroupMember.WORLD], ranks, generation)


def renew(group: Any, store: Any, generation: int) -> None:
    """Give a group other backends: the same ranks, all in the same `generation`, meet at this store."""
    dist: Any = sys.modules["torch.distributed"]
    name, about = group.group_name, group.group_desc  # which it asks the backend in use for
    for kind, (former, devices) in _backends(group).items():
        own = dist.PrefixStore(f"{str(devices[0]).partition(':')[0]}/", store)  # as torch itself does
        backend = _MAKERS[kind](dist, own, group, former.options)
        backend._set_sequence_number_for_group()
        number = _FIRST_TYPE + (generation * len(_KINDS) + _KINDS.index(kind)) % _NUM_TYPES
        for device in devices:
            group._register_backend(device, dist.ProcessGroup.BackendType(number), backend)
    group._set_group_name(name)
    group._set_group_desc(about)


def num_issued(group: Any) -> int:
    """How many operations this rank has issued in a group, since it was renewed.

    Raises `RuntimeError` where its backend does not count them.
    """
    counts = all_issued(group)
    return next(counts[kind] for kind in (*_KINDS, "") if kind in counts)


def all_issued(group: Any) -> dict[str, int]:
    """The same for each kind of backend: one for GPUs knows nothing of what is done on CPUs. `""` is another kind."""
    known: dict[str, Any] = {kind: backend for kind, (backend, _) in _backends(group).items()}
    return {kind: each._get_sequence_number_for_group() for kind, each in (known or {"": group}).items()}


def _backends(group: Any) -> dict[str, tuple[Any, list[Any]]]:
    """The backends in use by kind, each with its devices; empty where a device has none, or one of another kind."""
    dist: Any = sys.modules.get("torch.distributed")
    kinds = {getattr(dist, kind, None): kind for kind in _KINDS}
    found: dict[str, tuple[Any, list[Any]]] = {}
    for device in getattr(group, "_device_types", ()):
        try:
            backend = group._get_backend(device)
        except RuntimeError:
            return {}
        kind = kinds.get(cast("type[object]", type(backend)), "")
        if not kind:
            return {}
        found.setdefault(kind, (backend, []))[1].append(device)
    return found


def _gloo(dist: Any, store: Any, group: Any, former: Any) -> Any:
    backend = dist.ProcessGroupGloo(store, group.rank(), group.size(), timeout=former._timeout)
    backend.options.global_ranks_in_group = former.global_ranks_in_group
    backend.options.group_name = former.group_name
    return backend


def _nccl(dist: Any, store: Any, group: Any, former: Any) -> Any:
    former.split_from = None  # that communicator is gone as well
    return dist.ProcessGroupNCCL(store, group.rank(), group.size(), former)


_MAKERS: dict[str, Callable[..., Any]] = {"ProcessGroupGloo": _gloo, "ProcessGroupNCCL": _nccl}
