"""`import meshbook` is quick, and every name that it promises is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import meshbook
import meshbook.runtime

HEAVY = ["torch", "IPython", "zmq", "msgspec", "numpy", "cloudpickle", "psutil"]


def test_every_exported_name_resolves() -> None:
    assert [name for name in meshbook.__all__ if getattr(meshbook, name) is None] == []
    assert set(meshbook.__all__) <= set(dir(meshbook))


def test_a_program_for_monarch_needs_no_other_module() -> None:
    pairs = {name: (getattr(meshbook, name), getattr(meshbook.runtime, name)) for name in meshbook.runtime.__all__}
    assert [name for name, (ours, theirs) in pairs.items() if ours is not theirs] == []


def test_the_exported_names_are_sorted() -> None:
    assert list(meshbook.__all__) == sorted(meshbook.__all__)


def test_the_version_is_the_one_of_the_project(pyproject: dict[str, Any]) -> None:
    assert meshbook.__version__ == pyproject["project"]["version"]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'meshbook' has no attribute 'Mush'"):
        _ = meshbook.Mush  # pyright: ignore


def test_the_face_imports_nothing_heavy(tmp_path: Path) -> None:
    program = f"import sys, meshbook; print(sorted(sys.modules.keys() & {set(HEAVY)}))"
    # -I and another folder: only the installed package counts, whatever the checkout is called.
    answer = subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert answer.stdout.strip() == "[]", answer.stderr


def test_on_windows_it_says_where_it_runs(tmp_path: Path) -> None:
    program = "import sys; sys.platform = 'win32'; import meshbook"
    answer = subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert answer.stderr.splitlines()[-1] == "ImportError: meshbook runs on Linux and macOS; on Windows it runs in WSL"
