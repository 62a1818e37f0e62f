"""Which host each rank of a mesh lives on: pure arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

AXES = ("hosts", "host")
"""An outermost axis of this name is that of the hosts."""


def shares(axes: Mapping[str, int], num_hosts: int) -> list[int]:
    """How many ranks, in their order, each host gets; only hosts that get any are in the list.

    An outermost axis named `hosts` is split over as many hosts; else the ranks are divided evenly, the first hosts
    getting one more where that does not go up.

    Raises `ValueError` where the axis wants more hosts than there are.

    Example:
        >>> shares({"hosts": 2, "gpus": 4}, 3), shares({"dp": 5}, 2), shares({"dp": 2}, 4)
        ([4, 4], [3, 2], [1, 1])
    """
    num_ranks = math.prod(axes.values())
    if (wanted := wanted_hosts(axes)) is not None:
        if wanted > num_hosts:
            has = "is 1 host" if num_hosts == 1 else f"are {num_hosts} hosts"
            raise ValueError(f"{next(iter(axes))}={wanted}, and there {has}: ask for at most {num_hosts}")
        return [num_ranks // wanted] * wanted
    low, more = divmod(num_ranks, num_hosts)
    return [size for host in range(num_hosts) if (size := low + (host < more))]


def hosts_of(axes: Mapping[str, int], kept: Mapping[int, str], hosts: Sequence[str]) -> list[str]:
    """The host of each rank of a mesh that gets these axes, by name: the `kept` ranks stay where they are.

    Along an axis of hosts they live as `shares` says; else each that comes goes where the fewest are.

    Example:
        >>> hosts_of({"hosts": 2, "gpus": 2}, {0: "a", 1: "a"}, ["a", "b"])
        ['a', 'a', 'b', 'b']
        >>> hosts_of({"dp": 5}, {0: "a", 1: "a", 2: "b"}, ["a", "b"])
        ['a', 'a', 'b', 'b', 'a']
    """
    num_ranks = math.prod(axes.values())
    if (wanted := wanted_hosts(axes)) is not None:
        return [hosts[rank // (num_ranks // wanted)] for rank in range(num_ranks)]
    num_on = Counter(kept.values())
    places = [kept.get(rank, "") for rank in range(num_ranks)]
    for rank in (rank for rank, place in enumerate(places) if not place):
        places[rank] = min(hosts, key=lambda host: num_on[host])
        num_on[places[rank]] += 1
    return places


def local_ranks(places: Sequence[str]) -> list[int]:
    """Which of the ranks of its host each is, in their order.

    Example:
        >>> local_ranks(["a", "b", "a", "b", "b"])
        [0, 0, 1, 1, 2]
    """
    seen: Counter[str] = Counter()
    found: list[int] = []
    for host in places:
        found.append(seen[host])
        seen[host] += 1
    return found


def wanted_hosts(axes: Mapping[str, int]) -> int | None:
    """How many hosts the axes themselves ask for; None where they do not say.

    Example:
        >>> wanted_hosts({"hosts": 2, "gpus": 4}), wanted_hosts({"dp": 8})
        (2, None)
    """
    first = next(iter(axes), "")
    return axes[first] if first in AXES else None
