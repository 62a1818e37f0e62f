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

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ..runtime.engines.seating import local_ranks
from ..runtime.ranges import named
from .terms import OTHER_AXES, Not, Picks, SelectorError, Span, State, Term, near, read_terms


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector as it was read, not yet tied to a mesh."""

    text: str
    terms: tuple[Term | State, ...]

    def resolve(
        self, axes: Mapping[str, int], states: Mapping[int, str] = {}, hosts: Sequence[str] = ()
    ) -> tuple[int, ...]:
        """The ranks that this selector means on a mesh with these `axes`, in ascending order.

        `states` maps a global rank to its state, `hosts` has one entry a rank. Dead ranks are skipped unless the
        selector names them: by number, by an index on every axis, or by `@dead`.
        Raises `SelectorError` where an axis, an index or a host is not there, and where no rank is left.

        >>> parse_selector("dp=0, tp=:2").resolve({"dp": 2, "tp": 4})
        (0, 1)
        >>> parse_selector("@failed").resolve({"dp": 2}, states={1: "failed"})
        (1,)
        """
        grid = _Grid(axes, states, hosts)
        kept = grid.living(self, grid.with_states(self, grid.placed(self)))
        return (min(kept),) if "first" in self.states else tuple(sorted(kept))

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
    return Selector(text, read_terms(text))


def no_axis(name: str, column: int, axes: Mapping[str, int]) -> SelectorError:
    """What to raise for an axis that a mesh with these `axes` does not have.

    >>> str(no_axis("tq", 1, {"dp": 2, "tp": 4}))
    "no axis 'tq' in this mesh (dp=2, tp=4) at column 1: did you mean 'tp'?"
    """
    advice = near(name, [*axes, *OTHER_AXES]) or f": there are also {', '.join(OTHER_AXES)}"
    return SelectorError(f"no axis '{name}' in this mesh ({_sizes(axes)}) at column {column}{advice}")


@dataclass(frozen=True, slots=True)
class _Grid:
    """The mesh that a selector is resolved on."""

    axes: Mapping[str, int]
    states: Mapping[int, str]
    hosts: Sequence[str]

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
            advice = ": @failed are those on which the last cell failed" if "failed" in asked else ""
            raise SelectorError(f"no rank is {' or '.join(sorted(asked))} now{where} (mesh {self.sizes()}){advice}")
        return found

    def living(self, selector: Selector, kept: set[int]) -> set[int]:
        """`kept` without the dead ranks that the selector does not ask for."""
        asked = self.everyone() if "dead" in selector.states else self.named(selector.places)
        skipped = self.dead() if "alive" in selector.states else self.dead() - asked
        if not kept - skipped:
            which = f"every rank of '{selector.text}'" if selector.terms else "every rank"
            raise SelectorError(
                f"{which} is dead ({named(kept)}): choose others, or bring them back with `%mesh restart @dead`"
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
            stride = math.prod(list(self.axes.values())[list(self.axes).index(term.axis) + 1 :])
            return [rank // stride % self.axes[term.axis] for rank in range(total)]
        if term.axis in ("", "rank"):
            return range(total)
        if term.axis == "host":
            known = self.host_names(term)
            return [known.index(host) for host in self.hosts]
        if term.axis == "local_rank":
            return local_ranks(self.hosts) if self.hosts else range(total)
        raise no_axis(term.axis, term.column, self.axes)

    def host_names(self, term: Term) -> list[str]:
        if not self.hosts:
            raise SelectorError(f"no host names are known for this mesh ({self.sizes()}) at column {term.column}")
        return list(dict.fromkeys(self.hosts))

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
        return _sizes(self.axes)


def _sizes(axes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in axes.items())


def _advice(terms: Sequence[Term]) -> str:
    """For who has written `dp=0,2` for `dp=(0,2)`: a bare index is a rank of the whole mesh."""
    for former, term in itertools.pairwise(terms):
        if former.axis and not term.axis and isinstance(former.index, Picks) and isinstance(term.index, Picks):
            return f": several indices of one axis are written {former.axis}=({former.index.values[0]},{term.text})"
    return ""
