"""What can be typed at the debugger's prompt beside pdb's own commands. Pure: a line in, a command out."""

from __future__ import annotations

from dataclasses import dataclass

HELP = """\
the debugger's own commands are pdb's (h lists them); for several ranks there are
  %rank 3            go to another stopped rank, or to its next stopped thread; also %rank dp=1,tp=0
  %who               who is stopped, and where
  %cast SEL COMMAND  a command to several: %cast all p x.shape, %cast dp=1 n
  %all COMMAND       the same to all that are stopped
  %table EXPR        an expression on all that are stopped, equal values folded
  ?prefix            what could stand there
  q                  leave the debugger: all ranks go on, and this cell stops no more
  %abort             interrupt all ranks: the cell ends"""

_QUITS = frozenset({"q", "quit", "exit"})


class WordError(Exception):
    """A command of ours that is not written right; says how it is."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line for the rank that has the focus."""

    text: str


@dataclass(frozen=True, slots=True)
class Cast:
    """A command for several ranks; `selector` is empty for all that are stopped."""

    selector: str
    command: str


@dataclass(frozen=True, slots=True)
class Focus:
    """Go to another rank."""

    selector: str


@dataclass(frozen=True, slots=True)
class Who:
    """List who is stopped."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave the debugger."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Interrupt all ranks."""


@dataclass(frozen=True, slots=True)
class Help:
    """Say what can be typed."""


Word = Line | Cast | Focus | Who | Quit | Abort | Help


def read(line: str) -> Word:
    """What a line means.

    Raises `WordError`.

    Example:
        >>> read("%cast dp=1 p x"), read("%table x.sum()"), read("n")
        (Cast(selector='dp=1', command='p x'), Cast(selector='', command='%table x.sum()'), Line(text='n'))
    """
    text = line.strip()
    if text in _QUITS:
        return Quit()
    if not text.startswith("%"):
        return Line(line)
    name, _, rest = text[1:].partition(" ")
    rest = rest.strip()
    if name in ("who", "abort", "help") and not rest:
        return {"who": Who(), "abort": Abort(), "help": Help()}[name]
    if name == "rank" and rest:
        return Focus(rest)
    if name == "all" and rest:
        return Cast("", rest)
    if name == "table" and rest:
        return Cast("", f"%table {rest}")
    if name == "cast" and " " in rest:
        selector, _, command = rest.partition(" ")
        return Cast("" if selector == "all" else selector, command.strip())
    raise WordError(f"{text!r} is no command of the debugger\n{HELP}")
