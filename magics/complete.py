"""What the Tab key offers on a line of `%mesh` or `%%on_mesh`, and in the body of a `%%on_mesh` cell.

Pure: text, cursor and a picture of the world in, words out. Commands and options come from the tables that
read the lines; names on the ranks come from the callable of the world.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .grammar import ALIASES, COMMANDS, ON_MESH
from .options import HELP_FLAGS, Command, Offer, Option, is_option, split_flag
from .terms import OTHER_AXES, STATES

EXPR = re.compile(r"(?:^|\s)--\s")
"""What an expression of `%on_mesh` stands behind."""

MAX_INDICES = 32
"""Of a long axis only the first ones are offered."""

_CELL = re.compile(r"(?:[^\S\n]*(?:#[^\n]*)?\n)*[^\S\n]*%%on_mesh(?=\s)")
_LINE = re.compile(r"\s*(?:[^\W\d][\w, ]*=\s*)?%(?P<magic>mesh|on_mesh)\s")
_NAME = re.compile(r"(?<![\w.%)\]\"'])[^\W\d]\w*(?:\.\w*)*$")
_KEY = re.compile(r"(?<![\w.%)\]\"'])(?P<owner>[^\W\d]\w*(?:\.\w+)*\[)(?P<key>'[^']*|\"[^\"]*|)$")
_VALUE = re.compile(r"(?P<axis>[^\W\d]\w*)\s*=\s*!?(?P<inside>\((?:[^()]*,\s*)?)?(?P<typed>[^\s,()!]*)$")


def _no_names(prefix: str) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class World:
    """What completion knows of the notebook."""

    meshes: tuple[str, ...] = ()
    axes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of the current mesh."""
    states: Mapping[int, str] = field(default_factory=dict[int, str])
    """Of its ranks; the states that are there now are offered first."""
    remote_names: Callable[[str], Sequence[str]] = _no_names
    """Whole names on the ranks for what is typed so far: `("model.la") -> ["model.layers"]`."""


@dataclass(frozen=True, slots=True)
class Completions:
    """Words that may replace the text from `start` up to the cursor."""

    start: int
    items: tuple[str, ...]


def complete(text: str, cursor: int, world: World) -> Completions | None:
    """What fits at the cursor of a cell or line; None where the text is not ours.

    >>> complete("%%on_mesh dp=", 13, World(axes={"dp": 2}))
    Completions(start=13, items=('0', '1', ':'))
    """
    line = text[:cursor].rpartition("\n")[2]
    if cell := _CELL.match(text):
        if "\n" in text[cell.end() : cursor]:
            return _remote(line, cursor, world)
        return _command(ON_MESH, text[cell.end() : cursor], cursor, world) if cursor > cell.end() else None
    if found := _LINE.match(line):
        rest = line[found.end() :]
        return _mesh(rest, cursor, world) if found["magic"] == "mesh" else _on_mesh(rest, cursor, world)
    return None


def body_line(text: str, cursor: int) -> str | None:
    """What follows `%%on_mesh` or `%on_mesh` where the cursor is in the Python of such a cell or line; else None.

    Example:
        >>> body_line("%%on_mesh dp=0\\nmodel", 20)
        'dp=0'
    """
    if cell := _CELL.match(text):
        first, newline, _ = text[cell.end() :].partition("\n")
        return first.strip() if newline and cursor > cell.end() + len(first) else None
    start = text.rfind("\n", 0, cursor) + 1
    line = text[start:].partition("\n")[0]
    found = _LINE.match(line)
    if found is None or found["magic"] != "on_mesh":
        return None
    expr = EXPR.search(line, found.end() - 1)
    return line[found.end() : expr.start()].strip() if expr and cursor - start >= expr.end() else None


def _mesh(rest: str, cursor: int, world: World) -> Completions:
    name, space, behind = rest.lstrip().partition(" ")
    if not space:
        return _fitting(name, COMMANDS, cursor)
    command = COMMANDS.get(ALIASES.get(name, name))
    return _command(command, behind, cursor, world) if command else Completions(cursor, ())


def _on_mesh(rest: str, cursor: int, world: World) -> Completions:
    if expr := EXPR.search(rest):
        return _remote(rest[expr.end() :], cursor, world) or Completions(cursor, ())
    return _command(ON_MESH, rest, cursor, world)


def _command(command: Command, rest: str, cursor: int, world: World) -> Completions:
    """Completes the words and options of one command; `rest` is what stands before the cursor."""
    typed = re.split(r"\s", rest)[-1]
    previous = rest[: len(rest) - len(typed)].split()
    by_flag = {flag: each for each in command.options.values() for flag in each.flags}
    flag, glued = split_flag(typed)
    if typed.startswith("--") and glued is not None and flag in by_flag:
        return _value(by_flag[flag], glued, cursor, world)
    if previous and (each := by_flag.get(previous[-1])) and each.metavar:
        return _value(each, typed, cursor, world)
    flags = _fitting(typed, _flags(command, previous, typed), cursor)
    if is_option(typed) or typed in ("-", "--"):
        return flags
    words = _offered(command.offers, rest, cursor, world)
    is_open = rest.rstrip().endswith((",", "(", "="))
    return words if typed or is_open else Completions(cursor, words.items + flags.items)


def _flags(command: Command, previous: Sequence[str], typed: str) -> list[str]:
    """Options not on the line yet; short spellings only where a dash is typed."""
    given = {split_flag(token)[0] for token in previous if is_option(token)}
    free = [each for each in command.options.values() if each.is_many or given.isdisjoint(each.flags)]
    flags = [flag for each in free for flag in each.flags]
    return [*flags, *HELP_FLAGS] if typed else [flag for flag in flags if flag.startswith("--")]


def _value(each: Option, typed: str, cursor: int, world: World) -> Completions:
    return _fitting(typed, each.choices, cursor) if each.choices else _offered(each.offers, typed, cursor, world)


def _offered(offer: Offer, rest: str, cursor: int, world: World) -> Completions:
    if offer == "selector":
        return _selector(rest, cursor, world)
    if offer == "mesh":
        return _fitting(re.split(r"\s", rest)[-1], world.meshes, cursor)
    if offer == "remote":
        return _remote(rest, cursor, world) or Completions(cursor, ())
    return Completions(cursor, ())


def _selector(rest: str, cursor: int, world: World) -> Completions:
    if found := _VALUE.search(rest):
        return _fitting(found["typed"], _indices(found["axis"], bool(found["inside"]), world), cursor)
    typed = re.split(r"[\s,]", rest)[-1]
    return _fitting(typed, _terms(rest, typed, world), cursor)


def _indices(axis: str, is_inside: bool, world: World) -> list[str]:
    size = world.axes.get(axis)
    if size is None and axis == "rank":
        size = math.prod(world.axes.values())
    if size is None:
        return []
    return [str(index) for index in range(min(size, MAX_INDICES))] + ([] if is_inside else [":"])


def _terms(rest: str, typed: str, world: World) -> list[str]:
    axes = [f"{axis}=" for axis in (*world.axes, *(OTHER_AXES if typed else ()))]
    there = set(world.states.values())
    states = sorted(STATES, key=lambda state: state not in there)
    free = [axis for axis in axes if not re.search(rf"\b{axis}", rest)]
    return [*free, *(f"@{state}" for state in states), "all"]


def _remote(line: str, cursor: int, world: World) -> Completions | None:
    if keyed := _KEY.search(line):
        words = [word.removeprefix(keyed["owner"]) for word in world.remote_names(keyed[0])]
        return _fitting(keyed["key"], words, cursor)
    found = _NAME.search(line)
    if found is None:
        return None
    return _fitting(found[0], world.remote_names(found[0]), cursor)


def _fitting(typed: str, words: Iterable[str], cursor: int) -> Completions:
    items = dict.fromkeys(word for word in words if word.startswith(typed))
    return Completions(cursor - len(typed), tuple(items))
