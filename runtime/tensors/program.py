"""What the controller tells ranks to compute: operations on values that are known by number. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..cells import Line


class Ref:
    """Stands for a value on the ranks, among the arguments of an operation."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[type[Ref], tuple[int]]:
        return Ref, (self.number,)

    def __repr__(self) -> str:
        return f"Ref({self.number})"


class Op(NamedTuple):
    """One operation."""

    number: int
    """By which the controller knows where it was issued."""
    function: str | Callable[..., Any]
    """An operator of torch by its name, such as `aten::add.Tensor`, or a function that can be sent."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[int | None, ...]
    """The numbers of its results, in the order of `pytree`; None: it is one of the arguments, or is not kept."""
    spoils: tuple[int, ...]
    """The arguments it writes to: when it fails they are of no use."""
    is_random: bool = False
    """Whether it draws random numbers."""
    where: Line | None = None
    """The line of the program that has issued it; not of an operator of torch, which waits for no other rank."""


class Poison(NamedTuple):
    """What stands in place of a value whose operation has failed, and of all that depends on it."""

    number: int
    """Of the operation that failed first; 0: it was none."""
    rank: int
    error: str
    """Type and text of its exception, in one line."""
    traceback: str


class Spoilt(Exception):
    """An argument stands for an operation that has failed."""

    def __init__(self, poison: Poison) -> None:
        super().__init__(poison.error)
        self.poison = poison


def split_story(error: BaseException) -> tuple[str, str]:
    """What an error says in one line, and the rest. Of the end of an actor, why it ended stands on the next line.

    Example:
        >>> split_story(RuntimeError("The actor tensors has failed:\\n  its process was stopped\\nlast words"))
        ('The actor tensors has failed: its process was stopped', 'last words')
    """
    head, _, rest = str(error).partition("\n")
    if head.endswith(":") and rest:
        why, _, rest = rest.partition("\n")
        head = f"{head} {why.strip()}"
    return head, rest
