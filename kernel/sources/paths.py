"""What the names of a cell stand for, as dotted paths: `d` is `torch.fx` after `import torch.fx as d`.

Only the text is looked at. What the cell does not bind itself stands for what it does by convention.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

_NOT_PYTHON = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?P<target>[\w., \t]+=)[ \t]*[%!]|[%!]|(?=.*\?[ \t]*$)).*$", re.MULTILINE
)
"""A line of IPython's own: `%magic`, `!command`, `files = !ls`, `name?`."""


def tree_of(source: str) -> ast.Module | None:
    """The cell as Python, with IPython's lines blanked where they are in the way; None if that is none either."""
    for text in (source, _NOT_PYTHON.sub(_blank, source)):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _blank(line: re.Match[str]) -> str:
    return f"{line['indent']}{line['target']} None" if line["target"] else f"{line['indent']}pass"


@dataclass(frozen=True, slots=True)
class Paths:
    """The names that a cell binds by imports, and those that it has by convention, each with its path."""

    bound: Mapping[str, str]

    @classmethod
    def of(cls, tree: ast.Module, convention: Mapping[str, str], stars: Mapping[str, Collection[str]]) -> Paths:
        """`stars` has what `from module import *` gives.

        Example:
            >>> tree = ast.parse("import torch.distributed as d")
            >>> Paths.of(tree, {"os": "os"}, {}).bound
            {'os': 'os', 'd': 'torch.distributed'}
        """
        taken = {name for node in ast.walk(tree) for name in _bound(node)}
        bound = {name: path for name, path in convention.items() if name not in taken}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                bound.update(_imported(node))
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                bound.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
                if any(alias.name == "*" for alias in node.names):
                    bound.update({name: f"{node.module}.{name}" for name in stars.get(node.module, ())})
        return cls(bound)

    def path(self, node: ast.expr) -> str:
        """What a name or an attribute of one stands for; empty if that cannot be told."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.bound:
            return ""
        return ".".join([self.bound[node.id], *parts])


def _bound(node: ast.AST) -> Iterator[str]:
    """A name that something else than an import gives a meaning of its own."""
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def _imported(node: ast.Import) -> Mapping[str, str]:
    """`import torch.distributed` binds `torch`, `import torch.distributed as d` binds `d`."""
    return {
        alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else alias.name.partition(".")[0]
        for alias in node.names
    }
