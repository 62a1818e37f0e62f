"""The page on planning says what its model says."""

from __future__ import annotations

import doctest
import importlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> Generator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("scaling")
    del sys.modules["scaling"]


@pytest.fixture
def page() -> str:
    return (ROOT / "docs" / "planning.md").read_text()


def test_the_table_of_the_page_is_that_of_the_model(scaling: Any, page: str):
    rows = scaling.table(scaling.MEASURED, scaling.PLANNED, scaling.PER_HOST, scaling.FAN_OUT)
    assert "\n".join(rows) in page, "benchmarks/scaling.py makes another table"


def test_the_figures_of_the_page_are_those_of_the_model(scaling: Any, page: str):
    costs = scaling.MEASURED
    lines = (costs.here, costs.hosts.ranks, costs.idle.ranks, costs.equal, costs.different, costs.dashboard)
    hosts = (costs.hosts.host, costs.idle.host)
    figures = [*map(str, lines), *(f"{seconds * 1e6:,.0f} us a host" for seconds in hosts)]
    assert [figure for figure in figures if figure not in page] == []


def test_each_host_and_each_rank_is_paid_for(scaling: Any):
    on_hosts = scaling.OnHosts(scaling.Line(1.0, 0.25), 2, 0.5)
    assert [on_hosts.at(ranks, hosts) for ranks, hosts in ((0, 2), (8, 2), (8, 4), (8, 1))] == [1.0, 3.0, 4.0, 2.5]


def test_a_tree_saves_what_hosts_cost_and_no_more(scaling: Any):
    line = scaling.Line(0.0, 0.001)
    on_hosts = scaling.OnHosts(line, 0, 0.01)
    costs = scaling.Costs(line, on_hosts, on_hosts, line, line, line)
    row = scaling.table(costs, [1000], per_host=10, fan_out=20)[-1]
    # 100 hosts, of which 20 are spoken to; as shares of a core what is more than a second is too much
    assert row == "| 1,000 | 1.0 s | 2.0 s | 1.2 s | 1.0 s | 1.0 s | too much | too much | 100 % |"


def test_a_line_goes_through_what_was_measured(scaling: Any):
    line = scaling.fit({8: 0.0012, 64: 0.004, 512: 0.0264})
    assert [round(line.at(number), 6) for number in (8, 64, 512)] == [0.0012, 0.004, 0.0264]


def test_its_examples_run(scaling: Any):
    assert doctest.testmod(scaling).failed == 0
