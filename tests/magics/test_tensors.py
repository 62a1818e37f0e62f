"""Distributed tensors in a notebook."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.real]

Kernel = Any  # the class stands in `conftest.py`, which cannot be imported by name

IMPORTS = "import torch\nfrom meshbook.runtime.tensors import inspect, remote"


def test_errors_name_cells(kernel: Kernel) -> None:
    kernel.ok(IMPORTS)
    number = kernel.value("get_ipython().execution_count")
    kernel.ok("def fails(x):\n    raise ValueError('boom')\n\nwith m.procs.activate():\n    x = torch.ones(2)")
    kernel.ok("bad = remote(fails, propagate=lambda x: x)(x)")
    failed = kernel.cell("inspect(bad)")
    assert f"rank 0: ValueError: boom\nIssued at cell {number + 1}, line 1\n    bad = remote(" in failed.text
    assert f"  cell {number}, line 2, in fails\n    raise ValueError('boom')\n" in failed.text
    assert "ipykernel_" not in failed.text
