"""The house's own files, for the tests of its rules."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WINGS = ("kernel", "magics", "runtime", "widgets")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="session")
def modules() -> dict[str, ast.Module]:
    """The parsed source of every module of the package, by its dotted name."""
    return {_dotted(file): ast.parse(file.read_text(), filename=str(file)) for file in _files()}


def _files() -> list[Path]:
    return [*sorted(ROOT.glob("*.py")), *(file for wing in WINGS for file in sorted((ROOT / wing).rglob("*.py")))]


def _dotted(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(["meshbook", *parts]).removesuffix(".__init__")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `module_name` runs once for each module of the package that has examples."""
    if "module_name" in metafunc.fixturenames:
        metafunc.parametrize("module_name", [_dotted(file) for file in _files() if ">>> " in file.read_text()])
