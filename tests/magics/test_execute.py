"""`m.execute(f)` in a cell: what ranks print stands below it, errors and the stop button are as for a cell."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


HOST = os.uname().nodename


@pytest.fixture
def spare(kernel: Kernel) -> Generator[Kernel]:
    """The kernel with a mesh of three ranks whose ranks may die."""
    kernel.ok("%mesh up spare dp=3 --device cpu --pg none")
    kernel.ok("%%on_mesh\nimport os, time")
    yield kernel
    kernel.ok("%mesh down spare --grace 0.2")


def test_a_function_runs_on_all_ranks_and_what_they_say_is_heard(spare: Kernel) -> None:
    spare.ok("m = get_ipython().run_line_magic('mesh', 'use spare')\nscale = 10")
    spare.ok("%%on_mesh\nbase = 100 * rank")
    spare.ok("def f(dies):\n    print('in', scale)\n    if rank == dies:\n        os._exit(3)\n    return base + scale")
    fine = spare.ok("m.execute(f, None).values()")
    assert (fine.stdout, fine.results) == ("0-2 │ in 10\n", ["[10, 110, 210]"])
    died = spare.cell("m.execute(f, 1)")
    assert died.error == "DeviceMeshError: 1 of 3 ranks lost (dp=1)"
    assert f"exited with code 3 on host {HOST}" in died.traceback
    failed = spare.cell("m.execute(f, 2)")
    assert "nothing was run" in failed.traceback and "in 10" not in failed.text
    spare.ok("from meshbook import heal_mesh\nheal_mesh(m)")
    boom = spare.cell("def g():\n    return 1 / (rank - 1)\nm.execute(g)")
    assert boom.error == "MeshError: 1 of 3 ranks failed (dp=1)"
    assert f"cell {boom.reply['execution_count']}, line 2, in g\n   → 2  return 1 / (rank - 1)" in boom.traceback
    assert spare.value("m.last_failed") == (1,)


def test_the_stop_button_interrupts_a_function(spare: Kernel) -> None:
    spare.ok("m = get_ipython().run_line_magic('mesh', 'use spare')")
    cell = spare.start("def f():\n    print('in')\n    time.sleep(60)\nm.execute(f)")
    cell.until_all(3, "in")
    spare.interrupt()
    stopped = cell.end(10)
    number = stopped.reply["execution_count"]
    assert stopped.error == (
        f"KeyboardInterrupt: interrupted: ranks 0-2 at cell {number} line 3; they are idle and keep their state"
    )
