"""Distributed tensors in a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


IMPORTS = "import os, time, torch\nfrom meshbook.runtime.tensors import inspect, remote"

NAPS = """
def nap(x, gate):
    open(gate, "w").close()
    time.sleep(0.02)

for _ in range(3000):
    remote(nap, propagate="inspect")(x, GATE)
    x += 1
inspect(x)
"""


def test_errors_name_cells(kernel: Kernel) -> None:
    kernel.ok(IMPORTS)
    number = kernel.value("get_ipython().execution_count")
    kernel.ok("def fails(x):\n    raise ValueError('boom')\n\nwith m.activate():\n    x = torch.ones(2)")
    kernel.ok("bad = remote(fails, propagate=lambda x: x)(x)")
    failed = kernel.cell("inspect(bad)")
    assert f"rank 0: ValueError: boom\nIssued at cell {number + 1}, line 1\n    bad = remote(" in failed.text
    assert f"  cell {number}, line 2, in fails\n    raise ValueError('boom')\n" in failed.text
    assert "ipykernel_" not in failed.text


@pytest.mark.parametrize("line", ["inspect(x[torch.tensor([7])])", "x + x[:2]", "float(x[0])", "x + torch.ones(3)"])
def test_errors_show_the_user_s_line_and_hardly_any_of_ours(kernel: Kernel, line: str) -> None:
    kernel.ok(f"{IMPORTS}\nwith m.activate():\n    x = torch.ones(3)\n    index = torch.tensor([7])")
    shown = kernel.cell(line.replace("torch.tensor([7])", "index")).traceback
    assert len(re.findall(r"^File ", shown, re.MULTILINE)) <= 1, "where it is raised, if that was here"


def test_they_have_groups_also_after_a_script_that_has_destroyed_its_own(kernel: Kernel) -> None:
    script = "%%on_mesh\nimport torch.distributed as dist\ndist.init_process_group()\ndist.destroy_process_group()"
    assert kernel.ok(script).stderr.startswith("↻ new process groups, as a cell had destroyed them: ")
    kernel.ok(f"{IMPORTS}\nwith m.activate():\n    x = torch.ones(3)\n    total = inspect(x.reduce('dp').sum())")
    assert kernel.value("total.item()") == 6
    assert "↻" not in kernel.ok("%on_mesh -- rank").stderr


MEETING = """
def wait(gate):
    while not os.path.exists(gate):
        time.sleep(0.01)

@remote
def meet(gate):
    wait(gate)
"""


def test_where_functions_are_is_told_by_their_cell(kernel: Kernel, tmp_path: Path) -> None:
    kernel.ok(f"{IMPORTS}\nspare = %mesh up spare r=2 --device cpu --pg none")
    number = kernel.value("get_ipython().execution_count")
    kernel.ok(MEETING.strip())
    for round in range(2):
        gate = tmp_path / f"gate{round}"
        kernel.ok(f"with spare.activate():\n    met = meet.call({str(gate)!r})")
        kernel.ok("while len(set(spare.where([0, 1]).values()) - {''}) != 1: time.sleep(0.01)")
        assert re.fullmatch(rf"cell {number} line [23] in wait", kernel.value("spare.where([0])[0]"))
        assert f"cell {number}, line 7, in meet   wait(gate)" in kernel.ok("%mesh stacks").text
        gate.touch()
        kernel.ok("met.get()")
        kernel.ok("%mesh restart 0,1 --replay none")  # new processes are told, too
    kernel.ok("%mesh down spare")


def test_ctrl_c_ends_what_the_ranks_do(kernel: Kernel, until: Any, tmp_path: Path) -> None:
    kernel.ok(IMPORTS)
    kernel.ok("with m.activate():\n    x = torch.zeros(1)\ninspect(x)")
    gate = tmp_path / "gate"
    cell = kernel.start(NAPS.replace("GATE", repr(str(gate))))
    until(gate.exists, 30.0)
    kernel.interrupt()
    stopped = cell.end()
    assert stopped.error.startswith("KeyboardInterrupt")
    assert "reactor.py" not in stopped.traceback
    after = kernel.ok("seen = [int(inspect(x, dp=dp, tp=tp)) for dp in (0, 1) for tp in (0, 1)]")
    assert after.seconds < 10, "what was issued takes longer"
    assert len(set(kernel.value("seen"))) == 1
    assert kernel.value("seen")[0] < 3000


@pytest.mark.parametrize(
    "line",
    [
        "x.sum().item()",
        "x.to_mesh(m.procs.slice(dp=0))",
        "x + torch.ones(3)",
        "x.slice_mesh(dp=7)",
        "inspect(x, dp=0)",
        "x.reduce('dp', 'mean')",
        "reduce_([x], 'pp')",
        "slice_mesh([x], dp=7)",
        "to_mesh([x], m.procs.slice(dp=0))",
        "f'{x.sum():.3f}'",
        "x.drop(); x + 1",
    ],
)
def test_what_is_wrong_is_told_at_the_users_line(kernel: Any, line: str) -> None:
    kernel.ok("import torch\nfrom meshbook.runtime.tensors import inspect, reduce_, slice_mesh, to_mesh")
    kernel.ok("with m.activate():\n    x = torch.ones(3) * m.rank_tensor('dp')")
    told = kernel.cell(line).traceback
    assert f"----> 1 {line}" in told and "File " not in told
