"""Environment variables that a cell sets too late: they are read as something is imported, and ranks have imported it.

A script sets them in its first lines. On a rank torch has been there before the first cell, and nothing would tell that
they do nothing. Pure, but for a look at the files of torch's settings.
"""

from __future__ import annotations

import ast
import importlib.machinery
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .paths import Paths, tree_of

_OF_TORCH = frozenset({"MKL_NUM_THREADS", "OMP_NUM_THREADS", "TORCH_LOGS", "TORCH_LOGS_FORMAT", "TORCH_LOGS_OUT"})
"""What is read when torch is imported; a test asks torch."""

_OF_COMPILER = ("_dynamo/config.py", "_functorch/config.py", "_inductor/config.py")
"""Where torch's compiler reads its own: these files name no others."""

_CONVENTION = {"os": "os", "environ": "os.environ"}

_MAY_SET = re.compile(r"environ|putenv|%(?:set_)?env\b")

_MAGIC = re.compile(r"^[ \t]*%(?:set_)?env[ \t]+(\w+)(?:[ \t]*=[ \t]*|[ \t]+)(\S.*?)[ \t]*$", re.MULTILINE)
"""`%env NAME=VALUE`, `%set_env NAME VALUE`."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """A variable that a cell sets for what has read it before."""

    name: str
    value: str | None
    """None: it is computed."""
    line: int

    def warning(self) -> str:
        """One line that says why it does nothing, and what would be right.

        Example:
            >>> TooLate("TORCH_LOGS", "+f", 2).warning()
            'line 2: TORCH_LOGS is read when torch is imported, which ranks have done: %mesh up ... --env TORCH_LOGS=+f'
        """
        reader, have = ("torch", "have") if self.name in _OF_TORCH else ("torch's compiler", "may have")
        given = f"{self.name}=…" if self.value is None else shlex.quote(f"{self.name}={self.value}")
        what = f"line {self.line}: {self.name} is read when {reader} is imported, which ranks {have} done"
        return f"{what}: %mesh up ... --env {given}"


def too_late(source: str, present: Mapping[str, str], first_line: int = 1) -> list[TooLate]:
    """What this cell sets too late on ranks that have these variables; its first line is line `first_line`.

    Example:
        >>> too_late("import os\\nos.environ['OMP_NUM_THREADS'] = '4'", {"OMP_NUM_THREADS": "1"})
        [TooLate(name='OMP_NUM_THREADS', value='4', line=2)]
    """
    if not _MAY_SET.search(source):  # nearly every cell
        return []
    found = {name: (value, line) for name, value, line in sorted(_settings(source), key=lambda each: each[2])}
    return [
        TooLate(name, value, line + first_line - 1)
        for name, (value, line) in found.items()
        if _is_read_early(name) and (value is None or present.get(name) != value)
    ]


def _settings(source: str) -> Iterator[tuple[str, str | None, int]]:
    """The variables that a cell sets, each with its value and its line."""
    for magic in _MAGIC.finditer(source):
        yield magic[1], magic[2], source.count("\n", 0, magic.start(1)) + 1
    tree = tree_of(source)
    if tree is None:
        return
    paths = Paths.of(tree, _CONVENTION, {"os": ("environ", "putenv")})
    for node in ast.walk(tree):
        for name, value in _set_by(node, paths):
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value, _text(value), name.lineno


def _set_by(node: ast.AST, paths: Paths) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and paths.path(target.value) == "os.environ":
                yield target.slice, node.value
    elif isinstance(node, ast.Call):
        called = paths.path(node.func)
        if called in ("os.putenv", "os.environ.setdefault") and len(node.args) > 1:
            yield node.args[0], node.args[1]
        elif called == "os.environ.update":
            for each in node.args:
                if isinstance(each, ast.Dict):
                    yield from zip(each.keys, each.values, strict=True)
            for keyword in node.keywords:
                yield ast.copy_location(ast.Constant(keyword.arg), keyword), keyword.value


def _text(value: ast.expr) -> str | None:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _is_read_early(name: str) -> bool:
    return name in _OF_TORCH or (name.startswith("TORCH") and name in _of_compiler())


@cache
def _of_compiler() -> frozenset[str]:
    """The names in the files of its settings, of the torch that is installed here."""
    torch = importlib.machinery.PathFinder.find_spec("torch")
    folder = Path(torch.origin).parent if torch is not None and torch.origin else None
    files = [folder / each for each in _OF_COMPILER] if folder else []
    return frozenset(name for file in files if file.is_file() for name in re.findall(r"TORCH\w+", file.read_text()))
