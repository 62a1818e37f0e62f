"""Collectives without `group=` in a cell for a part of the mesh: they wait for ranks that do not run it. Pure.

Only the text of the cell is looked at, without torch: calls by the names that `torch.distributed` goes by here (as
imported in this cell, else `dist` and `torch.distributed`). What functions from elsewhere do cannot be seen, and a
cell that is not Python gives no warning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...runtime.ranges import named
from .paths import Paths, tree_of

GROUP_POSITIONS: dict[str, int] = {
    "all_gather": 2,
    "all_gather_coalesced": 2,
    "all_gather_into_tensor": 2,
    "all_gather_object": 2,
    "all_gather_single": 2,
    "all_reduce": 2,
    "all_reduce_coalesced": 2,
    "all_to_all": 2,
    "all_to_all_single": 4,
    "barrier": 0,
    "broadcast": 2,
    "broadcast_object_list": 2,
    "gather": 3,
    "gather_object": 3,
    "monitored_barrier": 0,
    "reduce": 3,
    "reduce_scatter": 3,
    "reduce_scatter_single": 3,
    "reduce_scatter_tensor": 3,
    "scatter": 3,
    "scatter_object_list": 3,
}
"""The collectives of `torch.distributed`, and which positional argument is the group; a test holds it to torch's."""

_MODULE = "torch.distributed"
_CONVENTION = {"dist": _MODULE, "torch": "torch"}
"""What names stand for that the cell itself does not bind."""


@dataclass(frozen=True, slots=True)
class Groupless:
    """A collective of the default group: how it is called, and in which lines of the cell."""

    call: str
    lines: tuple[int, ...]

    def warning(self, num_selected: int, num_ranks: int, dead: Sequence[int] = ()) -> str:
        """One line that says what will happen and what would be right; if all others are `dead`, nobody chose a slice.

        >>> Groupless("dist.barrier()", (2,)).warning(2, 4)
        'line 2: dist.barrier() without group= runs on all 4 ranks but this cell is on 2 of them: pass group=group'
        >>> Groupless("dist.barrier()", (2,)).warning(3, 4, [1])
        'line 2: dist.barrier() without group= runs on all 4 ranks, and rank 1 is dead: %mesh restart @dead'
        """
        where = f"line{'s' * (len(self.lines) > 1)} {', '.join(map(str, self.lines))}"
        what = f"{where}: {self.call} without group= runs on all {num_ranks} ranks"
        if num_selected + len(dead) == num_ranks:
            return f"{what}, and {named(dead)} {'are' if len(dead) > 1 else 'is'} dead: %mesh restart @dead"
        return f"{what} but this cell is on {num_selected} of them: pass group=group"


def groupless(source: str, first_line: int = 1) -> list[Groupless]:
    """The collectives that this cell calls without a group; its first line is line `first_line` for the reader.

    A function that the cell defines counts where the cell also uses its name.

    >>> groupless("import torch.distributed as td\\ntd.barrier()\\ntd.all_reduce(x, group=group)")
    [Groupless(call='td.barrier()', lines=(2,))]
    """
    tree = tree_of(source)
    if tree is None:
        return []
    paths = Paths.of(tree, _CONVENTION, {_MODULE: GROUP_POSITIONS})
    lines: dict[str, list[int]] = {}
    for call in _calls(tree.body, _used_names(tree)):
        name = _collective(paths.path(call.func))
        if name is not None and not _has_group(call, name):
            lines.setdefault(_text(call), []).append(call.lineno + first_line - 1)
    return [Groupless(text, tuple(dict.fromkeys(sorted(found)))) for text, found in lines.items()]


def _collective(path: str) -> str | None:
    """The collective that lies there, by its own name; None if there is none."""
    module, _, name = path.rpartition(".")
    return name if module in (_MODULE, f"{_MODULE}.distributed_c10d") and name in GROUP_POSITIONS else None


def _used_names(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _calls(nodes: Iterable[ast.AST], used: set[str]) -> Iterator[ast.Call]:
    """The calls that run with the cell, in order; not those in functions and classes that it only defines."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name not in used:
            continue
        if isinstance(node, ast.ClassDef):
            yield from _calls_of_class(node, used)
            continue
        if isinstance(node, ast.Call):
            yield node
        yield from _calls(ast.iter_child_nodes(node), used)


def _calls_of_class(node: ast.ClassDef, used: set[str]) -> Iterator[ast.Call]:
    """Of a class that is used any method may be called: `forward` never by its name."""
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    yield from _calls(ast.iter_child_nodes(node), used | methods)


def _has_group(call: ast.Call, name: str) -> bool:
    """Is there one, or may there be one in `*args` or `**options`?"""
    if any(keyword.arg in ("group", None) for keyword in call.keywords):
        return True
    return any(isinstance(each, ast.Starred) for each in call.args) or len(call.args) > GROUP_POSITIONS[name]


def _text(call: ast.Call) -> str:
    has_arguments = bool(call.args or call.keywords)
    return f"{ast.unparse(call.func)}({'…' if has_arguments else ''})"
