"""One seed from beginning to end: a mesh comes up, operations are done on it, it goes down, and nothing is left."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

import meshbook.runtime
from meshbook.kernel.mesh import Mesh
from meshbook.runtime import session as sessions
from meshbook.runtime.controller.gather import Gather
from meshbook.runtime.numbers import STEWARD
from meshbook.runtime.wire import codec
from tests.holdings import TOKEN, Holdings, left_since

from .choice import Choice
from .verdicts import Violation
from .world import World

STEP_SECONDS = 20.0
"""Seconds in which every operation must come to its end."""

PLACES: dict[str, dict[str, Any]] = {
    "local": {},
    "exec": {"how": "exec", "preload": ["torch"]},
    "spares": {"how": "exec", "spares": 1, "preload": ["torch"]},
    "zmq": {"link": "zmq"},
    "zmq-tcp": {"link": "zmq-tcp"},
    "hosts": {},
}
"""Where meshes come up, and how: what `Mesh.up` is told."""

NUM_HOSTS = 2

LAST = 30
"""Operations that are told again where one went wrong."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done."""

    seed: int
    steps: int
    ranks: int
    is_quiet: bool = False
    place: str = "local"


class Overdue(BaseException):
    """An operation has not come to its end in time. Nothing on the way may catch it."""


def run_seed(plan: Plan) -> bool:
    """Do it; whether all was as it must be. What was not is printed, with what it takes to see it again."""
    started = time.monotonic()
    _hear_no_faults()
    with _private_folder() as folder:
        before = Holdings.now()
        is_well = _perform(plan, folder)
        left = [*left_since(before), *_left_in(folder)]
    for line in left:
        print(f"LEFT BEHIND by seed {plan.seed}: {line}", flush=True)
    is_well = is_well and not left
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    verdict = "well" if is_well else "VIOLATED"
    print(f"seed {plan.seed}: {verdict}, {time.monotonic() - started:.0f} s, load {load}", flush=True)
    return is_well


def _perform(plan: Plan, folder: Path) -> bool:
    """All operations, until one goes wrong; then the end of everything."""
    flags = folder / "flags"
    flags.mkdir()
    done: deque[str] = deque(maxlen=LAST)
    world: World | None = None
    try:
        with deadline(60.0):
            axes = {"dp": plan.ranks // 2, "tp": 2}
            engine = sessions.session().use_hosts(NUM_HOSTS) if plan.place == "hosts" else "local"
            env = {"CHAOS_FLAGS": str(flags)}
            mesh = Mesh.up("chaos", axes, engine=engine, path=sys.path, env=env, **PLACES[plan.place])
            world = World(mesh, flags)
        _steps(plan, world, done)
        with deadline(STEP_SECONDS):
            world.close()
        return True
    except (Exception, Overdue):  # noqa: BLE001 - the rim: whatever it is, it is told, with all it takes to find it
        _tell(plan, world, done)
        return False
    finally:
        with deadline(STEP_SECONDS):
            sessions.close()


def _steps(plan: Plan, world: World, done: deque[str]) -> None:
    choice = Choice(plan.seed)
    for number in range(plan.steps):
        operation = choice.next(world.model)
        done.append(f"{number:5} {operation}")
        started = time.monotonic()
        with deadline(STEP_SECONDS):
            world.do(operation)
        if not plan.is_quiet:
            print(f"{done[-1]}  {1000 * (time.monotonic() - started):.0f} ms", flush=True)


def _tell(plan: Plan, world: World | None, done: deque[str]) -> None:
    error = sys.exc_info()[1]
    again = f"python -m tests.chaos --seed {plan.seed} --steps {plan.steps} --ranks {plan.ranks} --on {plan.place}"
    print(f"\nVIOLATION in the last of these operations (again: {again}):", *done, sep="\n  ")
    print(error if isinstance(error, Violation) else "".join(traceback.format_exception(error)), flush=True)
    if world is not None:
        with contextlib.suppress(Exception, Overdue), deadline(STEP_SECONDS):
            print(f"states: {world.mesh.states()}; model: {world.model}")
            print(world.mesh.stacks(), flush=True)
            print(world.mesh.ledger(), flush=True)
            print(_groups(world), flush=True)
            for rank in world.model.everyone:
                print(f"last words of rank {rank}:", *world.mesh.roster.last_words(rank), sep="\n", flush=True)
        _spy([world.mesh.roster.states[rank].pid for rank in world.mesh.roster.alive()])
    faulthandler.dump_traceback(sys.stdout.fileno())


def _groups(world: World) -> str:
    """The process groups of each rank by name, with what they have issued; and the TCP connections of its process."""
    roster = world.mesh.roster
    asked = Gather(roster, roster.alive(), "sequences")
    roster.ask(roster.alive(), STEWARD, "sequences", codec.encode(((), {})), asked)
    asked.wait(1.0)
    lines = [f"generation {roster.groups.generation}, store at rank {roster.groups.store_rank}"]
    for rank in roster.alive():
        lines.append(f"rank {rank}: {asked.answers.get(rank)}")
        for each in psutil.Process(roster.states[rank].pid).net_connections("tcp"):
            lines.append(f"  {each.status} {each.laddr and each.laddr.port} -> {each.raddr and each.raddr.port}")
    return "\n".join(lines)


def _spy(pids: Sequence[int]) -> None:
    """Every frame of every thread of these processes, where py-spy and gdb are there."""
    spy = shutil.which("py-spy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    for pid in pids if spy is not None else ():
        subprocess.run([str(spy), "dump", "--native", "--pid", str(pid)], timeout=STEP_SECONDS, check=False)
    debugger = shutil.which("gdb")
    for pid in pids if debugger is not None else ():
        command = [str(debugger), "-batch", "-p", str(pid), "-ex", "thread apply all bt 12"]
        subprocess.run(command, timeout=10 * STEP_SECONDS, check=False, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """What is inside must end in time: else `Overdue`, and soon after it, should nothing hear that, the process."""

    def ring(_: int, frame: FrameType | None) -> None:
        where = "".join(traceback.format_stack(frame))
        raise Overdue(f"not done after {seconds:g} s:\n{where}")

    former = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(3 * seconds, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, former)


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    """A place for all temporary files, also of the ranks; and a press of the stop button that comes late is nothing."""
    former = signal.signal(signal.SIGINT, lambda *_: None)
    os.environ.setdefault(TOKEN, uuid.uuid4().hex)
    was = os.environ.get("TMPDIR")
    try:
        with tempfile.TemporaryDirectory(prefix="chaos-") as name:
            os.environ["TMPDIR"] = os.environ["MESHBOOK_STATE"] = name
            tempfile.tempdir = None
            yield Path(name)
    finally:
        tempfile.tempdir = None
        if was is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = was
        signal.signal(signal.SIGINT, former)


def _left_in(folder: Path) -> list[str]:
    """But for the flags of this program, and the folder that torch makes as its compiler is imported."""
    paths = [path for path in folder.rglob("*") if "flags" not in (path.name, path.parent.name)]
    return [f"file {path}" for path in paths if not path.name.startswith("torchinductor_")]


def _hear_no_faults() -> None:
    """That a rank of an actor has died would else end this program, which killed it."""
    setattr(meshbook.runtime, "unhandled_fault_hook", lambda _: None)  # noqa: B010 - a module takes what it is given
