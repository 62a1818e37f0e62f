"""Imports go one way down, and each third party has its place."""

from __future__ import annotations

import ast
import re
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
    assert users <= {"meshbook.kernel.ranks.loop"}


def test_our_folders_know_each_other_by_relative_imports(modules: dict[str, ast.Module]) -> None:
    assert [name for name, tree in modules.items() if "meshbook" in set(_imported(tree))] == []


WINGS = ("runtime", "kernel", "widgets", "magics")


@pytest.mark.parametrize("wing", WINGS)
def test_no_wing_names_a_module_above_it_by_a_string(modules: dict[str, ast.Module], wing: str) -> None:
    # Such an import points upwards as well, and the linter of imports cannot see it.
    above = re.compile(rf"(\.+|meshbook\.)({'|'.join(WINGS[WINGS.index(wing) + 1 :]) or '(?!)'})\.")
    own = {name: tree for name, tree in modules.items() if name.startswith(f"meshbook.{wing}")}
    assert own
    assert {name: text for name, tree in own.items() for text in _strings(tree) if above.match(text)} == {}


def _strings(tree: ast.Module) -> Iterator[str]:
    yield from (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _imported(tree: ast.Module) -> Iterator[str]:
    """The top-level packages that a module imports, inside of functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]
