"""The journal of a mesh: what its ranks have run and were given, and what of it sets up a rank that comes new.

A new rank must know what the others know: imports, functions, classes, settings. It must not train alone, not wait in
a collective that nobody else calls, and not save what it has not learnt over what was. So a cell that does none of this
is replayed whole, of any other only what it imports and defines. Where all ranks of a cell come new, it may build a
model that is spread over them, too. Values that were pushed come between the cells, where they came before. Pure: cells
in, a plan out.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from ..runtime.reshape import Reshape
from .size import pickles_to_at_least

Choice = Literal["auto", "all", "none"] | frozenset[int]
"""Which cells are replayed; numbers are those in front of the cells."""

MOST_CELLS = 1_000

LARGEST_PUSH = 64 << 20
"""Bytes of a pushed value that is kept for new ranks; also of all those together that others have replaced since."""

T = TypeVar("T")

_TRAINS = {"backward", "step", "fit", "zero_grad"}
_COMMUNICATES = {
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single"),
    *("barrier", "monitored_barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce"),
    *("reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "recv", "isend", "irecv"),
    *("batch_isend_irecv", "destroy_process_group", "full_tensor", "redistribute"),
}
_WRITES = {
    *("save", "async_save", "savez", "savez_compressed", "savetxt", "savefig", "save_file", "save_model", "save_state"),
    *("save_pretrained", "save_checkpoint", "save_state_dict", "save_weights", "save_to_disk", "push_to_hub", "dump"),
    *("to_csv", "to_parquet", "to_pickle", "to_json", "tofile", "write", "writelines", "write_text", "write_bytes"),
    *("unlink", "rmtree", "rmdir", "copyfile", "copytree", "symlink_to", "truncate", "system", "Popen"),
}
_WORKS = _TRAINS | _COMMUNICATES | _WRITES
_BUILDS_TOGETHER = {
    *("init_process_group", "new_group", "init_device_mesh"),
    *("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard", "replicate"),
    *("parallelize_module", "distribute_module", "distribute_tensor"),
}
"""What every rank of a group calls once, and what needs no others after that."""
_HARMLESS_METHODS = {"append", "extend", "add", "update", "items", "keys", "values", "setdefault", "format", "join"}
_HARMLESS_MAGICS = {"matplotlib", "autoreload", "load_ext", "env", "config", "precision"}
_MAGIC = re.compile(r"^(?:%(\w+)|!).*$", re.MULTILINE)
_WRITING = re.compile(r"[rwxabt+]{0,3}[wxa+][rwxabt+]{0,3}")
"""A mode of `open`; no name of a file that is as short is likely."""
_CONSTANT = (
    *(ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp),
    *(ast.operator, ast.unaryop, ast.expr_context),
)
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(slots=True)
class Entry:
    """A cell that ran, where, and on which of these ranks it failed or was cut off by their end."""

    name: str
    source: str
    first_line: int
    ranks: tuple[int, ...]
    failed: set[int] = field(default_factory=set[int])
    is_running: bool = False
    """Whether it still runs on other ranks: nobody knows then whether it would come to an end on a new one."""

    @property
    def number(self) -> int | None:
        """The number in front of the cell; None for one with a label."""
        word, _, number = self.name.partition(" ")
        return int(number) if word == "cell" and number.isdigit() else None


@dataclass(frozen=True, slots=True)
class Replay:
    """What a new rank is to run, with the ranks that the cell once ran on."""

    name: str
    source: str
    first_line: int
    ranks: tuple[int, ...]
    is_part: bool
    """Is it only what the cell imports and defines?"""


@dataclass(frozen=True, slots=True)
class Pushed:
    """A value of the notebook that ranks were given, to be given to those that come new."""

    name: str
    value: object
    ranks: tuple[int, ...]
    num_bytes: int = 0
    """Of the value, if it is here."""
    is_kept: bool = True
    """Is the value here? One that is too large is not: the journal would keep it alive after the notebook."""

    def without_value(self) -> Pushed:
        """That the name was pushed, and no more."""
        return Pushed(self.name, None, self.ranks, is_kept=False)


class Journal:
    """The cells of a mesh, each text once, in the order in which they last ran, and between them what was pushed.

    Example:
        >>> journal = Journal()
        >>> _ = journal.note("cell 1", "import math\\nlr = 0.1", 1, [0, 1])
        >>> _ = journal.note("cell 2", "def train():\\n    loss().backward()\\ntrain()", 1, [0, 1])
        >>> for replay in journal.plan("auto"):
        ...     print(replay.name, replay.is_part, repr(replay.source))
        cell 1 False 'import math\\nlr = 0.1'
        cell 2 True 'def train():\\n    loss().backward()\\n'
    """

    def __init__(self) -> None:
        self._notes: dict[tuple[str, tuple[int, ...]] | int, Entry | Pushed] = {}
        self._numbers = itertools.count()  # of pushes

    def note_push(self, names: Mapping[str, object], ranks: Sequence[int]) -> None:
        """Ranks were given these values under these names."""
        for name, value in names.items():
            push = Pushed(name, value, tuple(ranks), pickles_to_at_least(value, LARGEST_PUSH))
            self._add(push if push.num_bytes <= LARGEST_PUSH else push.without_value())
        self._replace(_within_bounds(needed(self.notes)))

    def note(self, name: str, source: str, first_line: int, ranks: Sequence[int]) -> Entry:
        """A cell runs; the caller adds to `failed` of what this returns."""
        entry = Entry(name, source, first_line, tuple(ranks))
        self._add(entry)
        if len(entries := self.entries) > MOST_CELLS:
            del self._notes[entries[0].source, entries[0].ranks]
        return entry

    def reshape(self, plan: Reshape) -> None:
        """The mesh was resized: what ran on some ranks is for those of that slice in the new grid."""
        moved = [_moved(note, plan) for note in self.notes]
        self._replace([note for note in moved if note.ranks])

    def _add(self, note: Entry | Pushed) -> None:
        key = next(self._numbers) if isinstance(note, Pushed) else (note.source, note.ranks)
        self._notes.pop(key, None)  # what ran before is now the last
        self._notes[key] = note

    def _replace(self, notes: Iterable[Entry | Pushed]) -> None:
        self._notes.clear()
        for note in notes:
            self._add(note)

    @property
    def notes(self) -> list[Entry | Pushed]:
        """The cells in the order in which they last ran, and what was pushed before, between and after them."""
        return list(self._notes.values())

    @property
    def entries(self) -> list[Entry]:
        """The cells alone."""
        return [note for note in self.notes if isinstance(note, Entry)]

    def plan(self, choice: Choice = "auto", new: Collection[int] = ()) -> list[Replay | Pushed]:
        """What new ranks are to run and to be given, in order; a step says by its `ranks` whether one is among them."""
        if choice == "none":
            return []
        calls = _calls_of(entry.source for entry in self.entries)
        alone, together = (each | closure(calls, each) for each in (_WORKS | _BUILDS_TOGETHER, _WORKS))

        def step(note: Entry | Pushed) -> Replay | Pushed | None:
            if isinstance(note, Pushed):
                return note
            return _of_entry(note, choice, together if set(note.ranks) <= set(new) else alone)

        return needed([found for note in self.notes if (found := step(note)) is not None])


def needed(notes: Sequence[T]) -> list[T]:
    """Cells, and pushes without those that another one replaces before a cell comes that could read them.

    What a cell reads is not looked for: functions that it calls read too.
    """
    unread = set(_replaced(notes, before_cells=True))
    return [note for at, note in enumerate(notes) if at not in unread]


def _within_bounds(notes: Sequence[Entry | Pushed]) -> list[Entry | Pushed]:
    """The notes; of values that were replaced, the newest are kept that take no more than `LARGEST_PUSH` together."""
    found, room = list(notes), LARGEST_PUSH
    for at in _replaced(notes):
        push = notes[at]
        assert isinstance(push, Pushed)
        if push.num_bytes <= room:
            room -= push.num_bytes
        else:
            found[at] = push.without_value()
    return found


def _replaced(notes: Sequence[object], *, before_cells: bool = False) -> Iterator[int]:
    """Where pushes stand that a later one replaces, the newest first; `before_cells`: with no cell between the two."""
    later: defaultdict[str, list[set[int]]] = defaultdict(list)
    for at in reversed(range(len(notes))):
        note = notes[at]
        if isinstance(note, Pushed):
            if any(ranks.issuperset(note.ranks) for ranks in later[note.name]):
                yield at
            later[note.name].append(set(note.ranks))
        elif before_cells:
            later.clear()


def _moved(note: Entry | Pushed, plan: Reshape) -> Entry | Pushed:
    ranks = plan.extended(note.ranks)
    if isinstance(note, Pushed):
        return replace(note, ranks=ranks)
    return replace(note, ranks=ranks, failed={*plan.renumbered(note.failed)})


def _whole(entry: Entry) -> Replay:
    return Replay(entry.name, entry.source, entry.first_line, entry.ranks, is_part=False)


def _of_entry(entry: Entry, choice: Choice, hot: Collection[str]) -> Replay | None:
    if isinstance(choice, frozenset):
        return _whole(entry) if entry.number in choice else None
    if choice == "all":
        return _whole(entry)
    if not entry.failed and not entry.is_running and is_setup(entry.source, hot):
        return _whole(entry)
    definitions = definitions_of(entry.source)
    return Replay(entry.name, definitions, entry.first_line, entry.ranks, is_part=True) if definitions else None


def is_setup(source: str, hot: Collection[str] = _WORKS | _BUILDS_TOGETHER) -> bool:
    """Does a cell neither train, communicate nor write files? `hot` names functions that do.

    Example:
        >>> is_setup("model = Net().to(device)"), is_setup("model = DDP(Net())"), is_setup("!pip install x")
        (True, False, False)
        >>> is_setup("model = DDP(Net())", hot={"backward"})  # what one calls where all come new
        True
    """
    tree = _parsed(source)
    if tree is None or any(name not in _HARMLESS_MAGICS for name in _magics(source)):
        return False
    return not any(_works(statement, hot) for statement in tree.body)


def definitions_of(source: str) -> str:
    """What a cell imports and defines (functions, classes, constants), at its lines; empty when that is nothing.

    Example:
        >>> definitions_of("import math\\nprint(1)\\ndef area(r):\\n    return math.pi * r * r\\n")
        'import math\\n\\ndef area(r):\\n    return math.pi * r * r\\n'
    """
    tree = _parsed(source)
    if tree is None:
        return ""
    kept = [_lines_of(statement) for statement in tree.body if _defines(statement)]
    dropped = [_lines_of(statement) for statement in tree.body if not _defines(statement)]
    shared = {number for lines in dropped for number in lines}  # `import a; a.work()`
    wanted = {number for lines in kept if not shared & set(lines) for number in lines}
    lines = source.splitlines()
    text = "\n".join(line if number in wanted else "" for number, line in enumerate(lines[: max(wanted, default=0)], 1))
    return f"{text}\n" if wanted else ""


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):  # of a constant
        return all(isinstance(node, _CONSTANT) for node in ast.walk(statement.value))
    return isinstance(statement, _DEFINITIONS)


def _parsed(source: str) -> ast.Module | None:
    """The tree of a cell, its line magics left out; None where it is no Python (a cell magic, `?`, a typo)."""
    try:
        return compile(
            _MAGIC.sub("pass", source),
            "<journal>",
            "exec",
            ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
    except (SyntaxError, ValueError):  # ValueError: a null byte
        return None


def _magics(source: str) -> Iterator[str]:
    """The names of line magics in a cell; empty for `!`."""
    return (found[1] or "" for found in _MAGIC.finditer(source))


def _lines_of(statement: ast.stmt) -> range:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return range(first, (statement.end_lineno or statement.lineno) + 1)


def _works(statement: ast.stmt, hot: Collection[str]) -> bool:
    """Does a statement, when it runs, train, communicate or write files, or may it take long?"""
    if isinstance(statement, _DEFINITIONS):
        return False
    nodes = list(_run_now(statement))
    calls = {name for node in nodes if (name := _called(node))}
    if not calls.isdisjoint(hot) or any(map(_opens_to_write, nodes)):
        return True
    if any(isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) for node in nodes):
        return True
    has_loop = any(isinstance(node, ast.For | ast.While) for node in nodes)
    return has_loop and not all(map(_is_soon_done, calls))


def _is_soon_done(called: str) -> bool:
    """Is it what loops may call that build something? Classes are, as long as their names look like it."""
    return called[0].isupper() or called in {*dir(builtins), *_HARMLESS_METHODS, *_BUILDS_TOGETHER}


def _run_now(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is in it, without the bodies of functions, which run when they are called."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _run_now(child)


def _called(node: ast.AST) -> str:
    """The last name of what a node calls: `step` for `opt.step()`. Empty if it calls nothing that has a name."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _opens_to_write(node: ast.AST) -> bool:
    """Is it `open(path, "w")`, or `path.open("a")`? A mode that is not written there is taken for one to read."""
    if not isinstance(node, ast.Call) or _called(node) != "open":
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    modes = [each.value for each in given if isinstance(each, ast.Constant)]
    return any(isinstance(mode, str) and _WRITING.fullmatch(mode) for mode in modes)


def _calls_of(sources: Iterable[str]) -> dict[str, set[str]]:
    """The functions, methods and classes of these cells, each with the names that it calls."""
    calls: dict[str, set[str]] = {}
    for source in sources:
        for name, called in _functions(source):
            calls.setdefault(name, set()).update(called)
    return calls


def _functions(source: str) -> Iterator[tuple[str, set[str]]]:
    """Each function of a cell with the names that it calls; a class stands for its `__init__`."""
    tree = _parsed(source)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, _calls_in(node)
        elif isinstance(node, ast.ClassDef):
            inits = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            yield node.name, {name for init in inits for name in _calls_in(init)}


def _calls_in(node: ast.AST) -> set[str]:
    return {name for inner in ast.walk(node) if (name := _called(inner))}


def closure(calls: Mapping[str, Collection[str]], hot: Collection[str]) -> set[str]:
    """The names in `calls` that reach a hot one.

    Example:
        >>> sorted(closure({"epoch": {"batch"}, "batch": {"backward"}, "show": {"print"}}, {"backward"}))
        ['batch', 'epoch']
    """
    found: set[str] = set()
    while more := {name for name, called in calls.items() if name not in found and set(called) & {*hot, *found}}:
        found |= more
    return found
