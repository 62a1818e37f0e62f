"""The kernelspec `meshbook`, from its installation to what a notebook that runs on it can do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager

pytestmark = [pytest.mark.slow, pytest.mark.real]


def test_a_notebook_on_it_has_the_extension_and_inspects_names_on_ranks(
    new_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "meshbook.kernel.spec"]
    done = subprocess.run([*command, "install", "--prefix", str(tmp_path)], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("installed kernelspec meshbook in ")
    kernel = new_kernel(tmp_path)
    kernel.ok("%mesh up dp=2 --device cpu --pg none")
    kernel.ok(
        "%%on_mesh\nimport torch\ndef step(batch, lr=0.1):\n    'Train on a batch.'\n"
        "model = torch.nn.Linear(2, 3)\nclass Odd:\n    @property\n    def boom(self):\n        raise SystemExit"
    )
    kernel.ok("%%on_mesh\nodd = Odd()")
    kernel.ok("%%on_mesh dp=1\nonly_here = 42")
    kernel.ok("step = 'of the notebook'")
    told = kernel.inspected("%%on_mesh\nstep")
    assert "Signature: step(batch, lr=0.1)\nDocstring: Train on a batch.\nType: function\nFile: cell " in told
    assert told.endswith("Rank: 0")
    assert "Value: 42" in kernel.inspected("%%on_mesh dp=1\nonly_here")
    assert kernel.inspected("%%on_mesh dp=0\nonly_here") == ""
    assert "Parameters: 9" in kernel.inspected("x = %on_mesh -- model")
    assert kernel.inspected("%%on_mesh\nodd.boom").startswith("Type: property")
    assert "of the notebook" in kernel.inspected("step")
    assert "Return the number of items" in kernel.inspected("%%on_mesh\nlen")
    assert kernel.inspected("%%on_mesh\nonly_here").endswith("Rank: 1")
    assert kernel.completions("%%on_mesh\nonly_") == ["%%on_mesh\nonly_here"]  # on some rank of the selection
    assert kernel.completions("%%on_mesh dp=0\nonly_") == []
    assert kernel.completions("x = %on_mesh 1 -- only_") == ["x = %on_mesh 1 -- only_here"]
    kernel.ok("%%on_mesh -b\nwhile not __import__('os').path.exists('free'):\n    pass")
    assert "Signature: step" in kernel.inspected("%%on_mesh\nstep")
    (kernel.folder / "free").touch()
    kernel.ok("_mesh.result(); None")
    removed = subprocess.run([*command, "uninstall", "--prefix", str(tmp_path)], check=True, capture_output=True)
    assert b"removed kernelspec meshbook" in removed.stdout
    again = subprocess.run([*command, "uninstall", "--prefix", str(tmp_path)], capture_output=True, text=True)
    assert again.returncode == 1
    assert "there is no kernelspec at" in again.stderr


def test_jupyter_finds_it_under_its_name(tmp_path: Path) -> None:
    from meshbook.kernel import spec

    place = spec.install(str(tmp_path))
    [found] = KernelSpecManager(kernel_dirs=[str(place.parent)], ensure_native_kernel=False).get_all_specs().values()
    assert found["spec"]["display_name"] == "Python 3 (meshbook)"
    assert found["spec"]["argv"][0] == sys.executable
    assert (place / "logo-svg.svg").read_text().startswith("<svg")
