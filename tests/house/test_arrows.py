"""Imports go one way down, and each third party has its place."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.mark.slow
def test_imports_go_one_way_down(root: Path) -> None:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache"]
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_nest_asyncio_stays_on_the_ranks(modules: dict[str, ast.Module]) -> None:
    # It hangs ipykernel 7 in the notebook's own kernel: one file holds it, and only ranks ask for it there.
    users = {name for name, tree in modules.items() if "nest_asyncio" in set(_imported(tree))}
    assert users <= {"meshbook.kernel.loop"}


def test_our_folders_know_each_other_by_relative_imports(modules: dict[str, ast.Module]) -> None:
    assert [name for name, tree in modules.items() if "meshbook" in set(_imported(tree))] == []


def _imported(tree: ast.Module) -> Iterator[str]:
    """The top-level packages that a module imports, inside of functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]
