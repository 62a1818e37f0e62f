"""`python -m tests.chaos.tensors --seed 7 --steps 150`: random programs on distributed tensors, compared with torch.

With `--presses`, programs are interrupted at random, and must go on. The same seed gives the same operations; when
exactly a press hits, the machine decides.
"""

from __future__ import annotations

import sys

from ..story import parser, spawner, tell
from .presses import Presses
from .world import World


def main() -> int:
    options = parser("tests.chaos.tensors", __doc__, steps=150)
    options.add_argument("--on", choices=("local", "hosts"), default="local", help="the engine (default: local)")
    options.add_argument("--presses", action="store_true", help="each step is a program into which Ctrl-C is pressed")
    args = options.parse_args()
    return tell(args, lambda seed: (Presses if args.presses else World)(seed, spawner(args.on)))


if __name__ == "__main__":
    sys.exit(main())
