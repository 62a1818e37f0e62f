"""Runs the Python of Markdown pages, each page in its order; prints what did not come out as written, as JSON.

Started by `test_docs.py` in a process of its own: pages change hooks, define classes, and leave meshes behind.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import json
import re
import sys
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXPECTED = re.compile(r"#\s*->\s?(.*)$")
_MAGIC = re.compile(r"^\s*(%|\w+ = %)", re.MULTILINE)


def run(page: Path) -> list[str]:
    """What is wrong on this page, one text each; ends at the first block that raises."""
    wrong: list[str] = []
    names: dict[str, Any] = {"__name__": "__main__"}
    with _zygotes(with_torch=_uses_torch(page)):
        for line, source in _blocks(page.read_text()):
            try:
                _run_block(source, line, page.name, names, wrong)
            except Exception:  # noqa: BLE001 - the rim: whatever an example raises is reported with its place
                return [*wrong, f"{page.name}, block at line {line}: {traceback.format_exc()}"]
    return wrong


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """The Python of a page that has no magics, with its lines."""
    for block in _BLOCK.finditer(text):
        kind, source = block.groups()
        if kind == "python" and not _MAGIC.search(source):
            yield text[: block.start()].count("\n") + 1, source


def _uses_torch(page: Path) -> bool:
    return any("torch" in source for _, source in _blocks(page.read_text()))


@contextlib.contextmanager
def _zygotes(with_torch: bool) -> Generator[None]:
    """Each host of an example has a zygote of its own: without torch where the page does not use it."""
    from meshbook.runtime.session import ZYGOTE_MODULES

    before = [*ZYGOTE_MODULES]
    ZYGOTE_MODULES[:] = [module for module in before if with_torch or module != "torch?"]
    yield
    ZYGOTE_MODULES[:] = before


def _run_block(source: str, line: int, page: str, names: dict[str, Any], wrong: list[str]) -> None:
    tree = ast.increment_lineno(ast.parse(source), line)
    lines = ["", *source.splitlines()]

    def check(place: int, expected: str, found: str) -> None:
        if not _is_as_written(found, expected):
            wrong.append(f"{page}:{place}: expected {expected!r}, found {found!r}")

    names |= {"__check__": check, "__repr__": repr, "__said__": _said}
    tree = ast.fix_missing_locations(_Checked(lines, line).visit(tree))
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(tree, page, "exec"), names)


class _Checked(ast.NodeTransformer):
    """Turns `EXPRESSION  # -> TEXT` into a check of its repr, `print(...)  # -> TEXT` into one of what it prints."""

    def __init__(self, lines: list[str], offset: int) -> None:
        self._lines = lines
        self._offset = offset

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        assert node.end_lineno is not None
        expected = _EXPECTED.search(self._lines[node.end_lineno - self._offset])
        if expected is None:
            return node
        value = node.value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print":
            found = ast.Call(_name("__said__"), value.args, value.keywords)
        else:
            found = ast.Call(_name("__repr__"), [value], [])
        place, text = ast.Constant(node.end_lineno), ast.Constant(expected[1])
        return ast.copy_location(ast.Expr(ast.Call(_name("__check__"), [place, text, found], [])), node)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _said(*things: object) -> str:
    said = io.StringIO()
    builtins.print(*things, file=said, end="")
    return said.getvalue()


def _is_as_written(found: str, expected: str) -> bool:
    """Equal, where `...` stands for anything."""
    pattern = ".*".join(map(re.escape, expected.split("...")))
    return re.fullmatch(pattern, found, re.DOTALL) is not None


if __name__ == "__main__":
    from meshbook.runtime import session

    pages = [Path(name) for name in sys.argv[1:]]
    if any(map(_uses_torch, pages)):  # then the zygote of this machine has it, which serves all pages
        session.session().engine("local").warm()
    found = {str(page): run(page) for page in pages}
    session.close()
    print(json.dumps(found))
