"""A zygote for the tests of cells: it warms up, and forks a rank for each request on its stdin.

A request is `{"cells": [source], "folder": path}`. The zygote answers with the rank's pid at once, and with
its exit status at its end. The rank leaves `stdout`, `stderr` and `report` (see `Report`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import msgspec

from meshbook.kernel.outcome import Display, Outcome
from meshbook.kernel.ranks import cell


def serve() -> None:
    before = set(sys.modules)
    cell.warm()
    threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else threading.active_count()
    print(json.dumps({"threads": threads, "imported": sorted(set(sys.modules) - before)}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            run_rank(request["cells"], Path(request["folder"]))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def run_rank(cells: list[str], folder: Path) -> None:
    status = 1
    try:
        for fd, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), fd)
        displays: list[Display] = []
        outcomes: list[Outcome] = []
        seconds: list[float] = []
        shell = cell.CellShell({"rank": 3}, displays.append)
        for number, source in enumerate(cells, 1):
            start = time.perf_counter()
            outcomes.append(shell.run(source, run=number, name=f"cell {number}"))
            seconds.append(time.perf_counter() - start)
            sys.stdout.flush()
        (folder / "report").write_bytes(msgspec.msgpack.encode((outcomes, displays, seconds, time.time())))
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve()
