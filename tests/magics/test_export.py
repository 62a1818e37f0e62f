"""`%mesh export`: a training in a notebook, and the same numbers from its script under `torchrun`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


CELLS = [
    "%%on_mesh\nimport torch, torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP",
    "%%on_mesh\ntorch.manual_seed(rank)\nx = torch.randn(16, 4)\ny = scaled(x.sum(1, keepdim=True))\n"
    "torch.manual_seed(7)\nmodel = DDP(torch.nn.Linear(4, 1))\nopt = torch.optim.SGD(model.parameters(), lr=0.05)",
    "%%on_mesh\nlosses = []\nfor step in range(5):\n    opt.zero_grad()\n"
    "    loss = torch.nn.functional.mse_loss(model(x), y)\n    loss.backward()\n    opt.step()\n"
    "    losses.append(round(loss.item(), 5))\nlosses",
    "%%on_mesh dp=1\nonly = torch.ones(1) * rank\ndist.all_reduce(only, group=group)\nonly.item()",
    "%%on_mesh\n!echo not in a script\nround(sum(p.sum().item() for p in model.parameters()), 5)",
]


def test_a_training_gives_the_same_numbers_as_a_script(kernel: Kernel) -> None:
    kernel.ok("%mesh up train dp=2 --device cpu")
    kernel.ok("scale = 3\ndef scaled(x):\n    return x * scale\n%mesh push scale scaled")
    for cell in CELLS:
        kernel.ok(cell)
    kernel.ok("%mesh diff losses")  # looks, and is no part of the training
    kernel.ok("r = %on_mesh -- (losses, round(sum(p.sum().item() for p in model.parameters()), 5))")
    losses, total = kernel.value("r.values()")[0]
    told = kernel.ok("path = %mesh export train.py").stdout
    assert "written to train.py: run them with `torchrun --nproc-per-node 2 train.py`" in told
    assert "not all of it could be taken over: look for WARNING in the script\n" in told  # `!echo` could not
    kernel.ok("%mesh down train")
    text = (kernel.folder / "train.py").read_text()
    assert "scale = 3" in text and "_show(losses, by=0)" in text and text.count("losses, by") == 1
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run(
        [*launch, "train.py"], cwd=kernel.folder, capture_output=True, text=True, timeout=50, env=_clean_environment()
    )
    assert done.returncode == 0, done.stderr
    # Rank 1 prints the value of its slice beside those of rank 0.
    assert sorted(done.stdout.splitlines()) == sorted([str(losses), "1.0", str(total), str((losses, total))])


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not re.match("MASTER_|RANK|WORLD_SIZE|LOCAL_", name)}


def test_a_file_of_the_users_is_not_written_over(kernel: Kernel) -> None:
    mine = kernel.folder / "mine.py"
    mine.write_text("print('mine')\n")
    kernel.ok("%%on_mesh --label setup\nx = 1")
    refused = kernel.cell("%mesh export mine.py")
    assert refused.error == "UsageError: mine.py is there, and `%mesh export` did not write it: --force writes over it"
    assert mine.read_text() == "print('mine')\n"
    kernel.ok("%mesh export mine.py --force;\n%mesh export mine.py")
    assert "# setup\n" in mine.read_text()
    assert kernel.cell("%mesh export notes.txt").error.startswith("UsageError: 'notes.txt' is no Python file")
    assert kernel.cell("%mesh export x.py --cells 9999").error.startswith("UsageError: no cell to export")


def test_where_nothing_can_be_written_is_said_in_a_line(kernel: Kernel) -> None:
    (kernel.folder / "folder.py").mkdir()
    kernel.ok("%%on_mesh\nx = 1")
    for line in "%mesh export folder.py", "%mesh export folder.py --force":
        assert kernel.cell(line).error == "UsageError: folder.py was not written: Is a directory"
    long = "x" * 300
    assert kernel.cell(f"%mesh export {long}.py").error == f"UsageError: {long}.py was not written: File name too long"
    assert kernel.cell("%mesh export none/x.py").error.endswith("x.py was not written: No such file or directory")


def test_what_failed_is_left_out_and_named(kernel: Kernel) -> None:
    kernel.ok("%mesh up short -n 1 --pg none")
    kernel.ok("%%on_mesh\nx = 1")
    failed = kernel.cell("%%on_mesh\n1 / 0")
    told = kernel.ok("path = %mesh export short.py").stdout
    assert told.startswith("1 cell written to short.py: run it with `torchrun --nproc-per-node 1 short.py`\n")
    assert told.endswith(f"left out, as it failed here: cell {failed.reply['execution_count']}\n")
    kernel.ok("%mesh down short")
