"""What processes are bound to: the lists, what is wrong with them, and that the kernel has heard."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshbook.runtime import Actor, endpoint
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.system.binding import bind, check, numbers, processors
from tests.runtime.conftest import Stage

HERE = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
NUMA = Path("/sys/devices/system/node/node0")
NUMA_MAPS = Path("/proc/self/numa_maps")

needs_linux = pytest.mark.skipif(not HERE, reason="binds on Linux only")


class Bound(Actor):
    @endpoint
    def processors(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))

    @endpoint
    def of_all_threads(self) -> set[tuple[int, ...]]:
        return {tuple(os.sched_getaffinity(int(task.name))) for task in Path("/proc/self/task").iterdir()}

    @endpoint
    def num_threads(self) -> int:
        import torch

        return torch.get_num_threads()

    @endpoint
    def policies(self) -> set[str]:
        """Those of the memory of its first thread."""
        maps = Path(f"/proc/{os.getpid()}/numa_maps").read_text().splitlines()
        return {line.split()[1] for line in maps}


@pytest.mark.parametrize(("text", "found"), [("3", {3}), ("0-2,8", {0, 1, 2, 8}), ("1,1-2\n", {1, 2})])
def test_lists(text: str, found: set[int]) -> None:
    assert numbers(text) == found


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "0:3", "1-2-3"])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"proc_bind has cpus=.*: it is a list of numbers such as '0-3,8'"):
        check({"cpus": text})


@needs_linux
class TestProcessors:
    def test_are_those_that_all_of_it_names(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "node1").mkdir()
        (tmp_path / "node1" / "cpulist").write_text("2-5\n")
        monkeypatch.setattr("meshbook.runtime.system.binding._NODES", tmp_path)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
        assert processors({}) == processors({"membind": "1"}) == set()
        assert processors({"cpunodebind": "1"}) == {2, 3, 4, 5}
        assert processors({"cpunodebind": "1", "cpus": "0-3", "physcpubind": "3-7"}) == {3}
        with pytest.raises(ValueError, match="no processor: no one is in all"):
            processors({"cpunodebind": "1", "cpus": "0"})
        with pytest.raises(ValueError, match="names NUMA node 3, and there are 1"):
            processors({"cpunodebind": "1,3"})
        with pytest.raises(ValueError, match="names NUMA node 0, and there are 1"):
            bind({"membind": "0"})

    def test_that_are_not_there(self) -> None:
        with pytest.raises(ValueError, match="names processor 4000, and this process may use 0"):
            processors({"cpus": f"{HERE[0]},4000"})


@needs_linux
class TestRanks:
    def test_are_bound_before_they_have_threads(self, process_stage: Stage) -> None:
        first, last = HERE[0], HERE[-1]
        procs = process_stage.procs({"r": 2}, proc_bind=[{"cpus": f"{first}"}, {"physcpubind": f"{first},{last}"}])
        bound = procs.spawn("bound", Bound)
        assert bound.processors.call().get(20).values() == [[first], sorted({first, last})]
        assert bound.of_all_threads.call().get(20).values() == [{(first,)}, {tuple(sorted({first, last}))}]
        assert bound.num_threads.call().get(20).values() == [1, len({first, last})]
        assert sorted(os.sched_getaffinity(0)) == HERE

    @pytest.mark.skipif(not (NUMA.is_dir() and NUMA_MAPS.exists()), reason="the kernel knows no NUMA")
    def test_have_the_memory_of_their_nodes(self, process_stage: Stage) -> None:
        procs = process_stage.procs({"r": 2}, proc_bind=[{"membind": "0", "cpunodebind": "0"}, {}])
        of_bound, of_other = procs.spawn("bound", Bound).policies.call().get(20).values()
        assert "bind:0" in of_bound
        assert "bind:0" not in of_other

    def test_that_cannot_be_bound_say_why(self, process_stage: Stage) -> None:
        procs = process_stage.procs({"r": 2}, proc_bind=[{}, {"cpus": "4000"}])
        with pytest.raises(SpawnError, match=r"rank 1.*ValueError: proc_bind names processor 4000"):
            procs.initialized.get(20)
