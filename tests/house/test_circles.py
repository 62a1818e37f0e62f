"""No module waits, while it is loaded, for one that waits for it."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator

import pytest


def test_no_modules_import_each_other_while_they_are_loaded(modules: dict[str, ast.Module]) -> None:
    needs = {name: set(_loaded_by(name, tree, modules)) for name, tree in modules.items()}
    assert len(needs["meshbook.kernel.mesh"]) > 10
    graphlib.TopologicalSorter(needs).prepare()


def test_a_circle_is_found() -> None:
    modules = {
        "meshbook.kernel.a": ast.parse("from .b import f\nif TYPE_CHECKING:\n    from .c import g"),
        "meshbook.kernel.b": ast.parse("def f():\n    from .c import g"),
        "meshbook.kernel.c": ast.parse("try:\n    from . import a\nfinally:\n    pass"),
    }
    needs = {name: set(_loaded_by(name, tree, modules)) for name, tree in modules.items()}
    assert needs == {
        "meshbook.kernel.a": {"meshbook.kernel.b"},
        "meshbook.kernel.b": set(),
        "meshbook.kernel.c": {"meshbook.kernel.a"},
    }
    needs["meshbook.kernel.b"].add("meshbook.kernel.c")
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(needs).prepare()


def _loaded_by(name: str, tree: ast.Module, modules: dict[str, ast.Module]) -> Iterator[str]:
    """The modules of the package that are loaded with this one."""
    is_package = any(other.startswith(f"{name}.") for other in modules)
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in _at_once(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            path = ".".join([*base, *filter(None, [node.module])])
            found = [f"{path}.{alias.name}" for alias in node.names]
            yield from (module if module in modules else path for module in found)


def _at_once(node: ast.AST) -> Iterator[ast.AST]:
    """What runs as a module is loaded: no bodies of functions, and nothing that only checkers of types read."""
    for child in ast.iter_child_nodes(node):
        is_for_checkers = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not is_for_checkers and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _at_once(child)
