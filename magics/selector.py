"""The selector: which ranks of a mesh a line means, such as `dp=0,tp=1:` or `@failed`.

    selector := term ("," term)*            a space between terms does the same; what is not named stays whole
    term     := axis "=" index | index      a bare index is a global rank
              | "@" state | "all"
    axis     := NAME | "rank" | "host" | "local_rank"
    index    := INT | slice | range | "(" one ("," one)* ")" | "!" index       !0 = all but 0
    slice    := [INT] ":" [INT] [":" [INT]]                            half-open, as in Python
    range    := INT "-" INT                                            both are meant: as results name their ranks
    one      := INT | range

Different axes narrow each other; bare indices add up (`0,3` is two ranks), and so do states. Slices stop at
the end of an axis as in Python, single indices and ranges do not. The grammar follows the named slices of Monarch.

Pure: text in, ranks out. Every mistake is a `SelectorError`, one line, with the column where it stands.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

STATES = ("alive", "dead", "failed", "busy", "stuck", "debug", "first")
"""What may follow an `@`. All but `alive` and `first` add up: `@failed,@busy` is both."""

OTHER_AXES = ("rank", "host", "local_rank")
"""The axes that every mesh has besides its own."""

_LONGEST_RANGE = 1 << 20

LONGEST_LABEL = 60
"""A selection that takes more characters to spell is told by its number of ranks."""

_NAME = re.compile(r"[^\W\d]\w*")
_INT = re.compile(r"-?\d+")
_SPAN = re.compile(r"(?P<start>-?\d+)?:(?P<stop>-?\d+)?(?::(?P<step>-?\d+)?)?")
_RANGE = re.compile(r"(\d+)-(\d+)")
_HOST = re.compile(r"(?!\d+(?![\w.-]))\w[\w.-]*")


class SelectorError(ValueError):
    """A selector that cannot be read, or that fits no rank of this mesh."""


@dataclass(frozen=True, slots=True)
class Picks:
    """Indices one by one: `2`, `-1`, `(0,2)`; names for `host=`."""

    values: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A Python slice: `1:`, `::2`; or a range, `0-3`, of which each end must be there."""

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


@dataclass(frozen=True, slots=True)
class Selection:
    """The ranks that a selector meant on one mesh."""

    ranks: tuple[int, ...]
    """Global row-major ranks, ascending."""
    box: dict[str, tuple[int, ...]] | None
    """The indices kept along each axis where the ranks form a rectangle, else None."""
    is_whole: bool
    label: str
    """Short canonical text: "dp=0,tp=0:2", "all 4 ranks"."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector as it was read, not yet tied to a mesh."""

    text: str
    terms: tuple[Term | State, ...]

    def resolve(
        self,
        axes: Mapping[str, int],
        states: Mapping[int, str] = {},
        hosts: Sequence[str] = (),
        local_ranks: Sequence[int] = (),
    ) -> Selection:
        """The ranks that this selector means on a mesh with these `axes`.

        `states` maps a global rank to its state, `hosts` and `local_ranks` have one entry a rank. Dead ranks
        are skipped unless the selector names them: by number, by an index on every axis, or by `@dead`.
        Raises `SelectorError` where an axis, an index or a host is not there, and where no rank is left.

        >>> parse_selector("dp=0, tp=:2").resolve({"dp": 2, "tp": 4}).ranks
        (0, 1)
        >>> parse_selector("@failed").resolve({"dp": 2}, states={1: "failed"}).label
        'dp=1'
        """
        grid = _Grid(axes, states, hosts, local_ranks)
        kept = grid.living(self, grid.with_states(self, grid.placed(self)))
        if "first" in self.states:
            kept = {min(kept)}
        return select(sorted(kept), axes)

    @property
    def places(self) -> list[Term]:
        """The terms that name places: all but the states."""
        return [term for term in self.terms if isinstance(term, Term)]

    @property
    def states(self) -> set[str]:
        """The states asked for, without the `@`."""
        return {term.name for term in self.terms if isinstance(term, State)}


def parse_selector(text: str) -> Selector:
    """Read a selector. Axes are checked later, by `Selector.resolve`.

    Raises `SelectorError` with the column of what it cannot read.

    >>> [term.text for term in parse_selector("dp=-1 tp=(0, 2)").places]
    ['dp=-1', 'tp=(0, 2)']
    """
    return Selector(text, _Reader(_without_quotes(text)).terms())


def select(ranks: Iterable[int], axes: Mapping[str, int]) -> Selection:
    """The selection of exactly these ascending ranks, with its rectangle and its label.

    >>> select([0, 1, 4, 5], {"dp": 2, "tp": 4}).label
    'tp=0:2'
    """
    ranks = tuple(ranks)
    total = math.prod(axes.values())
    box = _box(ranks, axes)
    return Selection(ranks, box, len(ranks) == total, _label(ranks, axes, box))


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
        if axis != "host" and (first_last := self.inclusive()):
            return Span(first_last[0], first_last[1] + 1, None, is_range=True)
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
            if axis != "host" and (first_last := self.inclusive()):
                values += range(first_last[0], first_last[1] + 1)
            else:
                values.append(self.value(axis))
            self.skip_space()
            if not self.take(",") and not self.text.startswith(")", self.at):
                self.fail("expected a comma or ')'", self.at)
            self.skip_space()
        return Picks(tuple(values))

    def inclusive(self) -> tuple[int, int] | None:
        """`0-3`, if it stands here."""
        start = self.at
        found = self.match(_RANGE)
        if found is None:
            return None
        first, last = int(found[1]), int(found[2])
        if not first < last <= first + _LONGEST_RANGE:
            self.fail(f"'{found[0]}' is no range", start, ": write the smaller number first, such as 0-3")
        return first, last

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
        self.fail(f"'{word}' has no index", start, f": write {word}=0, or 'all' for every rank")

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


@dataclass(frozen=True, slots=True)
class _Grid:
    """The mesh that a selector is resolved on."""

    axes: Mapping[str, int]
    states: Mapping[int, str]
    hosts: Sequence[str]
    local_ranks: Sequence[int]

    def placed(self, selector: Selector) -> set[int]:
        """The ranks at the places that the selector names, whatever their state."""
        kept = self.everyone()
        bare: set[int] | None = None
        for term in selector.places:
            ranks = self.of_term(term)
            if term.axis or isinstance(term.index, Not):
                kept &= ranks
            else:
                bare = ranks if bare is None else bare | ranks
        kept = kept if bare is None else kept & bare
        if not kept:
            advice = _advice(selector.places)
            raise SelectorError(f"no rank of this mesh ({self.sizes()}) is in every term of '{selector.text}'{advice}")
        return kept

    def with_states(self, selector: Selector, kept: set[int]) -> set[int]:
        asked = selector.states - {"alive", "first"}
        if not asked:
            return kept
        # A stuck rank is a busy one that no longer moves, one in the debugger waits there: @busy has them too.
        wanted = asked | {"stuck", "debug"} if "busy" in asked else asked
        found = {rank for rank in kept if self.states.get(rank) in wanted}
        if not found:
            where = f" in '{selector.text}'" if selector.places else ""
            raise SelectorError(f"no rank is {' or '.join(sorted(asked))} now{where} (mesh {self.sizes()})")
        return found

    def living(self, selector: Selector, kept: set[int]) -> set[int]:
        """`kept` without the dead ranks that the selector does not ask for."""
        asked = self.everyone() if "dead" in selector.states else self.named(selector.places)
        skipped = self.dead() if "alive" in selector.states else self.dead() - asked
        if not kept - skipped:
            which = f"every rank of '{selector.text}'" if selector.terms else "every rank"
            raise SelectorError(
                f"{which} is dead ({select(sorted(kept), self.axes).label}): "
                "choose others, or bring them back with `%mesh restart @dead`"
            )
        return kept - skipped

    def named(self, terms: Sequence[Term]) -> set[int]:
        """The ranks that a dead state does not hide: those named one by one."""
        picks = [term for term in terms if isinstance(term.index, Picks)]
        named: set[int] = set()
        for term in picks:
            if term.axis in ("", "rank"):
                named |= self.of_term(term)
        given = {term.axis for term in picks} & self.axes.keys()
        if given and all(axis in given or size == 1 for axis, size in self.axes.items()):
            return self.everyone()
        return named

    def of_term(self, term: Term) -> set[int]:
        places = self.places(term)
        wanted = self.wanted(term, places)
        return {rank for rank, place in enumerate(places) if place in wanted}

    def places(self, term: Term) -> Sequence[int]:
        """The index of every rank along the axis of a term."""
        total = len(self.everyone())
        if term.axis in self.axes:
            stride = _strides(self.axes)[term.axis]
            return [rank // stride % self.axes[term.axis] for rank in range(total)]
        if term.axis in ("", "rank"):
            return range(total)
        if term.axis == "host":
            known = self.host_names(term)
            return [known.index(host) for host in self.hosts]
        if term.axis == "local_rank":
            return self.local_places()
        advice = near(term.axis, [*self.axes, *OTHER_AXES]) or f": there are also {', '.join(OTHER_AXES)}"
        raise SelectorError(f"no axis '{term.axis}' in this mesh ({self.sizes()}) at column {term.column}{advice}")

    def host_names(self, term: Term) -> list[str]:
        if not self.hosts:
            raise SelectorError(f"no host names are known for this mesh ({self.sizes()}) at column {term.column}")
        return list(dict.fromkeys(self.hosts))

    def local_places(self) -> Sequence[int]:
        if self.local_ranks or not self.hosts:
            return self.local_ranks or range(len(self.everyone()))
        seen: Counter[str] = Counter()
        places: list[int] = []
        for host in self.hosts:
            places.append(seen[host])
            seen[host] += 1
        return places

    def wanted(self, term: Term, places: Sequence[int]) -> Collection[int]:
        """The indices that a term means, each from 0 up to the size of its axis."""
        size = self.axes.get(term.axis, max(places) + 1)
        inner = term.index.inner if isinstance(term.index, Not) else term.index
        if isinstance(inner, Span):
            if inner.is_range and inner.stop is not None and inner.stop > size:
                self.fail(term, f"{term.axis or 'rank'}={inner.stop - 1} is out of range", size)
            indices = set(range(*slice(inner.start, inner.stop, inner.step).indices(size)))
        else:
            indices = {self.one(term, value, size) for value in inner.values}
        if isinstance(term.index, Not):
            indices = set(range(size)) - indices
        if not indices:
            self.fail(term, f"'{term.text}' selects nothing", size)
        return indices

    def one(self, term: Term, value: int | str, size: int) -> int:
        if isinstance(value, str):
            return self.host_place(term, value)
        if not -size <= value < size:
            self.fail(term, f"{term.axis or 'rank'}={value} is out of range", size)
        return value % size

    def host_place(self, term: Term, name: str) -> int:
        known = self.host_names(term)
        if name not in known:
            there = ", ".join(known)
            raise SelectorError(
                f"no host '{name}' (there are {there}) at column {term.index_column}{near(name, known)}"
            )
        return known.index(name)

    def fail(self, term: Term, what: str, size: int) -> NoReturn:
        there = f"{term.axis or 'rank'} is 0 to {size - 1}" if size > 1 else f"{term.axis or 'rank'} is only 0"
        raise SelectorError(f"{what} at column {term.index_column}: {there} in this mesh ({self.sizes()})")

    def everyone(self) -> set[int]:
        return set(range(math.prod(self.axes.values())))

    def dead(self) -> set[int]:
        return {rank for rank, state in self.states.items() if state == "dead"}

    def sizes(self) -> str:
        return ", ".join(f"{axis}={size}" for axis, size in self.axes.items())


def _advice(terms: Sequence[Term]) -> str:
    """For who has written `dp=0,2` for `dp=(0,2)`: a bare index is a rank of the whole mesh."""
    for former, term in itertools.pairwise(terms):
        if former.axis and not term.axis and isinstance(former.index, Picks) and isinstance(term.index, Picks):
            return f": several indices of one axis are written {former.axis}=({former.index.values[0]},{term.text})"
    return ""


def _strides(axes: Mapping[str, int]) -> dict[str, int]:
    sizes = list(axes.values())
    return {axis: math.prod(sizes[place + 1 :]) for place, axis in enumerate(axes)}


def _box(ranks: Sequence[int], axes: Mapping[str, int]) -> dict[str, tuple[int, ...]] | None:
    strides = _strides(axes)
    box = {axis: tuple(sorted({rank // strides[axis] % size for rank in ranks})) for axis, size in axes.items()}
    return box if math.prod(len(indices) for indices in box.values()) == len(ranks) else None


def _label(ranks: tuple[int, ...], axes: Mapping[str, int], box: dict[str, tuple[int, ...]] | None) -> str:
    total = math.prod(axes.values())
    if len(ranks) == total:
        return f"all {total} ranks" if total > 1 else "the only rank"
    text = f"rank={_indices_text(ranks, total)}" if box is None else _box_text(len(ranks), axes, box)
    return text if len(text) <= LONGEST_LABEL else f"{len(ranks)} of {total} ranks"


def _box_text(num_ranks: int, axes: Mapping[str, int], box: dict[str, tuple[int, ...]]) -> str:
    kept = [axis for axis in axes if num_ranks == 1 or len(box[axis]) < axes[axis]]
    return ",".join(f"{axis}={_indices_text(box[axis], axes[axis])}" for axis in kept)


def _indices_text(indices: tuple[int, ...], size: int) -> str:
    """The shortest spelling: `2`, `0:3`, `0:5:2`, `!1`, `(0,3)`."""
    if len(indices) == 1:
        return str(indices[0])
    step = indices[1] - indices[0]
    is_even = indices == tuple(range(indices[0], indices[-1] + 1, step))
    if is_even and step == 1:
        return f"{indices[0]}:{indices[-1] + 1}"
    if is_even and len(indices) > 2:
        return f"{indices[0]}:{indices[-1] + 1}:{step}"
    if len(indices) == size - 1:
        return f"!{next(index for index in range(size) if index not in indices)}"
    return f"({','.join(map(str, indices))})"
