"""The terms of a selector, as they are written: `dp=0,tp=1:` is two. The grammar is in `selector`.

Every mistake is a `SelectorError`, one line, with the column where it stands.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

STATES = ("alive", "dead", "failed", "busy", "stuck", "debug", "first")
"""What may follow an `@`. All but `alive` and `first` add up: `@failed,@busy` is both."""

OTHER_AXES = ("rank", "host", "local_rank")
"""The axes that every mesh has besides its own."""

_LONGEST_RANGE = 1 << 20

_NAME = re.compile(r"[^\W\d]\w*")
_INT = re.compile(r"-?\d+")
_SPAN = re.compile(r"(?P<start>-?\d+)?:(?P<stop>-?\d+)?(?::(?P<step>-?\d+)?)?")
_RANGE = re.compile(r"(\d+)-(\d+)(?::(\d+))?")
_HOST = re.compile(r"(?!\d+(?![\w.-]))\w[\w.-]*")


class SelectorError(ValueError):
    """A selector that cannot be read, or that fits no rank of this mesh."""


class BareWord(SelectorError):
    """A word without an index, `dp`: who knows the mesh can say whether it is an axis."""

    def __init__(self, word: str, column: int, advice: str) -> None:
        super().__init__(f"'{word}' has no index at column {column}{advice}")
        self.word = word
        self.column = column


@dataclass(frozen=True, slots=True)
class Picks:
    """Indices one by one: `2`, `-1`, `(0,2)`; names for `host=`."""

    values: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A Python slice: `1:`, `::2`; or a range, `0-3` or `0-6:2`, of which each end must be there."""

    start: int | None
    stop: int | None
    step: int | None
    is_range: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """All but these: `!0`, `!(0,1)`."""

    inner: Picks | Span


Index = Picks | Span | Not


@dataclass(frozen=True, slots=True)
class Term:
    """`dp=1:3`, or a bare index, whose `axis` is empty. Columns count from 1."""

    axis: str
    index: Index
    text: str
    column: int
    index_column: int


@dataclass(frozen=True, slots=True)
class State:
    """`@failed`."""

    name: str
    column: int


def read_terms(text: str) -> tuple[Term | State, ...]:
    """The terms of a selector, from left to right. Raises `SelectorError` with the column of what it cannot read.

    >>> [term.text for term in read_terms("dp=-1 tp=(0, 2)") if isinstance(term, Term)]
    ['dp=-1', 'tp=(0, 2)']
    """
    return _Reader(_without_quotes(text)).terms()


def near(word: str, known: Iterable[str], mark: str = "") -> str:
    """`": did you mean 'dp'?"` where a known word is close, else nothing; `mark` is written before it.

    >>> near("faild", ["failed", "busy"], mark="@")
    ": did you mean '@failed'?"
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f": did you mean '{mark}{close[0]}'?" if close else ""


def _without_quotes(text: str) -> str:
    """Quotes become spaces, so that columns stay those of the line."""
    for quote in "\"'":
        if text.count(quote) % 2:
            raise SelectorError(f"the quote at column {text.rindex(quote) + 1} is not closed")
    return text.replace('"', " ").replace("'", " ")


class _Reader:
    """Reads one selector from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def terms(self) -> tuple[Term | State, ...]:
        terms: list[Term | State] = []
        self.skip_space()
        while self.at < len(self.text):
            term = self.term()
            if term is not None:
                self.refuse_twice(term, terms)
                terms.append(term)
            self.separator()
        return tuple(terms)

    def term(self) -> Term | State | None:
        start = self.at
        if self.take("@"):
            return self.state(start)
        name = self.match(_NAME)
        if name is None:
            return self.placed("", start)
        self.skip_space()
        if self.take("="):
            self.skip_space()
            return self.placed(name[0], start)
        if name[0] == "all":
            return None
        self.bare_word(name[0], start)

    def state(self, start: int) -> State:
        name = self.match(_NAME)
        if name is None or name[0] not in STATES:
            word = name[0] if name else ""
            known = ", ".join(f"@{state}" for state in STATES)
            self.fail(f"no state '@{word}' (there are {known})", start, near(word, STATES, mark="@"))
        return State(name[0], start + 1)

    def placed(self, axis: str, start: int) -> Term:
        index_start = self.at
        index = self.index(axis)
        return Term(axis, index, self.text[start : self.at].strip(), start + 1, index_start + 1)

    def index(self, axis: str) -> Index:
        return Not(self.positive(axis)) if self.take("!") else self.positive(axis)

    def positive(self, axis: str) -> Picks | Span:
        if self.take("("):
            return self.tuple(axis)
        if self.text.startswith("[", self.at):
            self.fail("square brackets", self.at, ": write (0,2) for [0,2], and 0:3 for 0 to 2")
        if axis != "host" and (found := self.inclusive()):
            return Span(found.start, found.stop, found.step, is_range=True)
        if span := self.match(_SPAN):
            start, stop, step = (int(part) if part else None for part in span.groups())
            if step == 0:
                self.fail("a slice cannot have step 0", span.start())
            return Span(start, stop, step)
        return Picks((self.value(axis),))

    def tuple(self, axis: str) -> Picks:
        values: list[int | str] = []
        while not values or not self.take(")"):
            self.skip_space()
            if axis != "host" and (found := self.inclusive()):
                values += found
            else:
                values.append(self.value(axis))
            self.skip_space()
            if not self.take(",") and not self.text.startswith(")", self.at):
                self.fail("expected a comma or ')'", self.at)
            self.skip_space()
        return Picks(tuple(values))

    def inclusive(self) -> range | None:
        """`0-3`, or of these every second one `0-62:2`, if it stands here."""
        start = self.at
        found = self.match(_RANGE)
        if found is None:
            return None
        first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
        if not (first < last <= first + _LONGEST_RANGE and step):
            self.fail(f"'{found[0]}' is no range", start, ": write the smaller number first, such as 0-3 or 0-62:2")
        return range(first, last + 1, step)

    def value(self, axis: str) -> int | str:
        if axis == "host" and (word := self.match(_HOST)):
            return word[0]
        if number := self.match(_INT):
            return int(number[0])
        wanted = "a host name or its number" if axis == "host" else "an index"
        self.fail(f"expected {wanted}", self.at, ", such as 0, -1, 1:3, (0,2) or !0")

    def separator(self) -> None:
        start = self.at
        self.skip_space()
        comma = self.at
        if self.take(","):
            self.skip_space()
            if self.at == len(self.text) or self.text[self.at] == ",":
                self.fail("a term is missing after the comma", comma)
        elif self.at == start and self.at < len(self.text):
            self.fail("expected a comma or a space", self.at)

    def bare_word(self, word: str, start: int) -> NoReturn:
        if word in STATES:
            self.fail(f"'{word}' is a state", start, f": write @{word}")
        raise BareWord(word, start + 1, f": write {word}=0, or 'all' for every rank")

    def refuse_twice(self, term: Term | State, terms: Sequence[Term | State]) -> None:
        for other in terms:
            if isinstance(term, Term) and isinstance(other, Term) and term.axis and term.axis == other.axis:
                advice = f": write it once, such as {term.axis}=(0,1)"
                self.fail(f"axis '{term.axis}' is given twice", term.column - 1, advice)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def take(self, char: str) -> bool:
        is_there = self.text.startswith(char, self.at)
        self.at += is_there
        return is_there

    def skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def fail(self, what: str, at: int, advice: str = "") -> NoReturn:
        raise SelectorError(f"{what} at column {at + 1}{advice}")
