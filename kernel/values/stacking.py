"""Values of ranks as one array: of tensors, arrays, numbers and lists of them. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ...runtime.ranges import named
from .size import is_tensor
from .summary import brief


def stacked(values: Mapping[int, Any]) -> Any:
    """One tensor, or array, with the ranks as its first axis, in their order here.

    Raises `ValueError` where values of these ranks do not go together.

    Example:
        >>> stacked({0: [1, 2], 1: [3, 4]}).shape
        (2, 2)
        >>> stacked({0: [1, 2], 1: [3]})
        Traceback (most recent call last):
            ...
        ValueError: shapes differ: [2] on rank 0, [1] on rank 1
    """
    tensors = [rank for rank, value in values.items() if is_tensor(value)]
    if tensors and len(tensors) < len(values):
        others = [rank for rank in values if rank not in tensors]
        raise ValueError(f"there are tensors on {named(tensors)}, and none on {named(others)}")
    arrays = {rank: value.cpu() if tensors else _array(rank, value) for rank, value in values.items()}
    ranks_of: dict[tuple[int, ...], list[int]] = {}
    for rank, array in arrays.items():
        ranks_of.setdefault(tuple(array.shape), []).append(rank)
    if len(ranks_of) > 1:
        told = ", ".join(f"{list(shape)} on {named(ranks)}" for shape, ranks in ranks_of.items())
        raise ValueError(f"shapes differ: {told}")
    if tensors:
        return sys.modules["torch"].stack(list(arrays.values()))
    import numpy

    return numpy.stack(list(arrays.values()))


def _array(rank: int, value: object) -> Any:
    import numpy

    try:
        return numpy.asarray(value)
    except ValueError:
        raise ValueError(f"what is on rank {rank} is no array: its items differ in length") from None
    except Exception as error:  # a class that numpy asks may raise anything
        raise ValueError(f"what is on rank {rank} is no array: {brief(error)}") from error
