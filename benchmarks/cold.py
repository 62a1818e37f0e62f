"""A fresh process in which IPython is there, as in a notebook's kernel: `%load_ext` to the first torch cell of 8 ranks.

Prints the seconds. A program of its own, because a zygote is cold only once.
"""

from __future__ import annotations

import sys
import time

from IPython.core.interactiveshell import InteractiveShell


def main(num_ranks: int) -> None:
    shell = InteractiveShell.instance()
    started = time.perf_counter()
    shell.run_line_magic("load_ext", "meshbook")
    shell.run_line_magic("mesh", f"up dp={num_ranks}")
    shell.run_cell_magic("on_mesh", "-o first", "import torch\ntorch.ones(3).sum().item()")
    seconds = time.perf_counter() - started
    assert shell.user_ns["first"].values() == [3.0] * num_ranks
    shell.run_line_magic("unload_ext", "meshbook")
    print(f"\n{seconds}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
