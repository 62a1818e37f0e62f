"""`python -m tests.chaos.notebooks --seed 7 --steps 100`: random cells in a real kernel, compared with a model.

The same seed gives the same cells.
"""

from __future__ import annotations

import sys

from ..story import parser, tell
from .world import World


def main() -> int:
    options = parser("tests.chaos.notebooks", __doc__, steps=100)
    options.add_argument("--on", choices=("local", "hosts"), default="local", help="the engine (default: local)")
    options.add_argument("--presses", action="store_true", help="press Ctrl-C now and then")
    args = options.parse_args()
    return tell(args, lambda seed: World(seed, args.on, with_presses=args.presses))


if __name__ == "__main__":
    sys.exit(main())
