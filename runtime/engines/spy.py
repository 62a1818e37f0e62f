"""py-spy: a program, if it is installed, that reads the stack of a process without its help (Linux: with ptrace).

https://github.com/benfred/py-spy. With `native`, the frames of C and C++ too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..ranks.stacks import Spot, Spots, ThreadStack, visible

MISSING = "py-spy is not installed: `pip install py-spy`"


def program() -> str | None:
    """The path of py-spy: beside this Python, or on the search path."""
    return shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")


def take(pids: Mapping[int, int], native: bool, timeout: float) -> tuple[dict[int, ThreadStack], dict[int, str]]:
    """The stacks of these processes (pid by rank), and why there is none where it failed.

    Without py-spy all have failed. What has not come after `timeout` seconds has too.
    """
    spy = program()
    if spy is None:
        return {}, dict.fromkeys(pids, MISSING)
    command = [spy, "dump", "--json", *(["--native"] if native else []), "--pid"]
    runs = {rank: _start([*command, str(pid)]) for rank, pid in pids.items()}
    deadline = time.monotonic() + timeout
    found: dict[int, ThreadStack] = {}
    failed: dict[int, str] = {}
    for rank, run in runs.items():
        text, trouble = _finish(run, deadline)
        if trouble:
            failed[rank] = f"py-spy: {trouble}"
        else:
            found[rank] = parse(text, pids[rank])
    return found, failed


def parse(text: str, pid: int) -> ThreadStack:
    """From what `py-spy dump --json` prints: the main thread (without a name), or if it rests, who holds the GIL."""
    threads: list[dict[str, Any]] = json.loads(text)
    main = next((each for each in threads if each.get("os_thread_id") == pid), None)
    main = main or next((each for each in threads if each.get("thread_name") == "MainThread"), None)
    spots = _spots(main) if main is not None else ()
    holder = next((each for each in threads if each.get("owns_gil") and each is not main), None)
    if holder is not None and not visible(spots):
        return ThreadStack(holder.get("thread_name") or "", _spots(holder))
    return ThreadStack("", spots)


def _spots(thread: dict[str, Any]) -> Spots:
    return tuple(Spot(each["filename"], each.get("line") or 0, each["name"]) for each in reversed(thread["frames"]))


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Jupyter's interrupt goes to whole process groups
    )


def _finish(run: subprocess.Popen[str], deadline: float) -> tuple[str, str]:
    """What it printed, and what went wrong, in one line."""
    with run:
        try:
            out, err = run.communicate(timeout=max(deadline - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            run.kill()
            return "", "it did not end in time"
    last = err.strip().splitlines()[-1:] or [f"it exited with code {run.returncode}"]
    return out, "" if run.returncode == 0 else last[0]
