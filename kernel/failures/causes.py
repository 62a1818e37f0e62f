"""What an exception says beside its message: its notes, the exceptions in a group, what it was raised from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from ...runtime.ranks.quoted import is_remote

MAX_MEMBERS = 5
"""Exceptions of a group that are told."""

_MAX_TOLD = 12

_Headline = Callable[[BaseException], str]


def beneath(error: BaseException, headline: _Headline) -> list[str]:
    """The lines that belong under its message; `headline` tells one exception in a line.

    Example:
        >>> error = ExceptionGroup("two", [ValueError("a"), KeyError("b")])
        >>> error.add_note("seen on Monday")
        >>> beneath(error, repr)
        ['seen on Monday', "- ValueError('a')", "- KeyError('b')"]
    """
    return list(_lines(error, headline, {id(error)}))


def _lines(error: BaseException, headline: _Headline, told: set[int]) -> Iterator[str]:
    yield from (str(note) for note in getattr(error, "__notes__", ()))
    if isinstance(error, BaseExceptionGroup):
        members = cast("BaseExceptionGroup[BaseException]", error).exceptions
        for member in members[:MAX_MEMBERS]:
            yield from _other("- ", member, headline, told)
        if len(members) > MAX_MEMBERS:
            yield f"- and {len(members) - MAX_MEMBERS} more"
    if error.__cause__ is not None and is_remote(error.__cause__):
        return  # it is the error itself, as another process has raised it
    if error.__cause__ is not None:
        yield from _other("caused by ", error.__cause__, headline, told)
    elif error.__context__ is not None and not error.__suppress_context__:
        yield from _other("while handling ", error.__context__, headline, told)


def _other(relation: str, error: BaseException, headline: _Headline, told: set[int]) -> Iterator[str]:
    """Of an exception that has to do with the one that is told."""
    if id(error) in told or len(told) == _MAX_TOLD:  # a ring, or a chain that nobody reads
        return
    told.add(id(error))
    yield relation + headline(error)
    indent = "  " if relation == "- " else ""
    yield from (indent + line for line in _lines(error, headline, told))
