"""How many GPUs this machine offers, found out without waking them: no CUDA context, no torch import."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path


def num_gpus() -> int:
    """GPUs that ranks started from here could use: 0 with a CPU build of torch."""
    names = os.listdir("/dev") if Path("/dev").is_dir() else []
    return count_gpus(names, os.environ) if torch_has_cuda() else 0


def count_gpus(device_files: Iterable[str], env: Mapping[str, str]) -> int:
    """The number of NVIDIA devices among `device_files`, as far as `CUDA_VISIBLE_DEVICES` shows them.

    Example:
        >>> count_gpus(["nvidia0", "nvidia1", "nvidiactl", "null"], {})
        2
        >>> count_gpus(["nvidia0", "nvidia1"], {"CUDA_VISIBLE_DEVICES": "1"})
        1
    """
    there = sum(1 for name in device_files if re.fullmatch(r"nvidia\d+", name))
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return there
    # CUDA stops at the first entry that is none, so "-1" and "" show nothing.
    shown = 0
    for entry in visible.split(","):
        if not entry.strip() or entry.strip().startswith("-"):
            break
        shown += 1
    return min(there, shown)


def torch_has_cuda() -> bool:
    """Whether the installed torch was built for CUDA, read from its version file."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version = Path(spec.origin).with_name("version.py")
    return version.is_file() and re.search(r"^cuda\b[^=]*=\s*['\"]", version.read_text(), re.MULTILINE) is not None


def choose_device(asked: str, num_ranks: int, gpus: int) -> str:
    """`cpu`, `cuda`, or for `shared` with fewer GPUs than ranks `cuda/N`, for a mesh of this size.

    Raises:
        ValueError: `cuda` was asked for and there are fewer GPUs than ranks, or `shared` and there is none.

    Example:
        >>> choose_device("auto", 4, gpus=8), choose_device("auto", 4, gpus=1), choose_device("shared", 4, gpus=1)
        ('cuda', 'cpu', 'cuda/1')
    """
    if asked == "shared" and gpus:
        return "cuda" if num_ranks <= gpus else f"cuda/{gpus}"
    if asked == "shared" or (asked == "cuda" and gpus < num_ranks):
        have = "no GPU that torch can use" if gpus == 0 else f"{gpus} GPU{'s' if gpus > 1 else ''}"
        share = "--device shared, where ranks share GPUs, or for " if gpus else ""
        raise ValueError(
            f"{num_ranks} ranks on cuda, but this machine has {have}: ask for fewer ranks, or for {share}--device cpu"
        )
    if asked == "auto":
        return "cuda" if 0 < num_ranks <= gpus else "cpu"
    return asked


def split_device(device: str) -> tuple[str, int]:
    """The kind of a mesh's device, and how many GPUs the ranks of a host share: 0 where each has its own.

    Example:
        >>> split_device("cuda/2"), split_device("cuda"), split_device("cpu")
        (('cuda', 2), ('cuda', 0), ('cpu', 0))
    """
    kind, _, shared = device.partition("/")
    return kind, int(shared or 0)


def device_at(device: str, local_rank: int) -> str:
    """What a rank of a mesh on `device` computes on.

    Example:
        >>> device_at("cuda", 3), device_at("cuda/2", 3), device_at("cpu", 3)
        ('cuda:3', 'cuda:1', 'cpu')
    """
    kind, shared = split_device(device)
    if kind == "cpu":
        return kind
    return f"{kind}:{local_rank % shared if shared else local_rank}"
