"""`python -m tests.chaos --seed 7 --steps 1000`: random operations on real ranks, each with what must be true after it.

The same seed gives the same operations; when exactly a signal hits, the machine decides.
"""

from __future__ import annotations

import argparse
import sys

from .driver import PLACES, Plan, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="how many, one after the other (default: 1)")
    parser.add_argument("--steps", type=int, default=1000, metavar="M", help="operations of each seed (default: 1000)")
    parser.add_argument("--ranks", type=int, default=4, choices=(2, 4, 6, 8), help="ranks of the mesh (default: 4)")
    parser.add_argument("--on", choices=PLACES, default="local", help="where and how ranks come up (default: local)")
    parser.add_argument("--quiet", action="store_true", help="print no steps, only what went wrong")
    args = parser.parse_args()
    plans = [
        Plan(seed, args.steps, args.ranks, args.quiet, args.on) for seed in range(args.seed, args.seed + args.seeds)
    ]
    return 0 if all(run_seed(plan) for plan in plans) else 1


if __name__ == "__main__":
    sys.exit(main())
