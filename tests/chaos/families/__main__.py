"""`python -m tests.chaos.families --seed 7 --steps 60`: actors that own actors fail at random, each told of as it must.

The same seed gives the same operations.
"""

from __future__ import annotations

import sys

from ..story import parser, spawner, tell
from .world import World


def main() -> int:
    options = parser("tests.chaos.families", __doc__, steps=60)
    options.add_argument(
        "--on", choices=("local", "inproc", "hosts"), default="local", help="the engine (default: local)"
    )
    args = options.parse_args()
    return tell(args, lambda seed: World(seed, spawner(args.on), can_die=args.on != "inproc"))


if __name__ == "__main__":
    sys.exit(main())
