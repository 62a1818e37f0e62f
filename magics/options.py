"""Options and words of a line, read into a dataclass: the machine under `grammar`.

A field that is an option says so in its type:

    timeout: Annotated[float | None, Option("-t --timeout", "interrupt after S seconds", "S", seconds)] = None

A `Literal` field takes its words as choices, a `bool` is a switch, a `tuple` may be given more than once.
Reading, usage text and completion all come from there, so they cannot differ.

Not argparse, because it takes `-1,tp=0` for an option, exits and prints on its own, and words its errors anew
with each Python.
"""

from __future__ import annotations

import keyword
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from ..kernel.sources.journal import Choice
from .terms import OTHER_AXES, near

Offer = Literal["", "selector", "mesh", "remote"]
"""What completion offers for a word: nothing, axes and states, names of meshes, names on the ranks."""

Values = dict[str, Any]

HELP_FLAGS = ("-h", "--help")

_TOKEN = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+|["']""")
_QUOTED = re.compile(r""""([^"]*)"|'([^']*)'""")
_OPTION = re.compile(r"--?[^\W\d]")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_BYTES = re.compile(r"([0-9]+)([kmgt]?)i?b?", re.IGNORECASE)


class GrammarError(ValueError):
    """A line that cannot be read: one line that names what would have been right."""


class HelpRequested(Exception):
    """`-h` was on the line; `text` is the usage to show."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command; without a metavar it is a switch."""

    spellings: str
    help: str
    metavar: str = ""
    read: Callable[[str], Any] = str
    """The value of a text; raises `GrammarError` for a text that has none."""
    offers: Offer = ""
    choices: tuple[str, ...] = ()
    default: object = None

    @property
    def flags(self) -> list[str]:
        return self.spellings.split()

    @property
    def is_many(self) -> bool:
        """True where the option may stand more than once and its values add up."""
        return isinstance(self.default, tuple)


@dataclass(frozen=True, slots=True)
class Command:
    """How one command is read, explained and completed."""

    prog: str
    args: type[Any]
    """Its dataclass; the first line of the docstring is the summary."""
    example: str
    words: str = ""
    """The positional part, as the usage shows it."""
    read_words: Callable[[list[str], Values], Values] | None = None
    """The fields that the words set, given the options' values."""
    offers: Offer = ""

    @property
    def name(self) -> str:
        return self.prog.split()[-1]

    @property
    def summary(self) -> str:
        return (self.args.__doc__ or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, Option]:
        return options_of(self.args)

    def read(self, tokens: Sequence[str], **known: Any) -> Any:
        """The command's dataclass from its words and options; `known` are fields that are read already."""
        if not set(HELP_FLAGS).isdisjoint(tokens):
            raise HelpRequested(self.help())
        try:
            values, words = _read_options(self.options, tokens)
            return self.args(**values, **(self.read_words or _no_words)(words, values), **known)
        except GrammarError as error:
            raise GrammarError(f"{self.prog}: {error}") from None

    def help(self) -> str:
        """The usage: words, options, an example."""
        rows = [(_option_words(each), _option_help(each)) for each in self.options.values()]
        rows.append((", ".join(HELP_FLAGS), "this text"))
        usage = " ".join(part for part in ("usage:", self.prog, self.words, "[options]") if part)
        return f"{usage}\n\n{self.summary}\n\noptions:\n{columns(rows)}\n\nexample:\n  {self.example}"


@cache
def options_of(args: type[Any]) -> dict[str, Option]:
    """The options of a command's dataclass, by field."""
    hints = get_type_hints(args, include_extras=True)
    return {
        each.name: _bound(hints[each.name], each.default)
        for each in fields(args)
        if any(isinstance(part, Option) for part in get_args(hints[each.name]))
    }


def _bound(hint: Any, default: object) -> Option:
    kind, made = get_args(hint)
    if get_origin(kind) is not Literal:
        return replace(made, default=default)
    choices = get_args(kind)
    return replace(made, default=default, choices=choices, metavar=f"{{{','.join(choices)}}}", read=_one_of(choices))


def split_line(line: str) -> tuple[str, list[str]]:
    """The selector in front, as it was typed, and the option tokens behind it without their quotes.

    >>> split_line("-1, tp=(0, 2) -o r --label 'two words'  # a comment")
    ('-1, tp=(0, 2)', ['-o', 'r', '--label', 'two words'])
    """
    tokens = list(tokens_of(line))
    front = next((place for place, token in enumerate(tokens) if is_option(token.raw)), len(tokens))
    selector = line[tokens[0].start : tokens[front - 1].end] if front else ""
    return selector, [token.text for token in tokens[front:]]


def is_option(token: str) -> bool:
    """True for `-x` and `--x`; `-1` and `-1,tp=0` are selectors."""
    return bool(_OPTION.match(token))


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a line with its place; `text` is without its quotes."""

    raw: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.raw)

    @property
    def text(self) -> str:
        return _QUOTED.sub(r"\1\2", self.raw)


def tokens_of(line: str) -> Iterator[Token]:
    """The words of a line up to a comment; what stands in quotes is one word."""
    for found in _TOKEN.finditer(line):
        if found[0].startswith("#"):
            return
        if found[0] in ('"', "'"):
            raise GrammarError(f"the quote at column {found.start() + 1} is not closed")
        yield Token(found[0], found.start())


def split_flag(token: str) -> tuple[str, str | None]:
    """The flag and the value that is written onto it.

    >>> split_flag("--device=cpu"), split_flag("-n4"), split_flag("-b")
    (('--device', 'cpu'), ('-n', '4'), ('-b', None))
    """
    if token.startswith("--"):
        flag, equals, value = token.partition("=")
        return flag, value if equals else None
    return token[:2], token[2:].removeprefix("=") or None


_WIDTH = 104
"""Characters of a line of text in a notebook on a small screen: a longer one is broken in the middle of a word."""

_LEFT = 30
"""Of the first column at most; what is longer has a line of its own."""


def columns(rows: Sequence[tuple[str, str]]) -> str:
    """Two columns of text, indented, the second one wrapped.

    Example:
        >>> print(columns([("--show HOW", "how the result is shown"), ("-b", "do not wait")]))
          --show HOW  how the result is shown
          -b          do not wait
    """
    width = min(max(len(left) for left, _ in rows), _LEFT)
    lines: list[str] = []
    for left, right in rows:
        first, *rest = textwrap.wrap(right, _WIDTH - width - 4, break_on_hyphens=False) or [""]
        lines += [f"  {left:<{width}}  {first}"] if len(left) <= width else [f"  {left}", f"  {'':<{width}}  {first}"]
        lines += [f"  {'':<{width}}  {each}" for each in rest]
    return "\n".join(lines)


def seconds(text: str) -> float:
    """A time over 0."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise GrammarError(f"'{text}' is not a number of seconds over 0, such as 30")
    return value


def duration(text: str) -> float:
    """A time over 0 in seconds, with a unit if it is long.

    >>> duration("90"), duration("30m"), duration("2h")
    (90.0, 1800.0, 7200.0)
    """
    found = _DURATION.fullmatch(text)
    if found is None or not float(found[1]):
        raise GrammarError(f"'{text}' is not a time over 0, such as 30m or 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def seconds_or_none(text: str) -> float:
    """A time, or 0."""
    return 0.0 if _number(text) == 0 else seconds(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def count(text: str) -> int:
    """A whole number of 1 or more."""
    if not re.fullmatch("[0-9]+", text) or int(text) == 0:
        raise GrammarError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def count_or_all(text: str) -> int | None:
    """A whole number of 1 or more; None for `all`."""
    return None if text == "all" else count(text)


def regex(text: str) -> re.Pattern[str]:
    """A regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise GrammarError(f"'{text}' is no regular expression: {error}") from None


def at_least_0(text: str) -> float:
    """A number of 0 or more."""
    value = _number(text)
    if not 0 <= value < math.inf:
        raise GrammarError(f"'{text}' is not a number of 0 or more, such as 1e-6")
    return value


def pace(text: str) -> float:
    """A number of times a second, of 0.1 to 20."""
    value = _number(text)
    if not 0.1 <= value <= 20:
        raise GrammarError(f"'{text}' is not a number of times a second, of 0.1 to 20")
    return value


def num_bytes(text: str) -> int:
    """`64M` and the like.

    >>> num_bytes("2k"), num_bytes("10")
    (2048, 10)
    """
    size = _BYTES.fullmatch(text)
    if size is None:
        raise GrammarError(f"'{text}' is not a number of bytes, such as 500k or 64M")
    return int(size[1]) * 1024 ** " kmgt".index(size[2].lower() or " ")


def name(text: str) -> str:
    """A Python name."""
    if keyword.iskeyword(text):
        raise GrammarError(f"'{text}' is not a name, but a word of Python: write another, such as {text}_")
    if not text.isidentifier():
        raise GrammarError(f"'{text}' is not a name: write letters, digits and _, such as m0")
    return text


def names(text: str) -> tuple[str, ...]:
    """Python names with commas between them."""
    return tuple(name(part) for part in text.split(",") if part)


def host_names(text: str) -> tuple[str, ...] | int:
    """A number of hosts, or their names with commas between them."""
    if text.isdigit():
        return count(text)
    found = tuple(part for part in text.split(",") if part)
    if not found or len(set(found)) < len(found):
        raise GrammarError(f"'{text}' is not a number of hosts nor their names, each once, such as node1,node2")
    return found


def cells(text: str) -> Choice:
    """`auto`, `all`, `none`, or cell numbers as IPython's `%history` takes them: `1-3,5`, both ends included."""
    if text in ("auto", "all", "none"):
        return text
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise GrammarError(f"'{text}' is not auto, all, none or cell numbers such as 1-3,5")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def modules(text: str) -> tuple[str, ...]:
    """Dotted names of modules with commas between them."""
    found = tuple(part for part in text.split(",") if part)
    for part in ".".join(found).split("."):
        name(part)
    return found


def pair(example: str) -> Callable[[str], tuple[tuple[str, str], ...]]:
    """`K=V`, such as a variable of the environment."""

    def read(text: str) -> tuple[tuple[str, str], ...]:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise GrammarError(f"'{text}' is not K=V, such as {example}")
        return ((key, value),)

    return read


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise GrammarError(f"'{text}' is not one of {', '.join(choices)}")
        return text

    return read


def _no_words(words: list[str], values: Values) -> Values:
    if words:
        raise GrammarError(f"'{words[0]}' is one word too many")
    return {}


def _read_options(options: Mapping[str, Option], tokens: Sequence[str]) -> tuple[Values, list[str]]:
    """The fields that the options set, and the words that are none."""
    by_flag = {flag: (field, each) for field, each in options.items() for flag in each.flags}
    values: Values = {}
    words: list[str] = []
    rest = iter(tokens)
    for token in rest:
        if not is_option(token):
            words.append(token)
            continue
        flag, glued = split_flag(token)
        if flag not in by_flag or f"-{token}" in by_flag:
            _refuse_option(token, list(by_flag))
        field, each = by_flag[flag]
        value = _read_value(each, flag, glued, rest)
        values[field] = values.get(field, ()) + value if each.is_many else value
    return values, words


def _read_value(each: Option, flag: str, glued: str | None, rest: Iterator[str]) -> Any:
    if not each.metavar:
        if glued is not None:
            raise GrammarError(f"{flag} takes no value, and '{glued}' stands behind it")
        return True
    text = next(rest, None) if glued is None else glued
    if text is None or (glued is None and is_option(text)):
        raise GrammarError(f"{flag} needs a value: {flag} {each.metavar}")
    try:
        return each.read(text)
    except GrammarError as error:
        raise GrammarError(f"{flag}: {error}") from None


def _refuse_option(token: str, known: Sequence[str]) -> NoReturn:
    flag = token.partition("=")[0]
    long = [each.removeprefix("--") for each in known if each.startswith("--")]
    advice = near(flag.lstrip("-"), long, mark="--") or f": there are {', '.join([*known, *HELP_FLAGS])}"
    raise GrammarError(f"no option {flag}{advice}")


def _option_words(each: Option) -> str:
    return f"{', '.join(each.flags)} {each.metavar}".strip()


def _option_help(each: Option) -> str:
    if isinstance(each.default, float):
        return f"{each.help} (default: {each.default:g})"
    return f"{each.help} (default: {each.default})" if each.choices else each.help


def words_of(words: Sequence[str]) -> list[str]:
    """Words, also those that commas part."""
    return [part for word in words for part in word.split(",") if part]


def axes_of(parts: Sequence[str]) -> dict[str, int]:
    """Axes with their sizes, of `AXIS=N` each."""
    axes: dict[str, int] = {}
    for part in parts:
        axis, _, size = part.partition("=")
        if axis in axes:
            raise GrammarError(f"axis '{axis}' is given twice, {axis}={axes[axis]} and {part}: write it once")
        axes[_axis(axis)] = _size(part, axis, size)
    if "rank" in axes and len(axes) > 1:
        raise GrammarError("'rank' is for a mesh with one axis: write another name here, such as dp")
    return axes


def _axis(axis: str) -> str:
    if axis in OTHER_AXES and axis != "rank":
        raise GrammarError(f"'{axis}' has a meaning in selectors: write another name here, such as dp")
    if keyword.iskeyword(axis):
        raise GrammarError(f"'{axis}' cannot name an axis, as it is a word of Python's: write another, such as dp=2")
    if not axis.isidentifier():
        raise GrammarError(f"'{axis}' cannot name an axis: write letters, digits and _, such as dp=2")
    return axis


def _size(part: str, axis: str, text: str) -> int:
    try:
        return count(text)
    except GrammarError:
        advice = f"write a whole number of 1 or more, such as {axis}=2"
        raise GrammarError(f"'{part}' gives no size: {advice}") from None
