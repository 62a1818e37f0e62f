"""What numbers are like at a glance: least, most, mean, norm, how many are nan, and a small picture of a matrix."""

from __future__ import annotations

import math
import sys
from typing import Any, Final

from ..outcome import Gist, Heat
from .odd_tensors import as_it_lies, partial_of
from .size import is_array, is_tensor

CPU_LIMIT: Final = 1 << 17
"""Numbers that are looked at on a CPU, about 1 ms; of more, a sample."""

GPU_LIMIT: Final = 1 << 22
"""The same on a GPU: 0.2 ms, but the look also takes memory there."""

_CHUNK: Final = 1 << 15
"""torch gives up to so many to one thread. With more of them busy, waking them took 24 ms instead of 0.2."""

MAX_SIDE: Final = 64
MIN_SIDE: Final = 4
LEVELS: Final = 64
"""Steps from the least to the most in a picture."""


def gist_of(value: object) -> Gist | None:
    """The gist of a plain tensor, of an array, or of a number of numpy; None of anything else.

    Runs nobody's code: of tensors only `torch.Tensor` and `Parameter` themselves are looked at, and of a distributed
    one (DTensor) the part of this rank, since all of it would take a collective. A GPU that captures a graph is left
    alone.

    Example:
        >>> import torch
        >>> gist = gist_of(torch.tensor([[1.0, 2.0], [float("nan"), 5.0]]))
        >>> gist.least, gist.most, round(gist.mean, 2), gist.num_nans
        (1.0, 5.0, 2.67, 1)
    """
    try:
        return _number(value) if _is_number(value) else _gist(value)
    except Exception:  # noqa: BLE001 - some types of numbers know no minimum; a value is told without its gist then
        return None


def _is_number(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.floating | numpy.integer)


def _number(value: Any) -> Gist:
    number = float(value)
    return Gist(number, number, number, abs(number), int(math.isnan(number)), 1)


def _gist(value: object) -> Gist | None:
    numbers = numbers_of(value)
    if numbers is None or numbers.numel() == 0:
        return None
    if numbers.numel() == 1:
        return _number(numbers.item())
    seen = _sample(numbers, GPU_LIMIT if numbers.is_cuda else CPU_LIMIT)
    seen = seen.to(sys.modules["torch"].float64 if _is_exact_in_double(seen) else sys.modules["torch"].float32)
    parts = [_part(part) for part in seen.reshape(-1).split(GPU_LIMIT if seen.is_cuda else _CHUNK)]
    lows, highs, sums, squares, nans = zip(*parts, strict=True)
    num_nans = int(sum(nans))
    counted = seen.numel() - num_nans
    return Gist(
        least=min(lows) if counted else math.nan,
        most=max(highs) if counted else math.nan,
        mean=sum(sums) / counted if counted else math.nan,
        norm=math.sqrt(sum(squares)) if counted else math.nan,
        num_nans=num_nans,
        num_seen=seen.numel(),
        heat=_heat(seen),
    )


def numbers_of(value: Any) -> Any:
    """The numbers as a tensor, not yet copied if they are one; None for what is not looked at."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if is_array(value) and type(value) is sys.modules["numpy"].ndarray:
        return torch.tensor(_sample(value, CPU_LIMIT)) if value.dtype.kind in "biuf" else None
    if is_tensor(value) and hasattr(value, "to_local"):
        value = None if partial_of(value) else as_it_lies(value.detach())
    if not is_tensor(value) or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    is_plain = value.layout is torch.strided and value.device.type in ("cpu", "cuda")
    if not is_plain or value.is_complex() or value.is_quantized:
        return None
    if value.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    return value.detach()


def _sample(numbers: Any, limit: int) -> Any:
    """Every n-th number along the longest axes: a view, however large it is.

    Example:
        >>> import torch
        >>> _sample(torch.zeros(3, 4000), 6000).shape
        torch.Size([3, 2000])
    """
    sizes, steps = list(numbers.shape), [1] * len(numbers.shape)
    while math.prod(sizes) > limit:
        longest = sizes.index(max(sizes))
        steps[longest] *= 2
        sizes[longest] = -(-numbers.shape[longest] // steps[longest])
    return numbers[tuple(slice(None, None, step) for step in steps)]


def _is_exact_in_double(numbers: Any) -> bool:
    return not numbers.dtype.is_floating_point or numbers.dtype.itemsize > 4


def _part(numbers: Any) -> tuple[float, float, float, float, float]:
    """Least, most, sum, sum of squares and number of nans of a part; in one transfer from a GPU, two with nans."""
    torch = sys.modules["torch"]
    nans = numbers.isnan()
    num_nans = int(nans.sum())
    if num_nans:
        numbers = numbers[~nans]
    if not numbers.numel():
        return math.inf, -math.inf, 0.0, 0.0, num_nans
    least, most = (bound.double() for bound in numbers.aminmax())
    total = numbers.sum(dtype=torch.float64)
    norm = torch.linalg.vector_norm(numbers, dtype=torch.float64)
    low, high, added, length = torch.stack([least, most, total, norm]).tolist()
    return low, high, added, length**2, num_nans


def _heat(numbers: Any) -> Heat | None:
    """A matrix as a small picture: each cell the mean of what it covers, nan where one of them is."""
    if numbers.dim() != 2 or min(numbers.shape) < MIN_SIDE:
        return None
    torch = sys.modules["torch"]
    sides = [min(side, MAX_SIDE) for side in numbers.shape]
    cells = torch.nn.functional.adaptive_avg_pool2d(numbers[None].float(), sides)[0].cpu()
    finite = cells[cells.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (math.nan, math.nan)
    share = (cells - low) / (high - low) if high > low else torch.zeros_like(cells)
    levels = (share.clamp(0, 1) * (LEVELS - 1)).round() + 1
    levels[cells.isnan()] = 0
    return Heat(sides[0], sides[1], low, high, bytes(levels.nan_to_num(0).to(torch.uint8).flatten().tolist()))
