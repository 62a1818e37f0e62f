"""Random stories: one operation after the other, each with what must be true after it. A seed gives one story."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import meshbook.runtime
from meshbook.runtime import MeshFailure, this_host
from meshbook.runtime import session as sessions
from meshbook.runtime.controller import root

from .driver import LAST, NUM_HOSTS, STEP_SECONDS, Overdue, deadline
from .verdicts import Unclear, Violation

Spawn = Callable[[dict[str, int]], Any]
"""What starts processes of the client's, of some axes and sizes."""


class Story(Protocol):
    """What happens to some meshes of one seed."""

    def next(self) -> Any:
        """The next operation, which says what it is as text."""
        ...

    def do(self, operation: Any, /) -> None:
        """Do it; `Violation` if anything is not as it must be, `Unclear` if it is not done."""
        ...

    def on_fault(self, failure: MeshFailure, /) -> None:
        """The hook for faults that nobody has handled."""
        ...

    def close(self) -> None:
        """Look at what is left, and stop it."""
        ...


def run_seed(story: Story, seed: int, steps: int, is_quiet: bool) -> bool:
    """Live it through; whether all was as it must be. What was not is printed."""
    started, done = time.monotonic(), deque[str](maxlen=LAST)
    setattr(meshbook.runtime, "unhandled_fault_hook", story.on_fault)  # noqa: B010 - a module takes what it is given
    try:
        for number in range(steps):
            operation = story.next()
            done.append(f"{number:5} {operation}")
            before = time.monotonic()
            try:
                with deadline(STEP_SECONDS):
                    story.do(operation)
            except Unclear:
                done[-1] += "  (unclear: not done)"
            if not is_quiet:
                print(f"{done[-1]}  {1000 * (time.monotonic() - before):.0f} ms", flush=True)
        with deadline(STEP_SECONDS):
            story.close()
    except (Exception, Overdue) as error:  # noqa: BLE001 - the rim: whatever it is, it is told
        print(f"\nVIOLATION by seed {seed} in the last of these operations:", *done, sep="\n  ")
        print(error if isinstance(error, Violation) else "".join(traceback.format_exception(error)), flush=True)
        faulthandler.dump_traceback(sys.stdout.fileno())
        return False
    finally:
        with deadline(STEP_SECONDS):
            sessions.close()
    print(f"seed {seed}: well, {time.monotonic() - started:.0f} s", flush=True)
    return True


def spawner(engine: str) -> Spawn:
    if engine == "hosts":
        hosts = sessions.session().use_hosts(NUM_HOSTS)
        return lambda sizes: sessions.spawn_procs(sizes, hosts, backend="none")
    root.default_engine[:] = [engine]
    return lambda sizes: this_host().spawn_procs(sizes)


def parser(name: str, description: str | None, steps: int) -> argparse.ArgumentParser:
    """What every teller of stories understands."""
    made = argparse.ArgumentParser(prog=f"python -m {name}", description=description)
    made.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed (default: 0)")
    made.add_argument("--seeds", type=int, default=1, metavar="K", help="how many, one after the other (default: 1)")
    made.add_argument(
        "--steps", type=int, default=steps, metavar="M", help=f"operations of each seed (default: {steps})"
    )
    made.add_argument("--quiet", action="store_true", help="print no steps, only what went wrong")
    return made


def tell(args: argparse.Namespace, begin: Callable[[int], Story]) -> int:
    """Tell the stories of all seeds; the exit code."""
    seeds = range(args.seed, args.seed + args.seeds)
    ends = [run_seed(begin(seed), seed, args.steps, args.quiet) for seed in seeds]
    return 0 if all(ends) else 1
