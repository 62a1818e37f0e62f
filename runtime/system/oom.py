"""Was it the kernel, for lack of memory? What tells an out-of-memory kill from any other SIGKILL.

A control group counts the processes that it lost so (`oom_kill` in `memory.events`, or in `memory.oom_control` of
cgroup v1), before it sends the signal. Where there is no such count, the kernel log may name the process. The limits of
the same group say how much memory there is for us to share.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_KILLED = re.compile(r"[Oo]ut of memory.*: Kill(?:ed)? process (\d+)\b")
_NO_LIMIT = 1 << 60
"""cgroup v1 writes a number near 2**63 where v2 writes `max`."""


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """The control group that holds a process to its memory."""

    mount: Path
    folder: Path
    counter: str
    limit: str

    @property
    def lineage(self) -> list[Path]:
        """It and its ancestors: the limit of each holds."""
        upwards = [self.folder, *self.folder.parents]
        return upwards[: upwards.index(self.mount) + 1]


def memory_group(cgroup: str, mountinfo: str) -> MemoryGroup | None:
    """Where it is, by the texts of `/proc/PID/cgroup` and `/proc/PID/mountinfo`; None where there is none.

    Example:
        >>> group = memory_group("0::/user/a", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
        >>> str(group.folder), group.counter
        ('/sys/fs/cgroup/user/a', 'memory.events')
    """
    paths = {kind: path for _, kind, path in (line.split(":", 2) for line in cgroup.splitlines())}
    old = next((path for kinds, path in paths.items() if "memory" in kinds.split(",")), None)
    mounts = [line.split(" ") for line in mountinfo.splitlines()]
    for fields in mounts:
        after = fields.index("-")
        system, options = fields[after + 1], fields[after + 3].split(",")
        if old is not None and system == "cgroup" and "memory" in options:
            return _group(fields, old, "memory.oom_control", "memory.limit_in_bytes")
        if old is None and system == "cgroup2" and "" in paths:
            return _group(fields, paths[""], "memory.events", "memory.max")
    return None


def _group(mount: list[str], path: str, counter: str, limit: str) -> MemoryGroup:
    root, point = mount[3], Path(mount[4])
    # In a container a part of the tree is mounted, and `/proc` may name the group as seen from outside.
    inside = os.path.relpath(path, root) if os.path.commonpath([root, path]) == root else "."
    return MemoryGroup(point, point / inside, counter, limit)


def count_in(text: str) -> int | None:
    """The number of processes killed for lack of memory, of either counter file.

    Example:
        >>> count_in("low 0\\noom 3\\noom_kill 2\\n"), count_in("oom_kill_disable 0\\nunder_oom 0\\n")
        (2, None)
    """
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def least_limit(texts: Iterable[str]) -> int | None:
    """The least of the limits, in bytes; None if there is none.

    Example:
        >>> least_limit(["max", "8589934592", "9223372036854771712"])
        8589934592
    """
    limits = [int(text) for text in texts if text.strip().isdigit()]
    return min((limit for limit in limits if limit < _NO_LIMIT), default=None)


def is_named(log: str, pid: int) -> bool:
    """Whether the kernel log tells of this process.

    Example:
        >>> is_named("3,99,1,-;Memory cgroup out of memory: Killed process 42 (python) total-vm:1kB", 42)
        True
    """
    return any(int(named) == pid for named in _KILLED.findall(log))


def reason(limit: int | None, memory: int) -> str:
    """Why the kernel did it, in a reader's words.

    Example:
        >>> reason(8 << 30, 64 << 30)
        'by the kernel for lack of memory (cgroup limit 8 GB)'
    """
    room = f"cgroup limit {_size(limit)}" if limit is not None else f"the machine has {_size(memory)}"
    return f"by the kernel for lack of memory ({room})"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.3g} GB" if num_bytes >= 1 << 30 else f"{num_bytes / 2**20:.3g} MB"


class Tally:
    """How many of the counted kills are explained by ranks that died.

    Example:
        >>> tally = Tally(5)
        >>> tally.explains(5), tally.explains(6), tally.explains(6)
        (False, True, False)
    """

    def __init__(self, count: int) -> None:
        self._known = count

    def explains(self, count: int) -> bool:
        """Whether one more was counted than ranks have died of it; that one is then taken."""
        is_new = count > self._known
        self._known += is_new
        return is_new


class MemoryKills:
    """Knows of processes started from here, from now on, whether one that got SIGKILL had it for lack of memory."""

    def __init__(self) -> None:
        self._group = _own_group()
        count = self._count()
        self._tally = Tally(count) if count is not None else None

    def why(self, pid: int) -> str:
        """Why the kernel killed this process; empty if it was not the kernel, or nobody can tell."""
        count = self._count()
        if self._tally is not None and count is not None:
            was_it = self._tally.explains(count)
        else:
            was_it = is_named(_kernel_log(), pid)
        return reason(_limit_of(self._group), _machine()) if was_it else ""

    def _count(self) -> int | None:
        return count_in(_text(self._group.folder / self._group.counter)) if self._group is not None else None


@cache
def memory_size() -> int:
    """Bytes of memory that this process can have: the machine's, or the share of its control group (job, container)."""
    limit = _limit_of(_own_group())
    return _machine() if limit is None else min(limit, _machine())


def _machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limit_of(group: MemoryGroup | None) -> int | None:
    if group is None:
        return None
    return least_limit(_text(folder / group.limit) for folder in group.lineage)


def _own_group() -> MemoryGroup | None:
    return memory_group(_text(Path("/proc/self/cgroup")), _text(Path("/proc/self/mountinfo")))


def _text(path: Path) -> str:
    """What a file says; nothing where it is not there, or not for us to read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _kernel_log() -> str:
    """The kernel's messages, where this user may read them."""
    records: list[bytes] = []
    with contextlib.suppress(OSError):
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        try:
            while True:  # one record a read, until there is none: BlockingIOError
                with contextlib.suppress(BrokenPipeError):  # overwritten meanwhile: the next one follows
                    records.append(os.read(fd, 8192))
        finally:
            os.close(fd)
    return b"".join(records).decode("utf-8", "replace")
