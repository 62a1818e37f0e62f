"""The condition of a breakpoint, made ready for one piece of code: looked at each time its line runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FrameType
from typing import Any

from .remains import is_function

Test = Callable[[Mapping[str, Any]], object]
"""Called with the variables of a frame (`f_locals`): something true where it is so. Raises what the expression does."""


class Condition:
    """An expression in the names of a frame.

    It becomes a function that first reads the variables that it names: that takes a third of the time of `eval`, and
    what is nested in it (`any(x > limit for x in xs)`) sees them too.

    Example:
        >>> import sys
        >>> def f(x):
        ...     return Condition("x > 2", f.__code__).holds(sys._getframe())
        >>> f(1), f(3)
        (False, True)
    """

    __slots__ = ("_expression", "_made", "_names", "_text", "names_globals")

    def __init__(self, text: str, code: CodeType) -> None:
        self._text = text
        self._expression = _compiled(text)
        named = _names_in(self._expression) if self._expression is not None else None
        self._names = _variables_of(code) & named if named is not None else None
        self.names_globals = self._names is None or self._names != named
        self._made: tuple[dict[str, Any] | None, Test] = None, bool  # as one: several threads may run the line

    def holds(self, frame: FrameType) -> bool:
        """Whether it is so here. Raises what the expression does."""
        return bool(self.test_in(frame)(frame.f_locals))

    def test_in(self, frame: FrameType) -> Test:
        """The same, for all frames of this code that have these globals."""
        names, test = self._made
        if names is not frame.f_globals:
            test = self._test_of(frame)
            self._made = frame.f_globals, test
        return test

    def _test_of(self, frame: FrameType) -> Test:
        names = frame.f_globals
        what = self._text if self._expression is None else self._expression

        def evaluate(variables: Mapping[str, Any]) -> object:
            return eval(what, names, variables)

        has_variables = is_function(frame.f_code)
        if self._names is None or not (has_variables or frame.f_locals is names):
            return evaluate  # it does not compile, which is to be told where it stands; or the body of a class
        made: dict[str, Any] = {"_evaluate": evaluate}
        exec(_source(self._text, sorted(self._names) if has_variables else ()), names, made)
        return made["_test"]


def _source(text: str, names: Iterable[str]) -> str:
    """A variable that is not assigned yet is left to `eval`, whose error says so."""
    reads = "; ".join(f"{name} = _variables[{name!r}]" for name in names)
    read = f"    try: {reads}\n    except KeyError: return _evaluate(_variables)\n" if reads else ""
    return f"def _test(_variables, _evaluate=_evaluate):\n{read}    return ({text}\n    )\n"


def _variables_of(code: CodeType) -> set[str]:
    return {*code.co_varnames, *code.co_cellvars, *code.co_freevars}


def _names_in(code: CodeType) -> set[str]:
    """What it names, also in what is nested in it: `any(x > limit for x in xs)`."""
    nested = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names_in, nested))


def _compiled(text: str) -> CodeType | None:
    """None where it is no expression."""
    try:
        return compile(text, "<condition>", "eval")
    except SyntaxError:
        return None
