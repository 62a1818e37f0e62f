"""What `pyproject.toml` says is packed equals what lies in the folders."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any


def test_the_list_of_packages_equals_the_folders(root: Path, pyproject: dict[str, Any]) -> None:
    # A folder that is not in the list works in an editable install and is missing from the wheel.
    wings = [".", "kernel", "magics", "runtime", "widgets"]
    folders = {file.parent for wing in wings for file in (root / wing).glob("**/*.py" if wing != "." else "*.py")}
    found = {".".join(["meshbook", *folder.relative_to(root).parts]) for folder in folders}
    assert sorted(found) == pyproject["tool"]["setuptools"]["packages"]


def test_every_folder_of_the_package_has_an_init(root: Path, modules: dict[str, ast.Module]) -> None:
    parents = {name.rpartition(".")[0] for name in modules if "." in name}
    assert parents <= modules.keys()


def test_the_root_holds_the_face_and_the_command_and_no_other_python_file(root: Path) -> None:
    # Every .py of the root lands in the wheel as a module of meshbook, a conftest.py too.
    assert sorted(file.name for file in root.glob("*.py")) == ["__init__.py", "debug.py"]


def test_tests_have_no_init(root: Path) -> None:
    assert not list((root / "tests").rglob("__init__.py"))


def test_the_links_for_checkers_lead_to_the_house(root: Path) -> None:
    links = {link.name: link.resolve() for link in (root / ".typing" / "meshbook").iterdir()}
    names = ["__init__.py", "debug.py", "kernel", "magics", "py.typed", "runtime", "widgets"]
    assert links == {name: (root / name).resolve() for name in names}
