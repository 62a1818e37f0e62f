"""What `make bench` runs: each promise about speed as a ratio, measured here and now.

    python benchmarks/run.py [NAME ...] [--quick] [--against COMMIT]

A number over its target is told, never a failure: the machine may be busy. A wrong answer or a lost line is one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module

from against import compare
from measure import Row, heading

from meshbook.runtime import session

BENCHMARKS = (
    *("call", "actors", "payload", "tensors", "logs", "idle", "faults", "debugger", "hot_line", "results", "stacks"),
    *("cell", "spawn", "dashboard", "scale", "peers"),
)
"""Modules, each imported when it is run: with an older meshbook (`--against`) some find not all that they import.

Small meshes come first: what 256 ranks leave behind makes a cell half a millisecond slower for a while.
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="few repeats and small meshes: does it work at all?")
    parser.add_argument("--against", metavar="COMMIT", help="the same with another commit's meshbook, in turns")
    parser.add_argument("--own", action="store_true", help="that commit by its own benchmarks: ours do not know it")
    parser.add_argument("--rows", action="store_true", help="no table, but a line of JSON for each row")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}: there are {', '.join(BENCHMARKS)}")
    names = options.names or BENCHMARKS
    if options.against:
        return compare(options.against, names, options.quick, options.own)
    try:
        return tell_rows(names, options.quick) if options.rows else run(names, options.quick)
    finally:
        session.close()


def run(names: Sequence[str], is_quick: bool) -> int:
    """Print the table as it comes; 1 if a benchmark is broken."""
    started = time.monotonic()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}{', quick: not to be quoted' * is_quick}\n")
    print(heading(), flush=True)
    broken = [name for name in names if not is_sound(name, is_quick)]
    print(f"\n{time.monotonic() - started:.0f} s" + (f"; BROKEN: {', '.join(broken)}" if broken else ""))
    return 1 if broken else 0


def tell_rows(names: Sequence[str], is_quick: bool) -> int:
    """The same for a program."""
    broken = [name for name in names if not is_sound(name, is_quick, lambda row, _: json.dumps(asdict(row)))]
    return 1 if broken else 0


def is_sound(name: str, is_quick: bool, told: Callable[[Row, float], str] = Row.text) -> bool:
    """Print the rows of one benchmark; whether it came to its end."""
    load = os.getloadavg()[0]  # before: 256 ranks that wake up raise it themselves
    try:
        for row in import_module(name).measure(is_quick):
            print(told(row, load), flush=True)
    except Exception:  # noqa: BLE001 - the others are measured all the same, and the exit code tells
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
