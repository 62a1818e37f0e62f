"""Completion of names on a rank, also while its main thread runs a cell."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from IPython.core.completer import IPCompleter

MOST = 200

_DOTTED = re.compile(r"(?<![\w.\])\"'])([^\W\d]\w*(?:\.[^\W\d]\w*)*)\.(\w*)\Z")
_LONGEST_CALL = 2000
"""Characters before the cursor in which the bracket is looked for that it stands in."""

NOTHING = object()
"""Where there is no object, or none that can be had without running code."""


def complete(text: str, cursor: int, others: IPCompleter, names: dict[str, Any]) -> tuple[int, list[str]]:
    """Where in `text` the part to replace begins, and what could stand there up to the cursor: at most 200.

    Plain attributes are looked up without running user code (no property, no `__getattr__`, no `__dir__` of a
    class from a cell). Names, magics, paths and keys are IPython's (`others`), under its policy of limited
    evaluation. Nothing for an import: IPython would import the module to look into it.
    """
    if _is_import(text, cursor):
        return cursor, []
    dotted = _DOTTED.search(text, 0, cursor)
    if dotted:
        owner = looked_up(dotted[1].split("."), names)
        if owner is not NOTHING:
            return dotted.start(2), _beginning_with(dotted[2], _attributes(owner))
    return _by_ipython(text, cursor, others)


def _is_import(text: str, cursor: int) -> bool:
    line = text[text.rfind("\n", 0, cursor) + 1 : cursor].lstrip()
    return line.startswith(("import ", "from "))


def looked_up(path: Sequence[str], names: Mapping[str, Any]) -> Any:
    """The object of a dotted name, if reading it runs no code."""
    found: Any = names.get(path[0], NOTHING)
    for name in path[1:]:
        if found is NOTHING:
            break
        found = _of_module(found, name) if isinstance(found, ModuleType) else _static(found, name)
    return found


def _of_module(module: ModuleType, name: str) -> Any:
    return vars(module).get(name, NOTHING)


def _static(owner: Any, name: str) -> Any:
    found = inspect.getattr_static(owner, name, NOTHING)
    return NOTHING if hasattr(cast("object", type(found)), "__get__") else found


def _attributes(owner: Any) -> Iterable[str]:
    listing = inspect.getattr_static(cast("object", type(owner)), "__dir__")
    if not isinstance(listing, FunctionType) or listing.__module__ != "__main__":
        return dir(owner)
    try:
        own: dict[str, object] = object.__getattribute__(owner, "__dict__")
    except AttributeError:  # it has slots
        own = {}
    return set(own).union(*(vars(kind) for kind in type(owner).__mro__))


def _beginning_with(prefix: str, words: Iterable[str]) -> list[str]:
    """Sorted; what begins with an underscore only for who has typed one."""
    fitting = {word for word in words if word.startswith(prefix)}
    return sorted(word for word in fitting if prefix or not word.startswith("_"))[:MOST]


def _by_ipython(text: str, cursor: int, others: IPCompleter) -> tuple[int, list[str]]:
    """IPython's matches; it sees one line only."""
    line = line_of_call(text[:cursor])
    fragment, matches = cast("Any", others).complete(line_buffer=line, cursor_pos=len(line))
    return cursor - len(fragment), list(dict.fromkeys(matches))[:MOST]


def line_of_call(text: str) -> str:
    """The last line of a text, joined with those before it in which a bracket is open: a call has its name there.

    Example:
        >>> line_of_call("x = 1\\nLinear(\\n    in_"), line_of_call("f(1)\\ng")
        ('Linear(     in_', 'g')
    """
    depth, end = 0, max(len(text) - _LONGEST_CALL, 0)
    for at in range(len(text) - 1, end - 1, -1):
        depth += (text[at] in ")]}") - (text[at] in "([{")
        if depth < 0:
            return text[text.rfind("\n", 0, at) + 1 :].replace("\n", " ")
    return text[text.rfind("\n") + 1 :]
