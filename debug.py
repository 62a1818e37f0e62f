"""`python -m meshbook.debug`: the debugger in a terminal, for the ranks of a script (or of a notebook) that runs."""

from __future__ import annotations

import sys

from .magics.attach import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
