"""The same benchmarks with another commit's meshbook, in turns: what has become slower, or faster, since.

The benchmarks are those of now, so the other commit must know what they call. With `--own` each has its own, as modules
have moved since; then a figure may differ because it is measured otherwise.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from measure import amount

ROUNDS = 3

_HERE = Path(__file__).resolve().parent
_OTHERS = _HERE.parent / "build" / "against"
_WIDTHS = (42, 14, 14, 8, 12)


def compare(commit: str, names: Sequence[str], is_quick: bool, is_own: bool = False) -> int:
    """Print a line for each figure, the median of some runs; 1 if a benchmark is broken in one of the two."""
    folder = checked_out(named(commit))
    ours, theirs = (defaultdict[str, list[float]](list) for _ in range(2))
    units: dict[str, str] = {}
    are_sound = True
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {ROUNDS} runs of each in turns")
    for _ in range(ROUNDS):
        for figures, path in ((ours, ""), (theirs, str(folder))):
            rows, is_sound = measured(names, is_quick, path, is_own)
            are_sound = are_sound and is_sound
            for row in rows:
                name = row["name"].strip()
                figures[name].append(row["figure"])
                units[name] = row["unit"]
    print(line("what", "here", commit[:12], "ratio", "unit"))
    for name in (name for name in ours if name in theirs):
        here, there = median(ours[name]), median(theirs[name])
        print(line(name, amount(here), amount(there), f"{here / there:.2f}" if there else "", units[name]))
    if alone := ours.keys() ^ theirs.keys():
        print(f"only in one of the two: {', '.join(sorted(alone))}")
    if not are_sound:
        print("BROKEN: see above")
    return int(bool(alone) or not are_sound)


def named(commit: str) -> str:
    """The commit by its own name: `HEAD~20` is another one tomorrow. Raises `SystemExit` where there is none."""
    told = git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if told.returncode:
        raise SystemExit(f"there is no commit {commit!r} here")
    return told.stdout.decode().strip()


def checked_out(commit: str) -> Path:
    """A folder in which that commit's meshbook can be imported."""
    folder = _OTHERS / commit[:12]
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit).stdout)) as files:
        files.extractall(folder / "meshbook", filter="data")
    assert (folder / "meshbook" / "__init__.py").exists(), f"{commit} is no meshbook"
    return folder


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=_HERE.parent, capture_output=True)


def measured(names: Sequence[str], is_quick: bool, path: str, is_own: bool) -> tuple[list[dict[str, Any]], bool]:
    """The rows, from a process that finds meshbook in `path` if there is one; and whether no benchmark is broken."""
    benchmarks = Path(path) / "meshbook" / "benchmarks" if path and is_own else _HERE
    command = [sys.executable, str(benchmarks / "run.py"), *names, "--rows", *["--quick"] * is_quick]
    env = os.environ | ({"PYTHONPATH": path} if path else {})
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env)
    return [json.loads(each) for each in told.stdout.splitlines() if each.startswith("{")], told.returncode == 0


def line(*cells: str) -> str:
    """Cells side by side, the first to the left."""
    first, *others = (f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    return "  ".join([first, *others]).rstrip()
