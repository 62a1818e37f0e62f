"""`%mesh resize` in a real kernel: what it does and what it says."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture
def elastic(kernel: Kernel) -> Iterator[Kernel]:
    kernel.ok("e = %mesh up e dp=2 --device cpu")
    kernel.ok("%%on_mesh\nimport torch, torch.distributed as dist\nscale = 10")
    yield kernel
    kernel.ok("%mesh down e")


@pytest.mark.far
def test_a_mesh_grows_and_shrinks_and_says_so(elastic: Kernel, gone: Callable[..., None]) -> None:
    told = elastic.ok("%mesh resize dp=4").stdout.splitlines()
    assert re.fullmatch(r"resized in \d\.\d s: dp=2 is dp=4", told[0])
    assert re.fullmatch(r"ranks 2-3 are new \(dp=2-3\): replayed cell \d+", told[1])
    assert told[2].startswith("new process groups: what was built on the old ones")
    assert len(told) == 3
    elastic.ok("r = %on_mesh -- (x := torch.ones(1) * scale, dist.all_reduce(x), x.item())[2]")
    assert elastic.value("r.values(), e.axes, len(e)") == ([40.0] * 4, {"dp": 4}, 4)
    assert elastic.ok("%mesh").results[0].startswith("mesh e   dp=4   4 idle\n")
    pids = elastic.pids()
    elastic.ok("%mesh use e[dp=3]")
    told = elastic.ok("%mesh resize dp=1 -m e").stdout.splitlines()
    dropped = [pids.pop(rank) for rank in (1, 2, 3)]
    assert told[1] == f"dropped, with what they knew: ranks 1-3 (dp=1-3), pids {' '.join(map(str, dropped))}"
    assert told[-1] == "e[dp=3] is gone: cells run on all of e again"
    gone(dict(enumerate(dropped)))
    assert elastic.pids() == pids
    elastic.ok("r = %on_mesh -- (rank, world_size, scale)")
    assert elastic.value("r.values()") == [(0, 1, 10)]
    assert elastic.ok("%mesh resize dp=1").stdout == "nothing to do: the sizes are dp=1\n"


def test_a_dead_rank_that_comes_new_has_not_failed(elastic: Kernel) -> None:
    assert elastic.cell("%%on_mesh\nimport os\nif rank: os._exit(3)\n1 / 0").error.startswith("DeviceMeshError")
    elastic.ok("%mesh resize dp=3")
    assert elastic.value("e.states()") == {0: "failed", 1: "idle", 2: "idle"}


def test_who_stops_it_is_told_what_has_become_of_the_mesh(elastic: Kernel) -> None:
    elastic.ok("import meshbook.runtime.controller.roster as roster\nready = roster.Roster.wait_ready")
    elastic.ok("def pressed(*_): raise KeyboardInterrupt\nroster.Roster.wait_ready = pressed")
    stopped = elastic.cell("%mesh resize dp=4").error
    elastic.ok("roster.Roster.wait_ready = ready")
    come = "ranks 2-3 did not come back: `%mesh restart 2-3` begins again"
    assert stopped == f"KeyboardInterrupt: stopped; the sizes are dp=4; {come}"
    assert elastic.ok("%mesh restart 2-3").stdout.startswith("ranks 2-3 are back in ")
    assert elastic.ok("%%on_mesh\nx = torch.ones(1)\ndist.all_reduce(x)\nx.item()").text.startswith("4.0   ranks 0-3")


def test_ranks_that_get_other_numbers_are_told(elastic: Kernel) -> None:
    elastic.ok("i = %mesh up i dp=2 tp=1 --device cpu --pg none")
    elastic.ok("from meshbook import Actor\nclass A(Actor): pass\na = i.spawn('mine', A)\na.initialized.get()")
    elastic.ok("%%on_mesh\nmine = rank")
    told = elastic.ok("same = %mesh resize tp=2 --replay none").stdout.splitlines()
    elastic.ok("r = %on_mesh tp=0 -- (rank, mine, coord)")
    kept = elastic.value("r.values(), same is i")
    elastic.ok("%mesh down i")
    assert told[1:] == [
        "rank 1 stayed and now has number 2",
        "stopped, as ranks have other numbers: mine: spawn them again",
        "ranks 1,3 are new (dp=0-1,tp=1): nothing was replayed",
    ]
    assert kept == ([(0, 0, {"dp": 0, "tp": 0}), (2, 1, {"dp": 1, "tp": 0})], True)


def test_results_of_background_cells_stand_where_the_mesh_was_then(elastic: Kernel) -> None:
    elastic.ok("i = %mesh up i dp=2 tp=2 --device cpu --pg none")
    elastic.ok("%%on_mesh -b -o well\ncoord['dp'], coord['tp']")
    elastic.ok("%%on_mesh -b -o ill\nassert rank != 3, 'no'")
    elastic.ok("import contextlib, meshbook\nwith contextlib.suppress(meshbook.MeshError): ill.result(10)")
    elastic.ok("%mesh resize tp=1")
    assert elastic.value("dict(well.result().axes), well.result().values()") == (
        {"dp": 2, "tp": 2},
        [(0, 0), (0, 1), (1, 0), (1, 1)],
    )
    said = elastic.cell("ill.result()")
    elastic.ok("%mesh down i")
    assert said.error == "MeshError: 1 of 4 ranks failed (dp=1,tp=1)"


def test_busy_ranks_are_named_in_one_line(elastic: Kernel) -> None:
    elastic.ok("f = get_ipython().run_cell_magic('on_mesh', 'dp=1 --bg', 'import time; time.sleep(60)')")
    refused = elastic.cell("%mesh resize dp=3").error
    assert re.fullmatch(
        r"UsageError: %mesh resize: cannot resize now: rank 1 \(dp=1, pid \d+\) is busy: "
        r"wait, or stop what runs with `%mesh interrupt`",
        refused,
    )
    assert elastic.value("e.axes") == {"dp": 2}
    elastic.ok("%mesh interrupt")


def test_a_spare_takes_a_dead_ranks_place(elastic: Kernel, until: Callable[..., None], on: str) -> None:
    spares = "1 spare" if on == "local" else "2 spares"  # one on each host
    up = elastic.ok("s = %mesh up s dp=2 --device cpu --pg none --spawn exec --spares 1").text
    assert f" · {spares} · ready in " in up
    elastic.ok("%%on_mesh\nscale = 3")
    until(lambda: elastic.ok("%mesh").results[0].startswith(f"mesh s   dp=2 · {spares}   2 idle"), 60)
    killed = time.time()
    elastic.ok("%mesh interrupt --kill dp=1")
    until(lambda: elastic.value("s.roster.dead()") == [1])
    elastic.ok("%mesh restart @dead")
    assert psutil.Process(elastic.pids()[1]).create_time() < killed
    elastic.ok("r = %on_mesh -- (rank, scale)")
    assert elastic.value("r.values()") == [(0, 3), (1, 3)]
    elastic.ok("%mesh down s")
