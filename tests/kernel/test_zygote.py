"""The zygote of a notebook: what ranks of a training find imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="it forks")]

PROGRAM = """
import sys
from meshbook.kernel import zygote
from meshbook.kernel.mesh import Mesh
from meshbook.runtime.session import session

zygote.warm()
engine = session().engine("local")
assert engine.completed(90)
with Mesh.up("m", {"dp": 2}, path=sys.path) as mesh:
    for source in (
        "import sys; before = set(sys.modules); known = get_ipython().editions._known; count = len(known)",
        "import torch; ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))",
        "optimizer = torch.optim.Adam(ddp.parameters()); optimizer.step(); optimizer.zero_grad()",
        "new = sorted(set(sys.modules) - before); assert len(new) < 10, new",
        "noted = [*known][count:]; assert len(noted) < 10, noted",
    ):
        progress = mesh.run(source).finished.get().progress
        print(len(progress.outcomes), progress.failed)
"""


def test_ranks_find_what_a_first_optimizer_and_ddp_import() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "2 []\n" * 5
