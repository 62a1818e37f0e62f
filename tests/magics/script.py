"""A script that uses the library, for the debugger in another terminal: it does what it reads, a line each.

`METHOD ARGUMENT...` calls an endpoint and prints what came; `async PATH` one of an async actor.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import meshbook.runtime
from meshbook import Actor, SupervisionError, endpoint, this_host
from meshbook.runtime.session import ZYGOTE_MODULES, session, spawn_procs

ZYGOTE_MODULES.remove("torch?")  # these ranks need none


class Worker(Actor):
    @endpoint
    def loop(self) -> int:
        steps = 0
        go = True
        while go:
            steps += 1
        return steps // steps

    @endpoint
    def read(self, path: str) -> str:
        secret = 42
        open(path).close()
        return f"read {secret}"

    @endpoint
    def halt(self, x: str) -> int:
        y = int(x) + 1
        breakpoint()
        return y * 2

    @endpoint
    def trace(self) -> str:
        import pdb

        word = "traced"
        pdb.set_trace()
        return word


class Waiter(Actor):
    @endpoint
    async def hang(self, path: str) -> int:
        inner = 5
        while not Path(path).exists():
            await asyncio.sleep(0.05)
        return inner


def two() -> Any:
    """Two ranks, where the environment says."""
    on = os.environ.get("MESHBOOK_TEST_ON", "local")
    if on == "local":
        return this_host().spawn_procs({"dp": 2}, name="lab")
    procs = spawn_procs({"dp": 2}, session().use_hosts(2) if on == "hosts" else session().use_monarch(2))
    procs.roster.name = "lab"
    return procs


def main() -> None:
    meshbook.runtime.unhandled_fault_hook = list[Any]().append  # a rank that dies ends what waits for it alone
    with two() as procs:
        worker = procs.spawn("worker", Worker)
        waiter = procs.spawn("waiter", Waiter)
        worker.initialized.get()
        print("up", flush=True)
        while line := sys.stdin.readline():
            word, *rest = line.split()
            called = waiter.hang if word == "async" else getattr(worker, word)
            try:
                print(called.call(*rest).get().values(), flush=True)
            except SupervisionError as error:
                print(type(error).__name__, flush=True)


if __name__ == "__main__":
    main()
