"""`python -m tests.chaos.families --seed 7 --steps 60`: actors that own actors fail at random, each told of as it must.

The same seed gives the same operations.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import meshbook.runtime
from meshbook.runtime import root, this_host
from meshbook.runtime import session as sessions

from ..driver import LAST, NUM_HOSTS, STEP_SECONDS, Overdue, deadline
from .choice import Choice
from .model import Unclear
from .world import Violation, World


def run_seed(seed: int, steps: int, engine: str, is_quiet: bool) -> bool:
    """Do it; whether all was as it must be. What was not is printed."""
    started, world, done = time.monotonic(), World(_starter(engine)), deque[str](maxlen=LAST)
    setattr(meshbook.runtime, "unhandled_fault_hook", world.on_fault)  # noqa: B010 - a module takes what it is given
    choice = Choice(seed, world.model, can_die=engine != "inproc")
    try:
        for number in range(steps):
            operation = choice.next()
            done.append(f"{number:5} {operation}")
            before = time.monotonic()
            try:
                with deadline(STEP_SECONDS):
                    world.do(operation)
            except Unclear:
                done[-1] += "  (unclear: not done)"
            if not is_quiet:
                print(f"{done[-1]}  {1000 * (time.monotonic() - before):.0f} ms", flush=True)
        with deadline(STEP_SECONDS):
            world.close()
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


def _starter(engine: str) -> Callable[[], Any]:
    """What starts processes of the client's."""
    if engine == "hosts":
        hosts = sessions.session().use_hosts(NUM_HOSTS)
        return lambda: sessions.spawn_procs({"r": 2}, hosts, backend="none")
    root.default_engine[:] = [engine]
    return lambda: this_host().spawn_procs({"r": 2})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.families", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="how many, one after the other (default: 1)")
    parser.add_argument("--steps", type=int, default=60, metavar="M", help="operations of each seed (default: 60)")
    parser.add_argument(
        "--on", choices=("local", "inproc", "hosts"), default="local", help="the engine (default: local)"
    )
    parser.add_argument("--quiet", action="store_true", help="print no steps, only what went wrong")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + args.seeds)
    ends = [run_seed(seed, args.steps, args.on, args.quiet) for seed in seeds]
    return 0 if all(ends) else 1


if __name__ == "__main__":
    sys.exit(main())
