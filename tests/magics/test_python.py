"""`%mesh up --python`: ranks with the packages of another environment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from meshbook.magics.grammar import GrammarError, parse_mesh
from tests.magics.front_end import Kernel
from tests.other_python import make_bare, make_other


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.differs("hosts", "the Python of other hosts is that of their agents")
def test_cells_run_there(new_kernel: Any, tmp_path: Path) -> None:
    python = make_other(tmp_path / "other")
    kernel = new_kernel()
    kernel.ok("%load_ext meshbook")
    up = kernel.ok(f"%mesh up -n 2 --python {python} --device cpu")
    assert f"2 ranks on cpu · gloo · in {python} · ready" in up.text
    kernel.ok("%%on_mesh\nimport only_there, sys\nimport torch.distributed as dist")
    total = "total = torch.ones(1)\ndist.all_reduce(total)\n"
    kernel.ok(f"%%on_mesh -o r\nimport torch\n{total}(sys.prefix, only_there.ANSWER, total.item())")
    assert kernel.value("r.values()") == [(str(python.parents[1]), 42, 2.0)] * 2
    kernel.ok("%%on_mesh\nthing = only_there.Thing()")
    told = kernel.cell("%mesh pull thing").error
    assert "thing cannot come to the notebook: it cannot be unpickled: only_there.Thing (ModuleNotFoundError" in told
    kernel.ok("%mesh restart 1")
    assert kernel.ok("%%on_mesh 1\nonly_there.ANSWER").text.startswith("42 ")
    assert kernel.cell("import only_there").error.startswith("ModuleNotFoundError")


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.differs("hosts", "the Python of other hosts is that of their agents")
def test_one_that_cannot_run_ranks_is_told_in_one_line(kernel: Kernel, tmp_path: Path) -> None:
    bare = make_bare(tmp_path / "bare")
    for python, why in (("nowhere", "no Python 'nowhere' can be run here"), (bare.parents[1], f"in it is {bare}")):
        assert why in kernel.cell(f"%mesh up other -n 2 --python {python}").error
    told = kernel.cell(f"%mesh up other -n 2 --python {bare}").error
    assert f"{bare} cannot run ranks" in told and "install meshbook there" in told
    assert "other" not in kernel.ok("%mesh ls").text


def test_other_hosts_have_their_own() -> None:
    with pytest.raises(GrammarError, match="--python is for ranks of this machine"):
        parse_mesh(f"up hosts=2 --engine hosts --python {sys.executable}")
