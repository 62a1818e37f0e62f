"""Stamps: what a clock, a pid and an address put into a line. Ranks that say the same differ in these alone.

They are what Python's `logging`, torch, glog and NCCL write in front of a line, the times and the rate in a bar of
tqdm, and the address by which an object is shown. Pure; nothing is cut out of a line that one rank alone has said.
"""

from __future__ import annotations

import re
from typing import Final

from ..values.chance import without_addresses

_COLOUR = r"(?:\x1b\[[\d;]*m)*"
_DATE = r"\d{4}-\d\d-\d\d[T ]"
_GLOG = r"[A-Z](?:\d{4}|\d{8})\ "  # a level and the date: W1124, also with the year
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_PROCESS = r"\ (?:\d+(?::\d+)?|\[\d+\])(?=[\ \])])"  # its pid, and perhaps its thread
_RANK = r"\[[Rr]ank[ :=]?\d+\]"
_NCCL = r"[\w.-]+:\d+:\d+\ \[\d+\](?=\ )"  # host:pid:thread [device]
_WORDS = r"(?=.*[^\W\d_])"  # behind it: a rank that prints the time alone has said the time

_STAMPED: Final = re.compile(
    rf"""(?P<rank>\[rank\d+\]:\ ?|{_RANK}:?\ ?(?=[\[(]?(?:{_DATE})?{_TIME}))?
    (?P<stamp> (?> {_COLOUR} (?:[\[(]|USDT:)? (?:{_GLOG}|{_DATE})? {_TIME} (?:{_PROCESS})? (?:[\])]?\ {_NCCL})?
                   (?:[\])]?(?P<late>\ ?{_RANK}))?
                 | {_NCCL} )?+) {_WORDS}""",
    re.VERBOSE,
)
_NUMBER: Final = re.compile(r"[\d.,]+")
_PACE: Final = re.compile(r"(?<= \[)(?:\d+:)?\d+:\d\d(?:<[\d:?]+)?, +[^\s,\]]+/[^\s,\]]+(?=[,\]])")
"""In a bar of tqdm: `00:01<00:03, 9.83it/s`. What the program has it say stands behind this."""


def unstamped(line: str) -> str:
    """A line as it is compared with what others say: without the numbers that only say when, who, where and how fast.

    Example:
        >>> a = "[rank0]:W1124 09:17:40.758000 16072 torch/tensor.py:390] slow"
        >>> b = "[rank1]:W1124 09:17:40.760000 16073 torch/tensor.py:390] slow"
        >>> unstamped(a) == unstamped(b)
        True
        >>> unstamped(" 50%|█████     | 5/10 [00:01<00:01, 4.53it/s]")
        ' 50%|█████     | 5/10 [\\x00]'
        >>> unstamped("step 3")
        'step 3'
    """
    if " [" in line:
        line = _PACE.sub("\0", line)
    if " at 0x" in line:
        line = without_addresses(line)
    found = _STAMPED.match(line)
    if not found or not found.end():
        return line
    return _NUMBER.sub("\0", found["stamp"]) + line[found.end() :]


def said_by_many(line: str) -> str:
    """A line as it is told of several ranks: one rank's, without that rank's number.

    Example:
        >>> said_by_many("[rank0]:W1124 09:17:40.758000 16072 torch/tensor.py:390] slow")
        'W1124 09:17:40.758000 16072 torch/tensor.py:390] slow'
        >>> said_by_many("[2026-11-24 09:17:40,758][rank 0][INFO] slow")
        '[2026-11-24 09:17:40,758][INFO] slow'
    """
    return "".join(parted(line))


def parted(line: str) -> tuple[str, str]:
    """The stamp of a line, without the rank's number, and the rest.

    Example:
        >>> parted("[rank0]:W1124 09:17:40.758000 16072 torch/tensor.py:390] slow")
        ('W1124 09:17:40.758000 16072', ' torch/tensor.py:390] slow')
    """
    found = _STAMPED.match(line)
    if found is None:
        return "", line
    start, end = found.span("late") if found["late"] else (found.end(), found.end())
    return line[max(found.end("rank"), 0) : start] + line[end : found.end()], line[found.end() :]
