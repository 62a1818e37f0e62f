"""What `split` is given, and the sizes of the axes that it makes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any


def read_changes(
    labels: Sequence[str], changes: Mapping[str, int | Sequence[str]]
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """What `split` was given, in two: the names each old axis is cut into, and the sizes of new axes."""
    cuts: dict[str, tuple[str, ...]] = {}
    given: dict[str, int] = {}
    for key, change in changes.items():
        if key in labels:
            if isinstance(change, str):
                raise ValueError(f"expected a sequence of dimensions, but got '{change}'; try ({change!r},)")
            names: tuple[Any, ...] = (change,) if isinstance(change, int) else tuple(change)
            if not all(isinstance(name, str) for name in names):
                raise TypeError(f"expected new names for '{key}', as in {key}=('a', 'b'), but got {change}")
            cuts[key] = names
        elif not isinstance(change, int):
            problem = f"'{key}' is not an existing dim. Expected an integer size constraint on a new dim."
            raise ValueError(f"{problem} The existing dims are {tuple(labels)}")
        else:
            given[key] = change
    return cuts, given


def cut_sizes(label: str, size: int, names: tuple[str, ...], given: Mapping[str, int]) -> list[int]:
    """The size of each new axis, the one that was not given worked out from the others."""
    unknown = [name for name in names if name not in given]
    if len(unknown) > 1:
        raise ValueError(
            f"Cannot infer size of {names} because both {unknown[1]} and {unknown[0]} have unknown size. "
            f"Specify at least one as argument, e.g. {unknown[1]}=4"
        )
    known = [given[name] for name in names if name in given]
    rest, over = divmod(size, prod(known)) if min(known, default=1) > 0 else (0, 1)
    if over or (not unknown and rest != 1):
        asked = tuple(given.get(name, "?") for name in names)
        problem = f"is not evenly divided by {names!r} with sizes {asked!r}"
        raise ValueError(f"Dimension '{label}' of size {size} {problem}")
    return [given.get(name, rest) for name in names]
