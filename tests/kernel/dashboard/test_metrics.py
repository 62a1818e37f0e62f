"""Metrics of real ranks: what `meshbook.log` reports is there when the cell has ended, and after the mesh."""

from __future__ import annotations

import math
import sys

import pytest

from meshbook.kernel.dashboard.metrics import Metrics
from meshbook.kernel.mesh import Mesh

CELL = """
import meshbook
for step in meshbook.progress(range(50), desc="steps"):
    meshbook.log(step=step, loss=rank + step / 100)
"""


@pytest.mark.parametrize("kind", ["inproc", pytest.param("local", marks=pytest.mark.real)])
def test_what_ranks_report_is_there_at_once_and_stays(kind: str, engine: str) -> None:
    with Mesh.up("m", {"dp": 2}, engine=kind, backend="none", path=sys.path) as mesh:
        run = mesh.run(CELL).finished.get(30)
        assert not run.progress.failed
        metrics = mesh.metrics()
        assert [metrics["loss"][rank][-1][:2] for rank in (0, 1)] == [(49.0, 0.49), (49.0, 1.49)]
        loop = mesh.roster.meters.loop(1)
        assert loop is not None and (loop.state.done, loop.state.total, loop.state.is_over) == (50, 50, True)
    after = mesh.metrics()
    assert after.data() == metrics.data()
    assert "loss  step 49  median 0.99  range 0.49 to 1.49  2 ranks" in repr(after)


def test_metrics_as_a_table() -> None:
    pytest.importorskip("pandas")
    metrics = Metrics({"loss": {0: [(0.0, 0.5, 9.0)], 3: [(0.0, math.nan, 9.1)]}}, {"dp": 2, "tp": 2})
    frame = metrics.to_pandas()
    assert list(frame.columns) == ["name", "rank", "dp", "tp", "step", "value", "time"]
    assert frame.loc[1, ["rank", "dp", "tp"]].tolist() == [3, 1, 1]
    assert str(frame["time"].dtype).startswith("datetime64") and frame["time"][0].year == 1970
    assert repr(metrics).endswith("  2 ranks, 2 points, 1 nan")
    assert list(metrics) == ["loss"] and len(metrics) == 1


def test_a_mesh_without_reports_says_how_to_make_some() -> None:
    assert "meshbook.log" in repr(Metrics({}, {"dp": 2}))
