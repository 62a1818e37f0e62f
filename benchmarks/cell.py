"""A trivial `%%on_mesh` cell, its result shown, over a plain cell in the same kernel; and what one more rank adds."""

from __future__ import annotations

from collections.abc import Iterator

from front_end import Notebook
from measure import Row, check, medians, seconds_text

MOST = {4: 1.0, 8: 1.5}
"""By number of ranks: milliseconds that a cell may take longer than a plain one."""

AIM = {4: 0.5, 8: 0.8}

SLOPE = 30.0
"""Microseconds that each further rank may add."""

INSIDE = """
import json, statistics, time
magic, taken = get_ipython().run_cell_magic, {{size: [] for size in {sizes}}}
for _ in range({repeats}):
    for size, times in taken.items():
        started = time.perf_counter()
        magic("on_mesh", f"-m m{{size}}", "1")
        times.append(time.perf_counter() - started)
print(json.dumps([statistics.median(times) for times in taken.values()]))
"""


def measure(is_quick: bool) -> Iterator[Row]:
    with Notebook() as notebook:
        notebook.execute("%load_ext meshbook")
        yield from over_a_plain_cell(notebook, 20 if is_quick else 200)
        yield from slope(notebook, [8, 32] if is_quick else [8, 64, 256], 5 if is_quick else 40)


def over_a_plain_cell(notebook: Notebook, repeats: int) -> Iterator[Row]:
    """As the reader of a notebook feels it: from the request until the kernel is idle again."""
    for size in MOST:
        notebook.execute(f"%mesh up m{size} dp={size}")
    works = {"plain": lambda: shown(notebook, "1"), **{str(n): lambda n=n: on_mesh(notebook, n) for n in MOST}}
    medians(5, works)
    times = medians(repeats, works)
    plain = times["plain"]
    for size, most in MOST.items():
        more = (times[str(size)] - plain) * 1e3
        name = f"cell on {size} ranks (aim +{AIM[size]} ms)"
        yield Row(name, seconds_text(times[str(size)]), f"{seconds_text(plain)} plain cell", more, "ms more", most)


def shown(notebook: Notebook, code: str) -> float:
    done = notebook.execute(code)
    check(done.shown == ["1"], f"{code} showed {done}")
    return done.seconds


def on_mesh(notebook: Notebook, size: int) -> float:
    done = notebook.execute(f"%%on_mesh -m m{size}\n1")
    check(len(done.shown) == 1 and done.shown[0].startswith(f"1   ranks 0-{size - 1}"), f"{size} ranks showed {done}")
    return done.seconds


def slope(notebook: Notebook, sizes: list[int], repeats: int) -> Iterator[Row]:
    """The magic alone, timed inside the kernel, with all that it publishes."""
    for size in sizes:
        if size not in MOST:
            notebook.execute(f"%mesh up m{size} dp={size}")
        on_mesh(notebook, size)
    times = notebook.evaluate(INSIDE.format(sizes=sizes, repeats=repeats))
    first, last = sizes[0], sizes[-1]
    told = ", ".join(f"{size}: {seconds_text(seconds)}" for size, seconds in zip(sizes, times, strict=True))
    per_rank = (times[-1] - times[0]) / (last - first) * 1e6
    yield Row(f"each rank more, {first} to {last} ranks", "", told, per_rank, "us", SLOPE)
