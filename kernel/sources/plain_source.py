"""The source of a cell as plain Python, for a script: no magics, no top-level `await`, its last value printed."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from IPython.core.inputtransformer2 import TransformerManager

from .code_lines import code_lines

_SHELL = "get_ipython"
_TIMERS = re.compile(r"\s*%%(?:time|capture)\b[^\n]*\n")
"""Cell magics whose body is the cell all the same."""


@dataclass(frozen=True, slots=True)
class PlainSource:
    """A cell that a script can hold."""

    text: str
    warnings: tuple[str, ...] = ()
    """What could not be taken over, a line each."""
    futures: tuple[str, ...] = ()
    """Names that it imports from `__future__`, which stand at the top of a script only."""


def plain_source(source: str, name: str, by: int = 0) -> PlainSource:
    """The cell in plain Python; `name` is an identifier of its own. Its last value is given to a function `_show`.

    `by` is the rank that shows it. A coroutine runs in an event loop `_loop`.

    Example:
        >>> print(plain_source("x = 1\\n!ls\\nx + 1", "cell_1").text)
        x = 1
        pass  # !ls
        _show(x + 1, by=0)
    """
    timed = _TIMERS.match(source)
    text = source[timed.end() :] if timed else source
    try:
        translated = _translated(text)
        tree = _parsed(translated)
    except (SyntaxError, ValueError) as error:
        return PlainSource(_commented(source), (f"left out, as it is no Python: {error}",))
    if _is_cell_magic(text):
        return PlainSource(_commented(source), (f"left out: {text.strip().splitlines()[0]} is notebook syntax",))
    lines = code_lines(translated)
    originals = code_lines(text) if text.count("\n") == translated.rstrip("\n").count("\n") else [*lines]
    warnings = [f"line {line} is notebook syntax and was left out" for line in _drop_magics(tree, lines, originals)]
    futures = _drop_futures(tree, lines)
    _show_last(tree, lines, by, is_quiet=text.rstrip().endswith(";"))
    plain = "\n".join(lines).strip("\n")
    tree = _parsed(plain)
    plain = _as_coroutine(plain, tree, name) if _has_await(tree) else _rewritten(plain, tree, _for_script)
    return PlainSource(plain, tuple(warnings), tuple(futures))


def indented(text: str) -> str:
    """The text one step to the right, but for lines that go on inside of a string."""
    inside: set[int] = set()
    starts: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "STRING":
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
        elif kind == "FSTRING_START":
            starts.append(token.start[0])
        elif kind == "FSTRING_END":
            inside.update(range(starts.pop() + 1, token.end[0] + 1))
    lines = code_lines(text)
    return "\n".join(f"    {line}" if line and at not in inside else line for at, line in enumerate(lines, 1))


def _translated(text: str) -> str:
    """The cell in Python. What is that already IPython would cut at U+2028 and the like, and warn of the pieces."""
    try:
        _parsed(text)
    except SyntaxError:
        return str(TransformerManager().transform_cell(text))
    return text


def _parsed(text: str) -> ast.Module:
    return compile(text, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def _commented(source: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in code_lines(source.strip("\n")))


def _is_cell_magic(text: str) -> bool:
    return text.lstrip().startswith("%%")


def _drop_magics(tree: ast.Module, lines: list[str], originals: list[str]) -> Iterator[int]:
    """Turn statements that ask the shell for something into comments, in place; the numbers of their lines."""
    for node in list(_statements(tree)):
        if not _asks_shell(node):
            continue
        first, last = node.lineno, node.end_lineno or node.lineno
        indent = lines[first - 1][: node.col_offset]
        texts = [line.strip() for line in originals[first - 1 : last]] if len(originals) >= last else []
        lines[first - 1] = f"{indent}pass  # {' '.join(texts)}"
        lines[first:last] = ["" for _ in range(first, last)]
        yield first


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The innermost statements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and not hasattr(child, "body") and not isinstance(child, ast.Match):
            yield child
        else:
            yield from _statements(child)


def _asks_shell(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Name) and node.id == _SHELL for node in ast.walk(statement))


def _drop_futures(tree: ast.Module, lines: list[str]) -> list[str]:
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            names += [alias.name for alias in node.names]
            for at in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[at] = ""
    return names


def _show_last(tree: ast.Module, lines: list[str], by: int, *, is_quiet: bool) -> None:
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or is_quiet or _asks_shell(last):
        return
    start, end = last.lineno - 1, (last.end_lineno or last.lineno) - 1
    left, right = ("((", ")") if isinstance(last.value, ast.Tuple) else ("(", "")
    lines[end] = _spliced(lines[end], last.end_col_offset or 0, f"{right}, by={by})")
    lines[start] = _spliced(lines[start], last.col_offset, f"_show{left}")


def _spliced(line: str, at: int, text: str) -> str:
    """The tree counts bytes."""
    raw = line.encode()
    return (raw[:at] + text.encode() + raw[at:]).decode()


def _has_await(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith)
        or (isinstance(node, ast.comprehension) and bool(node.is_async))
        for node in _own(tree)
    )


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when the cell does: not the bodies of functions, nor those of classes, whose names are theirs."""
    is_scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
    for name, value in ast.iter_fields(node):
        children = cast("list[object]", value) if isinstance(value, list) else [value]
        for child in children if name != "body" or not is_scope else ():
            if isinstance(child, ast.AST):
                yield child
                yield from _own(child)


def _as_coroutine(text: str, tree: ast.Module, name: str) -> str:
    """A function that awaits, and runs; the names it binds are the module's."""
    names = sorted(set(_bound(tree)))
    declared = f"    global {', '.join(names)}\n" if names else ""
    body = indented(_rewritten(text, tree, _for_coroutine))
    return f"async def {name}():\n{declared}{body}\n\n_loop.run_until_complete({name}())"


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in _own(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest


def _rewritten(text: str, tree: ast.Module, rewrite: Callable[[ast.stmt, str], str]) -> str:
    """The text with what may not stand everywhere (`global`, imports, annotations) as `rewrite` puts its source."""
    raw = text.encode()  # the tree counts bytes
    starts = [0, *itertools.accumulate(map(len, raw.splitlines(keepends=True)))]
    for node in reversed(list(_own(tree))):
        if isinstance(node, ast.Global | ast.ImportFrom | ast.AnnAssign):
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            raw = raw[:first] + rewrite(node, raw[first:last].decode()).encode() + raw[last:]
    return raw.decode()


def _for_script(statement: ast.stmt, source: str) -> str:
    """A statement behind other cells: `global` says nothing in a module, and may not follow where the name is used."""
    return "pass" if isinstance(statement, ast.Global) else source


def _for_coroutine(statement: ast.stmt, source: str) -> str:
    """A statement in a function that declares its names global, which may then have no annotation."""
    if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
        return f"exec({source!r}, globals())"  # where it stands: what is before it may set `sys.path`
    if isinstance(statement, ast.AnnAssign) and statement.simple:
        return _without_annotation(source)
    return _for_script(statement, source)


def _without_annotation(source: str) -> str:
    """Example: `x = 1` for `x: int = 1`; nothing is left of `x: int`."""
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
        if token.string == "=" and depth == 0:
            line, column = token.start
            value = "\n".join(source.split("\n")[line - 1 :])[column + 1 :]
            return f"{source.partition(':')[0].rstrip()} = {value.lstrip(' ')}"
    return "pass"
