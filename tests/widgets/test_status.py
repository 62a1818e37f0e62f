"""What is told of a mesh: its banner, its list, the state of its ranks, without a mesh behind them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.runtime.controller.roster import RankState
from meshbook.runtime.engines.base import Exit
from meshbook.widgets.status import MeshList, Status, banner, group_words


class _Spares:
    num_spares = (2, 1)


class _Roster:
    num_spares = 0
    crew = _Spares()

    def __init__(self, states: Mapping[int, RankState]) -> None:
        self.states = states


class Still:
    """A mesh that does not move."""

    def __init__(self, axes: Mapping[str, int], states: Mapping[int, str], name: str = "m") -> None:
        self.name, self.axes, self.num_ranks, self.is_down = name, dict(axes), len(states), False
        self.python, self.num_looks = "", 0
        self._states = dict(states)
        self.roster = _Roster({rank: self._rank(rank, state) for rank, state in states.items()})

    @staticmethod
    def _rank(rank: int, state: str) -> RankState:
        exit = Exit(None, 9) if state == "dead" else None
        calls = [7] if state == "busy" else []
        return RankState(rank, is_ready=True, open_calls=calls, exit=exit, since=time.monotonic() - 3)

    def states(self) -> dict[int, str]:
        self.num_looks += 1
        return self._states

    def where(self, ranks: list[int], timeout: float = 0.5) -> dict[int, str]:
        return {rank: "cell <5> line 2" for rank in ranks if self._states[rank] == "busy"}

    def held_by_errors(self, ranks: list[int]) -> dict[int, int]:
        return {rank: 4_400_000_000 for rank in ranks if self._states[rank] == "failed"}


def still(axes: Mapping[str, int], *states: str, name: str = "m") -> Any:
    return cast("Mesh", Still(axes, dict(enumerate(states)), name))


def test_a_row_for_each_rank_with_its_state_and_line() -> None:
    mesh = still({"dp": 2, "tp": 2}, "idle", "busy", "failed", "dead")
    lines = repr(Status(mesh, range(4))).splitlines()
    assert lines[0] == "mesh m   dp=2 × tp=2   1 idle, 1 busy, 1 failed, 1 dead"
    assert [line.partition(" for ")[0] for line in lines[1:]] == [
        "● rank 0 (dp=0,tp=0)  idle",
        "▶ rank 1 (dp=0,tp=1)  busy",
        "✗ rank 2 (dp=1,tp=0)  failed",
        "✝ rank 3 (dp=1,tp=1)  dead",
    ]
    assert "cell <5> line 2" in lines[2]
    assert lines[3].endswith("holds 4.1 GB for post-mortem")
    assert "SIGKILL" in lines[4]


def test_very_many_ranks_are_a_line_a_state_and_all_of_them_below_it() -> None:
    states = ["busy" if rank == 7 else "dead" if rank > 20 else "idle" for rank in range(24)]
    status = Status(still({"dp": 6, "tp": 4}, *states), range(24))
    first, *lines = repr(status).splitlines()
    assert first.endswith("20 idle, 1 busy, 3 dead")
    assert [line.partition(" for ")[0] for line in lines] == [
        "● ranks 0-6,8-20 (dp=(0,2-4),tp=0-3 · dp=1,tp=0-2 · dp=5,tp=0)  idle",
        "▶ rank 7 (dp=1,tp=3)  busy",
        "✝ ranks 21-23 (dp=5,tp=1-3)  dead",
    ]
    html = status._repr_html_()  # pyright: ignore[reportPrivateUsage]
    glance, _, below = html.partition("<summary>all 24 ranks</summary>")
    assert (glance.count("<tr"), below.count("<tr")) == (4, 25)
    assert len(status.data()) == 24


def test_its_html_escapes_and_marks_what_is_bad() -> None:
    html = Status(still({"dp": 3}, "idle", "busy", "dead"), range(3))._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "cell &lt;5&gt; line 2" in html
    assert "<5>" not in html
    assert html.count("<tr") == 4
    assert html.count('class="mb-bad"') == 1


def test_its_data_can_be_read_by_programs() -> None:
    row = Status(still({"dp": 2}, "idle", "busy"), [1]).data()[0]
    assert (row["rank"], row["coord"], row["state"], row["at"]) == (1, {"dp": 1}, "busy", "cell <5> line 2")
    assert 3 <= row["seconds"] < 60
    assert row["pid"] is None


def test_a_row_of_ranks_has_no_coordinates() -> None:
    assert "● rank 0  idle" in repr(Status(still({"rank": 1}, "idle"), [0]))


def test_the_list_marks_the_current_mesh() -> None:
    meshes = [still({"dp": 1}, "idle", name="a"), still({"rank": 3}, "idle", "busy", "idle", name="b")]
    assert repr(MeshList(meshes, "b")).splitlines() == [
        "  a   dp=1 · 1 ranks · idle 0",
        "* b   rank=3 · 3 ranks · idle 0,2, busy 1",
    ]
    assert [row["is_current"] for row in MeshList(meshes, "b").data()] == [False, True]
    assert repr(MeshList([], None)) == "no mesh: bring one up with `%mesh up dp=2`"


def test_all_processes_are_looked_at_as_often_for_many_ranks_as_for_few() -> None:
    meshes = still({"dp": 2}, *["idle", "busy"]), still({"dp": 64}, *["idle", "busy"] * 32)
    for mesh in meshes:
        Status(mesh, range(mesh.num_ranks))
    assert meshes[0].num_looks == meshes[1].num_looks


def test_the_banner_is_one_line() -> None:
    shown = banner(still({"dp": 2, "tp": 2}, *["idle"] * 4), "cpu", "auto", 1.2345)
    assert shown["text/plain"] == "mesh m   dp=2 × tp=2 · 4 ranks on cpu · gloo · ready in 1.23 s"
    assert 'aria-label="4 ranks: 4 idle"' in shown["text/html"]


@pytest.mark.parametrize(
    ("device", "backend", "words"),
    [
        ("cpu", "auto", ["gloo"]),
        ("cuda", "auto", ["nccl"]),
        ("cuda", "gloo", ["gloo"]),
        ("cpu", "none", ["no process group"]),
    ],
)
def test_the_banner_names_the_process_group(device: str, backend: str, words: list[str]) -> None:
    assert group_words(device, backend) == words


def test_gpus_that_ranks_share_are_told() -> None:
    shown = banner(still({"dp": 4}, *["idle"] * 4), "cuda/1", "auto", 0.1)["text/plain"]
    assert shown == "mesh m   dp=4 · 4 ranks on 1 shared GPU · nccl · ready in 0.10 s"


def test_spares_are_told() -> None:
    mesh = Still({"dp": 2}, {0: "idle", 1: "idle"})
    mesh.roster.num_spares = 2
    shown = banner(cast("Mesh", mesh), "cpu", "auto", 0.1)["text/plain"]
    assert shown == "mesh m   dp=2 · 2 ranks on cpu · gloo · 2 spares · ready in 0.10 s"
    assert repr(Status(cast("Mesh", mesh), [0])).startswith("mesh m   dp=2 · 2 spares, 1 of them warm   1 idle\n")
