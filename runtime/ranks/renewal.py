"""Process groups that get new backends under them: what holds such a group, a model in DDP say, goes on with it.

torch has no call for that, but a way: a `ProcessGroup` has a table of its backends by type, and one by device, which
names the backend in use. A type is a number of one byte, and torch has given a few of them away; a backend that comes
under another one is in use from then on. What was in use before stays in the first table as long as the group lives,
with its three threads: `group_state.MOST_RENEWALS` bounds that. Only gloo's are renewed; nobody has tried it with nccl.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

_FIRST_TYPE = 32
"""The first number of a type that is ours; torch counts its own from 0."""

_NUM_TYPES = 256 - _FIRST_TYPE


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
    if c10d.GroupMember.WORLD not in groups or not all(map(_is_plain_gloo, groups)):
        return None
    made = [group for group in groups if group in world.pg_group_ranks]  # one that was interrupted before is not whole
    ranks = {world.pg_names[group]: tuple(sorted(world.pg_group_ranks[group])) for group in made}
    return Members(world.pg_names[c10d.GroupMember.WORLD], ranks, generation)


def _is_plain_gloo(group: Any) -> bool:
    gloo = getattr(sys.modules.get("torch.distributed"), "ProcessGroupGloo", None)
    devices = getattr(group, "_device_types", ())
    try:
        return bool(devices) and all(type(group._get_backend(device)) is gloo for device in devices)
    except RuntimeError:  # it has none for one of its devices
        return False


def renew(group: Any, store: Any, generation: int) -> None:
    """Give a group another backend: the same ranks, all in the same `generation`, meet at this store."""
    dist: Any = sys.modules["torch.distributed"]
    former = _backend_of(group)
    name, about = group.group_name, group.group_desc  # which it asks the backend in use for
    backend = dist.ProcessGroupGloo(store, group.rank(), group.size(), timeout=former.options._timeout)
    backend.options.global_ranks_in_group = former.options.global_ranks_in_group
    backend.options.group_name = former.options.group_name
    backend._set_sequence_number_for_group()
    number = dist.ProcessGroup.BackendType(_FIRST_TYPE + generation % _NUM_TYPES)
    for device in group._device_types:
        group._register_backend(device, number, backend)
    group._set_group_name(name)
    group._set_group_desc(about)


def num_issued(group: Any) -> int:
    """How many operations this rank has issued in a group, since it was renewed.

    Raises `RuntimeError` where its backend does not count them.
    """
    return (_backend_of(group) if _is_plain_gloo(group) else group)._get_sequence_number_for_group()


def _backend_of(group: Any) -> Any:
    """The backend in use of a group that has one for all devices."""
    return group._get_backend(group._device_types[0])
