"""What a wheel brings along besides Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest


def test_all_of_the_kernelspec_is_in_the_lists(root: Path, pyproject: dict[str, Any]) -> None:
    tools = pyproject["tool"]["setuptools"]
    listed = tools["data-files"]["share/jupyter/kernels/meshbook"]
    assert sorted(listed) == sorted(str(file.relative_to(root)) for file in (root / "kernel/kernelspec").iterdir())
    assert tools["package-data"]["meshbook.kernel"] == ["kernelspec/*"]


@pytest.mark.slow
def test_a_wheel_places_the_kernelspec(root: Path, tmp_path: Path) -> None:
    # An editable install leaves it out (setuptools has no data files there): `python -m meshbook.kernel.spec install`.
    pytest.importorskip("setuptools", reason="nothing to build a wheel with")
    tree = tmp_path / "tree"
    wings = ["kernel", "magics", "runtime", "widgets"]
    for wing in wings:
        shutil.copytree(root / wing, tree / wing, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("__init__.py", "debug.py", "py.typed", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / file, tree)
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", build], cwd=tree, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    placed = [name for name in names if name.endswith("data/share/jupyter/kernels/meshbook/kernel.json")]
    assert len(placed) == 1
    assert "meshbook/debug.py" in names  # `python -m meshbook.debug`
