"""The rules for a single source file."""

from __future__ import annotations

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshbook.runtime import session

LONGEST = 500  # lines; above it a file holds two ideas


def test_no_file_is_too_long(root: Path) -> None:
    folders = ["kernel", "magics", "runtime", "widgets", "tests", "notebooks", "benchmarks"]
    files = [file for folder in folders for kind in ("*.py", "*.js", "*.css") for file in (root / folder).rglob(kind)]
    lengths = {str(file.relative_to(root)): len(file.read_text().splitlines()) for file in files}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_every_public_module_says_what_it_is(modules: dict[str, ast.Module]) -> None:
    public = {name: tree for name, tree in modules.items() if tree.body and "._" not in name}
    assert [name for name, tree in public.items() if not ast.get_docstring(tree)] == []


def test_no_error_is_swallowed_whole(modules: dict[str, ast.Module]) -> None:
    assert {name: lines for name, tree in modules.items() if (lines := list(_swallowers(tree)))} == {}


def test_a_swallower_is_found() -> None:
    swallower = "try:\n    risk()\nexcept Exception:\n    pass\n"
    assert list(_swallowers(ast.parse(swallower))) == [3]
    assert list(_swallowers(ast.parse("with contextlib.suppress(ValueError, Exception): risk()"))) == [1]
    assert list(_swallowers(ast.parse(swallower.replace("Exception", "OSError")))) == []


OPTIONAL = {"meshbook.runtime.engines.monarch_actors": "monarch"}
"""Modules that only an optional extra makes importable, and what that brings."""


def test_every_module_can_be_imported(modules: dict[str, ast.Module]) -> None:
    for name in modules.keys() - OPTIONAL.keys():
        importlib.import_module(name)


@pytest.mark.slow
def test_the_examples_in_docstrings_run(module_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if module_name in OPTIONAL:
        pytest.importorskip(OPTIONAL[module_name])
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    if ".tensors." not in module_name:  # no other example needs torch on a rank
        monkeypatch.setattr(session, "ZYGOTE_MODULES", [each for each in session.ZYGOTE_MODULES if each != "torch?"])
    try:
        for docstring in doctest.DocTestFinder().find(importlib.import_module(module_name)):
            if docstring.examples:  # the runner takes milliseconds also for none
                runner.run(docstring)
    finally:
        session.close()  # an example may have brought a mesh up
    assert runner.tries > 0 and runner.failures == 0, "the examples and what they gave stand above"


def _swallowers(tree: ast.Module) -> Iterator[int]:
    """The lines of `except Exception: pass` in its forms: bare, in a tuple, `...`, `contextlib.suppress`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and all(map(_does_nothing, node.body)):
            yield node.lineno
        elif isinstance(node, ast.Call) and _name(node.func) == "suppress":
            yield from (node.lineno for argument in node.args if _is_broad(argument))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_broad(caught: ast.expr | None) -> bool:
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(name is None or ast.unparse(name) in ("Exception", "BaseException") for name in names)


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or ast.unparse(statement) == "..."
