"""The commands of `%mesh` that look at ranks and change nothing: dataclasses whose fields carry their options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from .options import (
    GrammarError,
    Option,
    Values,
    at_least_0,
    count,
    count_or_all,
    name,
    num_bytes,
    pace,
    regex,
    seconds,
)

MeshOption = Annotated[str | None, Option("-m --mesh", "a mesh other than the current", "MESH", name, "mesh")]
Json = Annotated[bool, Option("--json", "as JSON")]


@dataclass(frozen=True, slots=True)
class Stacks:
    """Show where ranks are in their code, merged; also of ranks that hang."""

    selector: str = ""
    mesh: MeshOption = None
    native: Annotated[bool, Option("--native", "frames of C too, where py-spy is installed")] = False
    locals_of: Annotated[
        int, Option("--locals", "variables of a frame of yours: 1 the innermost, 2 its caller", "N", count)
    ] = 0
    json: Json = False


@dataclass(frozen=True, slots=True)
class Profile:
    """Show on which lines ranks spend their time, side by side: look at them for some seconds, or until Ctrl-C."""

    selector: str = ""
    mesh: MeshOption = None
    duration: Annotated[float, Option("--for", "look for so long (else 3 s)", "SECONDS", seconds)] = 3.0
    json: Json = False


@dataclass(frozen=True, slots=True)
class Dash:
    """Show the mesh live: what every rank does, metrics, and buttons to interrupt, un-stick and restart."""

    mesh: MeshOption = None
    hz: Annotated[float | None, Option("--hz", "look N times a second (4 unless told otherwise)", "N", pace)] = None
    cols: Annotated[int | None, Option("--cols", "draw N ranks in a row, whatever the axes", "N", count)] = None


@dataclass(frozen=True, slots=True)
class Debug:
    """Stop ranks in the debugger, wherever they are, and talk with them; without a selector, with all that are stopped.

    A rank that C code holds is looked at while it runs; of one that answers nothing the stack is shown.
    """

    selector: str = ""
    mesh: MeshOption = None
    pm: Annotated[bool, Option("--pm", "the frames that the last cell's error left; default: all that failed")] = False
    dap: Annotated[bool, Option("--dap", "let an editor attach: where each rank listens, for VS Code")] = False
    console: Annotated[bool, Option("--console", "in a console beside the cells: source, frames, variables")] = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """List the last collectives of every rank, and say where ranks part."""

    selector: str = ""
    last: Annotated[int, Option("-n --last", "the last N of each group", "N", count)] = 8
    mesh: MeshOption = None
    json: Json = False


@dataclass(frozen=True, slots=True)
class Logs:
    """Show what ranks have printed: all of it is kept, also of dead ranks. With -f go on with what they print now."""

    selector: str = ""
    last: Annotated[int | None, Option("-n --last", "the last N lines of each rank, or all", "N", count_or_all)] = 200
    follow: Annotated[bool, Option("-f --follow", "follow until Ctrl-C or, while cells run, until they end")] = False
    err: Annotated[bool, Option("--err", "stderr only")] = False
    grep: Annotated[re.Pattern[str] | None, Option("--grep", "lines in which this is found", "RE", regex)] = None
    cell: Annotated[str | None, Option("--cell", "of this cell only, by number or label", "N")] = None
    mesh: MeshOption = None


@dataclass(frozen=True, slots=True)
class Who:
    """List the names of the ranks with type and size, those on which ranks disagree first; busy ranks answer too."""

    selector: str = ""
    mesh: MeshOption = None
    json: Json = False


@dataclass(frozen=True, slots=True)
class Watch:
    """Draw a number of every rank over time while cells run: loss, losses[-1], 'sum(losses[-10:]) / 10', w.norm().

    It is read while the rank works, so functions of yours are not called for it.
    """

    expr: str
    selector: str = ""
    every: Annotated[float, Option("--every", "look every S seconds", "S", seconds)] = 0.5
    stop: Annotated[bool, Option("--stop", "end it; without EXPR all that are watched")] = False
    mesh: MeshOption = None


_OPERATOR = re.compile(r"[-+*/%<>=!]+")
_QUOTED = re.compile(r"(?P<quote>['\"])(?P<text>.*)(?P=quote)")


def watch_words(words: list[str], values: Values) -> Values:
    """What to watch, then perhaps a selector. What stands in quotes, or about an operator, is one expression.

    Example:
        >>> watch_words(["a", "+", "b", "dp=1"], {})
        {'expr': 'a + b', 'selector': 'dp=1'}
    """
    if not words and "stop" not in values:
        raise GrammarError("write the number to watch, such as loss, losses[-1] or w.norm()")
    count = 1
    while any(map(_OPERATOR.fullmatch, words[count - 1 : count + 1])) and count < len(words):
        count += 1
    expr = " ".join(words[:count])
    quoted = _QUOTED.fullmatch(expr)
    if quoted and quoted["quote"] not in quoted["text"]:
        expr = quoted["text"]
    return {"expr": expr, "selector": " ".join(words[count:])}


@dataclass(frozen=True, slots=True)
class Diff:
    """Compare the value of an expression over ranks: of a model or an optimizer, parameter by parameter."""

    expr: str
    sel: Annotated[str, Option("--sel", "on these ranks only", "SELECTOR", offers="selector")] = ""
    rtol: Annotated[
        float, Option("--rtol", "numbers are equal if apart by no more than R of the larger", "R", at_least_0)
    ] = 0.0
    atol: Annotated[float, Option("--atol", "or by no more than A", "A", at_least_0)] = 0.0
    max_bytes: Annotated[int, Option("--max-bytes", "measure no more than N bytes of what differs", "N", num_bytes)] = (
        1 << 30
    )
    mesh: MeshOption = None
    json: Json = False
