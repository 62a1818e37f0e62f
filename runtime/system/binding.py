"""The processors and the memory that a process is bound to, as `numactl` and `taskset` would: Monarch's `proc_bind`.

Memory is what the kernel calls a policy of a thread, which its later threads inherit: so a rank binds itself before it
starts any.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from .cores import cores
from .libc import libc

Binding = Mapping[str, str]
"""What a process is bound to: `cpus` or `physcpubind` to these processors, `cpunodebind` to those of these NUMA nodes,
`membind` to their memory; each a list such as `0-3,8`. A process has the processors that all of them name."""

KEYS = ("cpunodebind", "cpus", "membind", "physcpubind")

_NODES = Path("/sys/devices/system/node")

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
"""The number of the system call, which the C library has no function for."""

_MPOL_BIND = 2


def check(binding: Binding) -> None:
    """Raises `ValueError` for a key there is none of, and for what is no list of numbers."""
    for key, text in binding.items():
        if key not in KEYS:
            raise ValueError(f"proc_bind has an unknown key {key!r}: known are {', '.join(KEYS)}")
        try:
            numbers(text)
        except ValueError as error:
            raise ValueError(f"proc_bind has {key}={text!r}: {error}") from None


def numbers(text: str) -> set[int]:
    """The numbers of a list as the kernel writes it.

    Raises `ValueError` for what is none.

    Example:
        >>> sorted(numbers("0-2,8"))
        [0, 1, 2, 8]
    """
    found: set[int] = set()
    for part in str(text).strip().split(","):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise ValueError("it is a list of numbers such as '0-3,8'")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def bind(binding: Binding) -> None:
    """Bind this thread, and those it starts from now on.

    Raises `ValueError` where there is no such processor or node, `OSError` where the system does not let us or cannot.
    """
    if wanted := processors(binding):
        if not hasattr(os, "sched_setaffinity"):
            raise OSError("this system binds no process to processors: leave proc_bind out")
        os.sched_setaffinity(0, wanted)
        cores.cache_clear()
    if "membind" in binding:
        _bind_memory(numbers(binding["membind"]))


def processors(binding: Binding) -> set[int]:
    """Those that all of it name and this process may use; empty where it names none at all.

    Raises `ValueError` where one is not there, or none is left.
    """
    named = [numbers(binding[key]) for key in ("cpus", "physcpubind") if key in binding]
    if "cpunodebind" in binding:
        named.append(set[int]().union(*map(_processors_of, numbers(binding["cpunodebind"]))))
    if not named:
        return set()
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    if absent := named[0].union(*named[1:]) - usable:
        raise ValueError(f"proc_bind names processor {min(absent)}, and this process may use {_listed(usable)}")
    found = named[0].intersection(*named[1:])
    if not found:
        raise ValueError("proc_bind leaves no processor: no one is in all of its lists")
    return found


def _processors_of(node: int) -> set[int]:
    try:
        return numbers((_NODES / f"node{node}" / "cpulist").read_text())
    except FileNotFoundError:
        raise _absent(node) from None


def _bind_memory(nodes: set[int]) -> None:
    for node in nodes:
        if not (_NODES / f"node{node}").is_dir():
            raise _absent(node)
    number = _SET_MEMPOLICY.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None:
        raise OSError("this system binds no memory: leave membind out")
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask = (ctypes.c_ulong * (max(nodes) // bits + 1))()
    for node in nodes:
        mask[node // bits] |= 1 << node % bits
    if libc().syscall(number, _MPOL_BIND, mask, bits * len(mask) + 1) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"membind={_listed(nodes)}: {os.strerror(error)}")


def _absent(node: int) -> ValueError:
    there = _listed({int(path.name[4:]) for path in _NODES.glob("node[0-9]*")}) or "none that are known"
    return ValueError(f"proc_bind names NUMA node {node}, and there are {there}")


def _listed(found: set[int]) -> str:
    return ", ".join(map(str, sorted(found)))
