"""What a mesh costs its controller: straight lines through what was measured, and what they say of larger meshes. Pure.

`scale` measures; `docs/planning.md` shows the table that `table` makes of `MEASURED`, and a test holds it to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds: some in any case, and some for each further one."""

    base: float
    each: float

    def at(self, count: int) -> float:
        return self.base + self.each * count

    def __str__(self) -> str:
        """In microseconds: `640 us + 28.1 us` each."""
        return f"{self.base * 1e6:,.0f} us + {self.each * 1e6:,.1f} us"


def fit(points: Mapping[int, float]) -> Line:
    """The line of least squares through seconds by number.

    Example:
        >>> fit({8: 0.0008, 16: 0.0010, 32: 0.0014})
        Line(base=0.0006, each=2.5e-05)
    """
    slope, base = linear_regression(list(points), list(points.values()))
    return Line(round(base, 9), round(slope, 9))


@dataclass(frozen=True, slots=True)
class OnHosts:
    """Seconds by number of ranks, as measured on `num_hosts` hosts, and for each further host."""

    ranks: Line
    num_hosts: int
    host: float

    def at(self, ranks: int, hosts: int) -> float:
        return self.ranks.at(ranks) + self.host * (hosts - self.num_hosts)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the controller's CPU."""

    here: Line
    """Of a cell by number of ranks, where the controller speaks to each itself."""
    hosts: OnHosts
    """Of a cell where it speaks to their hosts."""
    idle: OnHosts
    """Of a second in which nothing runs on those."""
    equal: Line
    """Of a result in which all ranks say the same, made into text and HTML."""
    different: Line
    """Of a result in which each rank says something else."""
    dashboard: Line
    """Of a second of a dashboard in which every rank changes four times."""


MEASURED = Costs(
    here=Line(161e-6, 32.0e-6),
    hosts=OnHosts(Line(783e-6, 9.7e-6), 2, 152e-6),
    idle=OnHosts(Line(2141e-6, 1.5e-6), 2, 926e-6),
    equal=Line(0.0, 10.7e-6),
    different=Line(0.0, 42.1e-6),
    dashboard=Line(0.0, 18.2e-6),
)
"""By `make bench ARGS=scale` on 2 shared cores (AMD EPYC, virtual), Python 3.11, at a load of 9; 8 to 512 ranks on 2
hosts, 8 ranks on 1 to 4 hosts, made-up results of up to 100,000 ranks and dashboards of up to 16,384.

Results and dashboards are lines through zero and the largest that was measured.
"""

PLANNED = (8, 512, 1000, 10_000, 100_000)
"""Ranks in the table of the page, 8 to a host, with 32 hosts below each in a tree."""

PER_HOST, FAN_OUT = 8, 32


def table(costs: Costs, sizes: Sequence[int], per_host: int, fan_out: int) -> list[str]:
    """The rows of a Markdown table: by number of ranks what a cell costs each way, its result, and the rest."""
    heads = ("ranks", "flat", "by host", "tree", "all equal", "all different", "idle", "tree, idle", "dashboard")
    rows = [f"| {' | '.join(heads)} |", "|--:" * len(heads) + "|"]
    for size in sizes:
        hosts = -(-size // per_host)
        top = min(hosts, fan_out)
        cells = (
            f"{size:,}",
            rounded(costs.here.at(size)),
            rounded(costs.hosts.at(size, hosts)),
            rounded(costs.hosts.at(size, top)),
            rounded(costs.equal.at(size)),
            rounded(costs.different.at(size)),
            share(costs.idle.at(size, hosts)),
            share(costs.idle.at(size, top)),
            share(costs.dashboard.at(size)),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def rounded(seconds: float) -> str:
    """Two digits: a model knows no more.

    Example:
        >>> rounded(0.000987), rounded(0.0234), rounded(1.98), rounded(42.2)
        ('0.99 ms', '23 ms', '2.0 s', '42 s')
    """
    amount, unit = (seconds, "s") if seconds >= 0.9995 else (seconds * 1e3, "ms")
    return f"{amount:.{2 if amount < 1 else 1 if amount < 10 else 0}f} {unit}"


def share(seconds: float) -> str:
    """Seconds of each second as a share of a core; more than one core there is not.

    Example:
        >>> share(0.0012), share(0.34), share(1.7)
        ('0.1 %', '34 %', 'too much')
    """
    percent = seconds * 100
    return "too much" if percent > 100 else f"{percent:.{1 if percent < 10 else 0}f} %"
