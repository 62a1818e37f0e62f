"""What ranks are to import: packages are imported once, in a zygote of their own; what is being written never."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from meshbook.runtime.engines.local import LocalEngine
from meshbook.runtime.engines.preload import packaged
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.system.cores import cores

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

Until = Callable[..., Any]
NewEngine = Callable[..., LocalEngine]
WORKER = "meshbook.runtime.ranks.worker"
BY_WHOM = "import os\nby = os.getpid()\nmood = os.environ.get('MOOD')\n"

forks = pytest.mark.skipif(sys.platform != "linux", reason="a zygote lives on Linux only")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, beside one of modules that somebody writes."""
    folder = tmp_path / "site-packages"
    (folder / "heavy").mkdir(parents=True)
    (folder / "__pycache__").mkdir()  # else its first file makes the folder newer, as an installation does
    (folder / "heavy" / "__init__.py").write_text(BY_WHOM)
    (folder / "heavy" / "part.py").write_text("")
    (folder / "single.py").write_text(BY_WHOM)
    (folder / "threaded.py").write_text(
        f"{BY_WHOM}import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    (tmp_path / "written.py").write_text(BY_WHOM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (folder, tmp_path))), prepend=os.pathsep)
    for each in (folder, tmp_path):
        monkeypatch.syspath_prepend(each)
    return folder


@pytest.fixture
def mine(local: Bench, new_engine: NewEngine) -> Bench:
    local.engine = new_engine(WORKER)
    return local


def importers(workers: Any, module: str) -> tuple[set[int], set[int]]:
    """The processes that have imported it, and those that the ranks are children of."""
    told = workers.do.call(f"import os, {module}\n({module}.by, os.getppid())").get(20).values()
    return {by for by, _ in told}, {parent for _, parent in told}


def test_packages_are_told_from_what_is_being_written(site: Path) -> None:
    path = ["", str(site), str(site.parent)]
    wanted = ["heavy", "heavy.part", "single", "written", "no_such_module", "json", "heavy"]
    assert packaged(wanted, path, str(site.parent)) == ("heavy", "heavy.part", "single")
    (site.parent / "heavy.py").write_text("")  # beside the notebook, and found first there
    assert packaged(wanted, path, str(site.parent)) == ("single",)


@forks
@pytest.mark.real
@pytest.mark.parametrize("module", ["heavy", "single"])
def test_a_package_is_imported_once_and_ranks_that_come_again_have_it(site: Path, mine: Bench, module: str) -> None:
    workers = mine.workers(preload=[module])
    by, parents = importers(workers, module)
    assert by == parents
    assert len(by) == 1
    again = mine.workers(preload=[module])
    assert importers(again, module) == (by, parents)
    assert importers(mine.workers(), module)[1].isdisjoint(parents)  # others do without


@forks
@pytest.mark.real
@pytest.mark.parametrize("module", ["written", "threaded"])
def test_what_is_written_or_starts_threads_each_rank_imports(site: Path, mine: Bench, module: str) -> None:
    workers = mine.workers(preload=[module])
    by, parents = importers(workers, module)
    assert len(by) == 2
    assert by.isdisjoint(parents)
    assert importers(mine.workers(), module)[1] == parents  # forked from the zygote of all


@forks
@pytest.mark.real
def test_a_package_that_starts_threads_is_tried_once_and_the_reason_known(site: Path, mine: Bench) -> None:
    assert isinstance(mine.engine, LocalEngine)
    roster = roster_of(mine.workers(preload=["threaded"]))
    assert "2 threads" in mine.engine.why_not_shared(roster.specs[0])
    children = psutil.Process().children()
    again = roster_of(mine.workers(preload=["threaded"]))
    assert psutil.Process().children() == children, "no other zygote"
    assert mine.engine.why_not_shared(again.specs[0])
    assert mine.engine.why_not_shared(roster_of(mine.workers()).specs[0]) == ""


@forks
@pytest.mark.real
def test_what_a_package_imports_when_it_is_asked_for_can_be_named(site: Path, mine: Bench) -> None:
    (site / "heavy" / "__init__.py").write_text(
        "import importlib\ndef __getattr__(name):\n    return importlib.import_module('heavy.part').Thing\n"
    )
    (site / "heavy" / "part.py").write_text("import os\nby = os.getpid()\nclass Thing: pass\n")
    workers = mine.workers(preload=["heavy.Thing"])
    by, parents = importers(workers, "heavy.part")
    assert by == parents


@forks
@pytest.mark.real
def test_a_package_sees_the_variables_of_its_mesh_as_it_is_imported(site: Path, mine: Bench) -> None:
    for mood in ("glad", "sad"):
        workers = mine.workers(preload=["heavy"], env={"MOOD": mood})
        assert workers.do.call("import heavy\nheavy.mood").get(20).values() == [mood, mood]


@forks
@pytest.mark.real
def test_a_zygote_of_which_no_rank_is_left_ends_when_another_comes(site: Path, mine: Bench) -> None:
    workers = mine.workers(preload=["heavy"])
    [zygote] = importers(workers, "heavy")[1]
    workers.stop().get(20)
    mine.close()
    mine.workers(preload=["single"])
    assert not psutil.pid_exists(zygote)


@forks
@pytest.mark.real
def test_a_zygote_that_a_mesh_waits_for_stays_when_another_comes(site: Path, mine: Bench, until: Until) -> None:
    """Such as that of a cell beside `%load_ext`, which warms the usual one in the background."""
    gate, came = site / "gate", site.parent / "came"
    os.mkfifo(gate)
    (site / "slow.py").write_text(f"{BY_WHOM}open({str(came)!r}, 'w').close()\nopen({str(gate)!r}).close()\n")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(mine.workers, preload=["slow"])
        until(came.exists)
        mine.workers(preload=["single"])
        gate.write_text("")
        by, parents = importers(waiting.result(30), "slow")
    assert by == parents


@forks
@pytest.mark.real
@pytest.mark.slow
def test_every_blas_that_came_with_a_package_computes_with_the_ranks_share(mine: Bench, new_engine: NewEngine) -> None:
    """numpy and scipy bring an OpenBLAS each; in the zygote both have one thread."""
    for module in ("scipy", "threadpoolctl"):
        pytest.importorskip(module)
    mine.engine = new_engine(WORKER, "meshbook.runtime.ranks.seed:warm")
    workers = mine.workers({"rank": 1}, preload=["numpy", "scipy.linalg"])
    source = (
        "import threadpoolctl\n"
        "[pool['num_threads'] for pool in threadpoolctl.threadpool_info() if pool['internal_api'] == 'openblas']"
    )
    threads = workers.do.call_one(source).get(30)
    assert len(threads) >= 2
    assert set(threads) == {cores()}
