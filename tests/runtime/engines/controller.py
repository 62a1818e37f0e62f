"""A program that controls a mesh and ends in the way it is told: `controller.py WAY`. Says its pids in JSON first."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[3]))

from meshbook.runtime import session
from meshbook.runtime.controller.spares import keep_spares
from meshbook.runtime.errors import SupervisionError
from meshbook.runtime.mesh import ProcMesh
from tests.runtime.actors import Worker

session.ZYGOTE_MODULES[:] = ["meshbook.runtime.ranks.worker"]

ENGINE = os.environ.get("CONTROLLER_ENGINE", "local")

OCCUPATIONS = [
    "0",  # idle
    "print('in', flush=True)\nwhile True: pass",
    "import ctypes\nprint('in', flush=True)\nctypes.PyDLL(None).sleep(1000)",  # holds the GIL
    "import os, signal\nprint('in', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)",
    "import subprocess\nactor.child = subprocess.Popen(['sleep', '1000'])\nprint('in', actor.child.pid, flush=True)",
    "import signal as s\ns.pthread_sigmask(s.SIG_BLOCK, s.valid_signals())\nprint('in', flush=True)\nwhile True: pass",
]


def up(num_ranks: int) -> tuple[ProcMesh, Worker]:
    engine = session.session().use_hosts(2) if ENGINE == "hosts" else ENGINE
    procs = session.spawn_procs({"rank": num_ranks}, engine, backend="none", path=sys.path)
    workers = procs.spawn("workers", Worker)
    workers.initialized.get(20)
    return procs, workers


def occupy(procs: ProcMesh, workers: Worker) -> list[int]:
    """Give each rank something to do; all processes there are then."""
    for rank, source in enumerate(OCCUPATIONS):
        workers.slice(rank=rank).do.call(source)
    logs = procs.roster.logs
    while not all("in" in logs[rank].read() for rank in range(1, len(OCCUPATIONS))):
        time.sleep(0.001)
    stopped = psutil.Process(procs.roster.states[3].pid)
    while stopped.status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)
    return [child.pid for child in psutil.Process().children(recursive=True)]


def say(**facts: Any) -> None:
    print(json.dumps(facts) + "\n", end="", flush=True)  # at once: what ranks print may come between two writes


def end(way: str) -> None:
    if way == "raise":
        raise ValueError("the program failed")
    if way == "_exit":
        os._exit(4)
    if way == "sys.exit":
        sys.exit(5)
    if way in ("wait", "fork"):
        threading.Event().wait()


def be_forked(workers: Worker) -> None:
    """In a child of the controller: the mesh is not its own."""
    try:
        workers.add.call(1).get(5)
    except SupervisionError as error:
        say(pids=[], error=str(error))
    threading.Event().wait()


def play(workers: Worker, procs: ProcMesh) -> None:
    """Children of the controller that end in all ways, and leave the mesh as it is."""
    pending = workers.do.call("while 'go' not in actor.steps: pass\n'went'")
    for leave in (lambda: sys.exit(0), lambda: os._exit(0), lambda: procs.__exit__(None, None, None)):
        if (pid := os.fork()) == 0:
            leave()
            session.close()
            os._exit(0)
        os.waitpid(pid, 0)
    process = multiprocessing.get_context("fork").Process(target=own_mesh)
    process.start()
    process.join()
    say(done=pending.done(), states=[state.name for state in procs.roster.states.values()], own=process.exitcode)
    procs.stop().get()


def own_mesh() -> None:
    """A forked child may have a mesh of its own."""
    _, workers = up(2)
    assert workers.add.call(1).get(10).values() == [1, 1]
    session.close()


def main(way: str) -> None:
    if way == "play":
        procs, workers = up(2)
        play(workers, procs)
        return
    procs, workers = up(len(OCCUPATIONS))
    if ENGINE == "local":  # the other keeps none
        keep_spares(procs.roster, 1)
        while procs.roster.crew.num_spares != (1, 1):
            time.sleep(0.001)
    say(pids=occupy(procs, workers))
    if way == "fork" and os.fork() == 0:
        be_forked(workers)
    end(way)


if __name__ == "__main__":
    main(sys.argv[1])
