"""A cell's text made ready to run: IPython's syntax translated, compiled, its lines kept for tracebacks."""

from __future__ import annotations
import __future__

import ast
import gc
import inspect
import linecache
import re
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import CodeType
from typing import Protocol

from ...runtime.ranks.users import is_users
from .code_lines import code_lines

_FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
"""The bit flags of all `from __future__` imports."""

_PARSE_ONLY = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

_ASK_FOR_LOOP = {"create_task", "ensure_future", "get_running_loop"}
"""What of asyncio works only while a loop runs, called by a cell itself. `asyncio.run` works in both kinds of cells."""

_OF_TOKENIZER = ("<tokenize>", "<string>")
"""The name that Python's tokenizer gives to what it reads: up to 3.11, and since."""

CELL_FILE = r"<ipython-input-(?:(\d+)|'(.*)')-[0-9a-f]{8}>"
"""The file names of cells; IPython itself has twelve digits there."""

_CELL_FILE = re.compile(CELL_FILE, re.DOTALL)


class Syntax(Protocol):
    """The part of a shell that knows how its cells are written."""

    @property
    def has_default_syntax(self) -> bool:
        """Has no cell or extension added a transformer of source text or syntax trees?"""
        ...

    @property
    def future_flags(self) -> int:
        """Compiler flags of the `from __future__` imports of earlier cells."""
        ...

    @future_flags.setter
    def future_flags(self, flags: int) -> None: ...

    def translated(self, source: str) -> str:
        """Python for a cell with `!cmd`, `%magic`, `name?`."""
        ...

    def rewritten(self, tree: ast.Module) -> ast.Module:
        """The tree after the transformers of syntax trees that extensions have added."""
        ...


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled cell: first `body`, then `last`, whose value is the cell's."""

    body: CodeType | None
    last: CodeType | None
    is_plain: bool = True
    """Is it Python as it stands? Else what it means may depend on the names there are: `pwd`, a magic or a variable."""

    wants_loop: bool = False
    """Does it await, or make tasks of the event loop, as any cell of a notebook may?"""

    def named(self, former: str, file: str) -> Program:
        """The same as a cell of another file: one that runs again under a new number is not compiled again."""
        files = {former: file}
        body, last = (code and renamed(code, files) for code in (self.body, self.last))
        return Program(body, last, self.is_plain, self.wants_loop)


def renamed(code: CodeType, files: Mapping[str, str]) -> CodeType:
    """The code under another file name, if there is one for its own, with the functions inside it."""
    file = files.get(code.co_filename)
    if file is None:
        return code
    inner = tuple(renamed(each, files) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=file, co_consts=inner)


def is_async(code: CodeType | None) -> bool:
    """Does evaluating `code` give a coroutine: has it a top-level `await`?"""
    return code is not None and bool(code.co_flags & inspect.CO_COROUTINE)


_remembered: deque[str] = deque()
_MOST_REMEMBERED = 2000
"""Runs whose lines can be shown; a notebook that loops over cells for days must not keep all."""
_MOST_SENT = 256


_MOST_LINES = 8


def file_of(name: str, source: str, first_line: int = 1) -> str:
    """The file name of a cell: another one for another text, so that a function of an older one shows its own lines.

    It is of the form that IPython gives to what is typed: by that numba, joblib and profilers know cells. Joblib leaves
    out the number, and finds in its cache what a function of the same cell once gave.

    >>> file_of("cell 5", "x = 1"), file_of("setup", "x = 1", first_line=2)
    ('<ipython-input-5-b39a0495>', "<ipython-input-'setup'-82721e08>")
    """
    word, _, number = name.partition(" ")
    short = number if word == "cell" and number.isdecimal() and number.isascii() else f"'{name}'"
    digest = zlib.crc32(f"{first_line}\n{source}".encode(errors="surrogatepass"))
    return f"<ipython-input-{short}-{digest:08x}>"


_names_of_files: dict[str, str] = {}
"""Cells that the notebook itself has run, by the files that it calls them by."""


def call_cell(file: str, name: str, text: str) -> None:
    """Know a cell that the notebook has run and whose classes came here by value: its name and its lines.

    >>> call_cell("/tmp/ipykernel_1/2.py", "cell 9", "x = 1")
    >>> name_of("/tmp/ipykernel_1/2.py"), linecache.getline("/tmp/ipykernel_1/2.py", 1)
    ('cell 9', 'x = 1\\n')
    """
    _names_of_files[file] = name
    remember(text, file, 1)


def name_of(file: str) -> str | None:
    """The cell's name for the reader, of a file name that `file_of` made; None of any other.

    >>> name_of("<ipython-input-5-b39a0495>"), name_of("<ipython-input-'setup'-82721e08>"), name_of("train.py")
    ('cell 5', 'setup', None)
    """
    if match := _CELL_FILE.fullmatch(file):
        return match[2] if match[1] is None else f"cell {match[1]}"
    return _names_of_files.get(file)


class Sources:
    """The texts of the cells sent last, for who knows of a line only where it is."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[str, int]] = {}

    def add(self, name: str, source: str, first_line: int) -> None:
        """Remember a cell that begins in line `first_line` of what the user sees."""
        file = file_of(name, source, first_line)
        self._texts.pop(file, None)  # it is the last one now
        self._texts[file] = source, first_line
        if len(self._texts) > _MOST_SENT:
            del self._texts[next(iter(self._texts))]

    def last_of(self, name: str) -> tuple[str, int] | None:
        """What a cell of this name was when it last ran: its text, and the line in which that begins.

        >>> sources = Sources()
        >>> sources.add("cell 5", "x = 1", first_line=2)
        >>> sources.last_of("cell 5"), sources.last_of("cell 6")
        (('x = 1', 2), None)
        """
        return next((self._texts[file] for file in reversed(self._texts) if name_of(file) == name), None)

    def line(self, file: str, line: int) -> str:
        """A line of a cell or of a file of this machine; empty where it is not known.

        >>> sources = Sources()
        >>> sources.add("cell 5", "x = 1\\ny = 2", first_line=2)
        >>> sources.line(file_of("cell 5", "x = 1\\ny = 2", 2), 3)
        'y = 2'
        """
        if file not in self._texts:
            return linecache.getline(file, line)
        source, first_line = self._texts[file]
        place = max(line - first_line, -1)
        return "".join(code_lines(source)[place : place + 1])


def lines_text(places: Iterable[tuple[str, int | None]]) -> str:
    """Which of these files and lines, from the outside in, are of cells; of a recursion the two ends. May be empty.

    Where the last of them has called a file of the user's (a script, a module), the innermost line of such a file too.

    >>> lines_text([("train.py", 3), (file_of("cell 5", ""), 7), (file_of("cell 4", ""), 2)])
    'cell 5 line 7 > cell 4 line 2'
    >>> lines_text([(file_of("cell 5", ""), 7), ("/home/me/train.py", 3), (linecache.__file__, 40)])
    'cell 5 line 7 > train.py line 3'
    """
    lines: list[str] = []
    within = ""
    for file, line in places:
        if (name := name_of(file)) is not None:
            if (text := f"{name} line {line}") not in lines[-1:]:  # a comprehension has a frame of its own
                lines.append(text)
            within = ""
        elif lines and not file.startswith("<") and is_users(file):
            within = f"{Path(file).name} line {line}"
    if len(lines) > _MOST_LINES:
        lines[2:-2] = ["…"]
    return " > ".join([*lines, within] if within else lines)


def program_of(source: str, file: str, first_line: int, syntax: Syntax) -> Program:
    """Compile a cell whose first line is line `first_line` of what the user sees.

    Raises `SyntaxError`, and what the user's own transformers raise.
    """
    remember(source, file, first_line)
    tree, text, is_plain = _parsed(source, file, first_line, syntax)
    body, last = _split(syntax.rewritten(tree).body, text)
    flags = syntax.future_flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    first = compile(ast.Module(body, []), file, "exec", flags, dont_inherit=True) if body else None
    if first is not None:
        syntax.future_flags |= first.co_flags & _FUTURES
        flags |= syntax.future_flags
    second = compile(last, file, "eval", flags, dont_inherit=True) if last else None
    wants_loop = any(is_async(code) or not _ASK_FOR_LOOP.isdisjoint(code.co_names) for code in (first, second) if code)
    return Program(first, second, is_plain, wants_loop)


def remember(source: str, file: str, first_line: int) -> None:
    """Let tracebacks, `inspect.getsource` and the debugger find the lines as the user wrote them."""
    lines = ["\n"] * (first_line - 1) + [line + "\n" for line in code_lines(source)]
    if file not in linecache.cache:
        _remembered.append(file)
    linecache.cache[file] = (len(source), None, lines, file)  # no mtime: `checkcache` then keeps it
    if len(_remembered) > _MOST_REMEMBERED:
        oldest = _remembered.popleft()
        linecache.cache.pop(oldest, None)
        _names_of_files.pop(oldest, None)


def _parsed(source: str, file: str, first_line: int, syntax: Syntax) -> tuple[ast.Module, str, bool]:
    """The syntax tree, the text it came from, and whether that is the source as it stands.

    Plain Python skips IPython's transformers: they cost more than all the rest of a small cell.
    """
    above = "\n" * (first_line - 1)
    flags = syntax.future_flags | _PARSE_ONLY
    if syntax.has_default_syntax:
        try:
            tree = _tree_of(above + source, file, flags)
        except (SyntaxError, ValueError):
            pass  # not plain Python: what is wrong with it, if anything, is told below
        else:
            if not _is_one_word(tree):
                return tree, above + source, True
    text = above + _translated(source, file, first_line, syntax)
    return _tree_of(text, file, flags), text, False


def _translated(source: str, file: str, first_line: int, syntax: Syntax) -> str:
    """IPython's syntax as Python. Where it cannot be read, the error has the place in the cell.

    Indents are read by Python's tokenizer, which knows no file, after empty lines were left out at the beginning.
    """
    try:
        return syntax.translated(source)
    except SyntaxError as error:
        if error.filename in _OF_TOKENIZER and error.lineno:
            num_blank = sum(1 for _ in takewhile(str.isspace, source.splitlines(keepends=True)))
            error.filename, error.lineno = file, error.lineno + first_line - 1 + num_blank
        raise


def _tree_of(text: str, file: str, flags: int) -> ast.Module:
    with _without_collection():
        return compile(text, file, "exec", flags, dont_inherit=True)


@contextmanager
def _without_collection() -> Generator[None]:
    """Python 3.11 fails with a `SystemError` if a destructor makes a syntax tree while it makes one itself.

    A destructor that prints a traceback makes trees. (gh-106905 of Python's issues.)
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_one_word(tree: ast.Module) -> bool:
    """`pwd`, `exit`, `ls -l`: valid Python, but with another meaning in a cell that has nothing else."""
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return False
    value = tree.body[0].value
    while isinstance(value, ast.BinOp | ast.UnaryOp):
        value = value.left if isinstance(value, ast.BinOp) else value.operand
    return isinstance(value, ast.Name)


def _split(body: list[ast.stmt], text: str) -> tuple[list[ast.stmt], ast.Expression | None]:
    """The statements to run, and the expression whose value the cell has; a `;` behind it silences it."""
    if not body or not isinstance(end := body[-1], ast.Expr) or _is_silenced(text, end):
        return body, None
    return body[:-1], ast.Expression(end.value)


def _is_silenced(text: str, end: ast.Expr) -> bool:
    if ";" not in text or end.end_lineno is None or end.end_col_offset is None:
        return False
    last, *below = code_lines(text)[end.end_lineno - 1 :]
    rest = "\n".join([last.encode()[end.end_col_offset :].decode(), *below])  # the parser counts in UTF-8
    return rest.lstrip(" \t\\\n\f").startswith(";")
