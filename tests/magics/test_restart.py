"""`%mesh restart` of ranks whose actors take long to be made: it does not wait for ever, and may be stopped."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


SLOW = """
from meshbook import Actor, endpoint
class Slow(Actor):
    def __init__(self, path):
        import os, time
        print("making", flush=True)
        while os.path.exists(path):
            time.sleep(0.02)
            if os.path.exists(path + ".exit"):
                os._exit(3)
    @endpoint
    def ping(self):
        return 1
slow = m4.spawn("slow", Slow, {path!r})
slow.ping.call().get()
"""


@pytest.fixture
def gate(kernel: Kernel, tmp_path: Path) -> Generator[Path]:
    """While this file is there, actors of `m4` are not made."""
    path = tmp_path / "gate"
    kernel.ok("m4 = %mesh up m4 dp=2 --pg none")
    kernel.ok("%%on_mesh\nimport math")
    kernel.ok(SLOW.format(path=str(path)))
    path.touch()
    yield path
    path.unlink(missing_ok=True)
    kernel.ok("%mesh down m4")


def test_it_goes_on_without_a_constructor_that_takes_long(kernel: Kernel, gate: Path) -> None:
    kernel.ok(
        "import meshbook.runtime.controller.remaking as remaking\npatience, remaking.PATIENCE = remaking.PATIENCE, 0.5"
    )
    told = kernel.ok("%mesh restart 1").stdout
    kernel.ok("remaking.PATIENCE = patience")
    assert "slow.__init__ is not done yet (rank 1): calls wait for it\n" in told and "replayed cell" in told
    gate.unlink()
    assert "0-1: 1" in kernel.ok("slow.ping.call().get()").text


def test_it_may_be_stopped_and_cells_run_there_all_the_same(kernel: Kernel, gate: Path) -> None:
    kernel.ok("%%on_mesh -m m4\nrank * 2")
    cell = kernel.start("%mesh restart 1")
    cell.until("making")
    kernel.interrupt()
    stopped = cell.end()
    assert stopped.error == (
        "KeyboardInterrupt: rank 1 is back, but not set up to the end: cells were not replayed there; "
        "`%mesh restart 1` begins again"
    )
    assert "magics/" not in stopped.traceback
    kernel.ok("%%on_mesh -m m4 -o r\nrank * 2")  # the same text as before: the new process has never got it
    assert kernel.value("r.values()") == [0, 2]
    gate.unlink()
    assert "replayed cell" in kernel.ok("%mesh restart 1").stdout
    assert "0-1: 1" in kernel.ok("slow.ping.call().get()").text


def test_who_stops_it_before_it_begins_is_told_that_nothing_was_done(kernel: Kernel) -> None:
    kernel.ok("lucky = %mesh up lucky dp=2 --pg none")
    pids = kernel.pids()
    kernel.ok("import meshbook.runtime.controller.roster as roster\nkill = roster.Roster.kill")
    kernel.ok("def pressed(*_, **__): raise KeyboardInterrupt\nroster.Roster.kill = pressed")
    stopped = kernel.cell("%mesh restart").error
    kernel.ok("roster.Roster.kill = kill")
    assert stopped == "KeyboardInterrupt: stopped before anything was done: `%mesh restart 0-1` begins again"
    assert kernel.pids() == pids
    kernel.ok("%mesh down lucky")


def test_a_dead_rank_in_the_midst_of_others_comes_back_with_them(kernel: Kernel, gate: Path) -> None:
    gate.unlink()
    kernel.ok("%mesh interrupt 1 --kill -m m4")
    assert "ranks 0-1 are back in " in kernel.ok("%mesh restart 0-1 -m m4").stdout


def test_a_rank_that_dies_again_is_not_called_back(kernel: Kernel, gate: Path) -> None:
    gate.with_suffix(".exit").touch()
    told = kernel.ok("%mesh restart 1").stdout.splitlines()
    assert any(line.startswith("slow could not be made again: ") for line in told)
    assert told[-1].startswith("rank 1 (dp=1, pid ") and told[-1].endswith(", as it was set up again")
    assert "exited with code 3" in told[-1]
    gate.with_suffix(".exit").unlink()
    gate.unlink()
    assert "set up again" not in kernel.ok("%mesh restart @dead").stdout
    assert "0-1: 1" in kernel.ok("slow.ping.call().get()").text


def test_what_a_new_rank_lacks_is_told_with_the_cell_that_makes_it(kernel: Kernel) -> None:
    """To run a cell again that has not found it would fail again."""
    kernel.ok("%mesh up lacking dp=2 --pg none")
    ran = [kernel.ok(f"%%on_mesh\n{each}") for each in ("loader = list('ab')\nopen('log', 'w')", "first = loader[0]")]
    made, looked = (f"cell {each.reply['execution_count']}" for each in ran)
    told = kernel.ok("%mesh restart 1").stdout
    why = f"NameError: name 'loader' is not defined; {made} makes it, and has not run there"
    assert f"{looked} failed there (rank 1): {why}\n" in told
    failed = kernel.cell("%%on_mesh\nlen(loader)").traceback
    why = f"{made} makes loader, and has not run on rank 1 since it came new; run that again on all: %%on_mesh"
    assert f"\n{why}   look inside: %mesh debug --pm\n" in failed
    kernel.ok("%%on_mesh 1\nloader = []")
    assert f"{looked} makes first, and has not run on rank 1" in kernel.cell("%%on_mesh\nfirst").traceback
    (kernel.folder / "log").unlink()
    kernel.ok("%mesh down lacking --grace 0.2")


def test_a_cell_that_fails_on_a_new_rank_is_told_with_its_error(kernel: Kernel) -> None:
    kernel.ok("%mesh up moody dp=2 --pg none")
    ran = kernel.ok("%%on_mesh\nimport os\nif os.path.exists('no-data'): raise ValueError('there is no data')")
    (kernel.folder / "no-data").touch()
    told = kernel.ok("%mesh restart 1").stdout
    (kernel.folder / "no-data").unlink()
    cell = f"cell {ran.reply['execution_count']}"
    assert f"{cell} failed there (rank 1): ValueError: there is no data; `%%on_mesh 1` runs it again\n" in told
    kernel.ok("%mesh down moody")


def test_a_cell_that_ends_a_new_rank_is_left_out_by_the_next_restart(kernel: Kernel) -> None:
    """Else none would ever bring it back."""
    kernel.ok("%mesh up deadly dp=2 --pg none")
    ran = [kernel.ok(f"%%on_mesh\n{each}") for each in ("import os\nif os.path.exists('no'): os.abort()", "x = 1")]
    deadly, other = (f"cell {each.reply['execution_count']}" for each in ran)
    (kernel.folder / "no").touch()
    told = kernel.ok("%mesh restart 1").stdout
    assert re.search(
        rf"\n{deadly} failed there \(rank 1\): rank 1 .* killed by SIGABRT .*; `%mesh restart @dead` goes without it\n",
        told,
    )
    assert other not in told
    told = kernel.ok("%mesh restart @dead").stdout
    assert told.endswith(f" s: replayed {other}; of {deadly} only imports and definitions\n")
    assert kernel.ok("%%on_mesh\nx, os.getpid() > 0").text.startswith("(1, True)")
    (kernel.folder / "no").unlink()
    kernel.ok("%mesh down deadly")


def test_a_cell_of_which_nothing_ran_again_is_named(kernel: Kernel) -> None:
    kernel.ok("%mesh up silent dp=2 --device cpu")
    ran = [kernel.ok(f"%%on_mesh\n{source}") for source in ("import torch.distributed as dist", "dist.barrier()")]
    first, second = (f"cell {each.reply['execution_count']}" for each in ran)
    assert kernel.ok("%mesh restart 1").stdout.endswith(f": replayed {first}; of {second} nothing\n")
    assert kernel.ok(f"%mesh restart 1 --replay {first[5:]}").stdout.endswith(f": replayed {first}\n"), "as was chosen"
    kernel.ok("%mesh down silent")
