"""The words of `%mesh` and `%%on_mesh`: a line in, a frozen dataclass out.

Every command is one dataclass, whose fields carry their options, and one entry of `COMMANDS`; a new command
is a class and an entry. What an option is, `options` says.

Pure: nothing is looked up, started or printed here. A mistake is a `GrammarError`, one line that names what
would have been right; `-h` anywhere is a `HelpRequested` that carries the usage.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NoReturn

from .breaks import Break, read_break
from .inquiries import Dash, Debug, Diff, Ledger, Logs, MeshOption, Profile, Stacks, Watch, Who, watch_words
from .manage import (
    Actors,
    Attach,
    Auto,
    Autoreload,
    Config,
    Down,
    Export,
    Interrupt,
    Ls,
    Pull,
    Push,
    Reap,
    Resize,
    Restart,
    Status,
    Sync,
    Unstick,
    Up,
    Use,
    config_words,
    file_words,
    name_words,
    names_words,
    resize_words,
    selector_words,
    state_words,
    switch_words,
    up_words,
    use_words,
)
from .options import (
    HELP_FLAGS,
    Command,
    GrammarError,
    HelpRequested,
    Option,
    columns,
    count,
    is_option,
    name,
    names,
    seconds,
    seconds_or_none,
    split_flag,
    split_line,
    tokens_of,
)
from .terms import near

OnError = Literal["stop", "wait", "debug"]
Show = Literal["auto", "table", "tabs", "first", "diff", "none"]


@dataclass(frozen=True, slots=True)
class OnMeshArgs:
    """Run the cell on the ranks that the selector means; `%on_mesh SELECTOR -- EXPR` runs one expression.

    `hint` is one line to show once: a spelling from elsewhere was understood, and how it is spelled here.
    """

    selector: str = ""
    expr: str | None = None
    hint: str = ""
    mesh: MeshOption = None
    out: Annotated[str | None, Option("-o --out", "store the MeshResult as NAME", "NAME", name)] = None
    bg: Annotated[bool, Option("-b --bg", "do not wait: returns a MeshFuture, output stays here")] = False
    timeout: Annotated[
        float | None,
        Option("-t --timeout", "after S seconds name the ranks not done, interrupt", "S", seconds),
    ] = None
    on_error: Annotated[
        OnError,
        Option("--on-error", "when a rank fails: interrupt the others after a grace, wait for them, or debug it first"),
    ] = "stop"
    grace: Annotated[float, Option("--grace", "seconds the others get with --on-error stop", "S", seconds_or_none)] = (
        2.0
    )
    show: Annotated[Show, Option("--show", "how to show the result; auto folds what is equal")] = "auto"
    tail: Annotated[int | None, Option("--tail", "keep N lines of each rank in the notebook", "N", count)] = None
    full: Annotated[bool, Option("--full", "keep every line in the notebook")] = False
    local: Annotated[bool, Option("-l --local", "run it in the notebook's own process too")] = False
    get: Annotated[
        tuple[str, ...], Option("--get", "pull these names after the cell", "NAME[,NAME]", names, "remote")
    ] = ()
    no_stream: Annotated[bool, Option("--no-stream", "show all at the end, nothing on the way")] = False
    label: Annotated[str | None, Option("--label", "what dashboard and logs call this cell", "TEXT")] = None
    no_check: Annotated[bool, Option("--no-check", "no warnings of what may hang, or does nothing")] = False

    def __post_init__(self) -> None:
        if self.full and self.tail is not None:
            raise GrammarError("--tail and --full exclude each other: write one")
        if self.get and self.bg:
            raise GrammarError("--get and --bg exclude each other: `%mesh pull` when the future is done")
        if self.on_error == "debug" and self.bg:
            raise GrammarError(
                "--on-error debug and --bg exclude each other: `%mesh debug --pm` when the future is done"
            )
        if self.show == "diff" and self.bg:
            raise GrammarError("--show diff and --bg exclude each other: `%mesh diff EXPR` when the future is done")


@dataclass(frozen=True, slots=True)
class MeshCommand:
    """A line of `%mesh`, read: `name` is the sub-command's own name, whatever alias was typed.

    `hint` is one line to show once: a spelling from elsewhere was understood, and how it is spelled here.
    """

    name: str
    args: Any
    hint: str = ""

    @property
    def is_json(self) -> bool:
        """Whether what the command shows is wanted as JSON."""
        return "json" in COMMANDS[self.name].options and self.args.json


ON_MESH = Command("%%on_mesh", OnMeshArgs, "%%on_mesh dp=0,tp=1: -o r", "[SELECTOR]", selector_words, "selector")

COMMANDS = {
    command.name: command
    for command in (
        Command("%mesh up", Up, "m = %mesh up dp=2 tp=2 --device cpu", "[NAME] AXIS=N ...", up_words),
        Command("%mesh attach", Attach, "%mesh attach train", "[NAME]", name_words),
        Command("%mesh ls", Ls, "%mesh ls"),
        Command("%mesh actors", Actors, "%mesh actors"),
        Command("%mesh use", Use, "%mesh use m0[dp=0]", "NAME[SELECTOR]", use_words, "mesh"),
        Command("%mesh status", Status, "%mesh status @failed", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh down", Down, "%mesh down m0", "[NAME]", name_words, "mesh"),
        Command("%mesh restart", Restart, "%mesh restart @dead", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh resize", Resize, "%mesh resize dp=8", "AXIS=N ...", resize_words, "selector"),
        Command("%mesh sync", Sync, "%mesh sync"),
        Command("%mesh auto", Auto, "%mesh auto on", "[on|off]", switch_words),
        Command("%mesh autoreload", Autoreload, "%mesh autoreload on", "[on|off|auto]", state_words),
        Command("%mesh interrupt", Interrupt, "%mesh interrupt dp=1", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh unstick", Unstick, "%mesh unstick", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh dash", Dash, "%mesh dash"),
        Command("%mesh stacks", Stacks, "%mesh stacks dp=1", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh profile", Profile, "%mesh profile dp=1 --for 10", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh debug", Debug, "%mesh debug dp=1,tp=0", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh break", Break, "%mesh break 5:3 dp=1 if loss != loss", "[WHERE [SELECTOR] [if COND]]"),
        Command("%mesh ledger", Ledger, "%mesh ledger dp=0 -n 20", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh logs", Logs, "%mesh logs dp=1 -n 50 --grep loss", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh who", Who, "%mesh who dp=0", "[SELECTOR]", selector_words, "selector"),
        Command("%mesh diff", Diff, "%mesh diff model --rtol 1e-5", "EXPR", offers="remote"),
        Command("%mesh watch", Watch, "%mesh watch loss dp=0 --every 1", "EXPR [SELECTOR]", watch_words, "remote"),
        Command("%mesh push", Push, "%mesh push x y --sel dp=0", "NAME ...", names_words),
        Command("%mesh export", Export, "%mesh export train.py --cells 3-9", "FILE", file_words),
        Command("%mesh config", Config, "%mesh config show=first tail=50", "[SETTING=VALUE ...]", config_words),
        Command("%mesh reap", Reap, "%mesh reap"),
        Command("%mesh pull", Pull, "%mesh pull loss --as stack", "NAME ...", names_words, "remote"),
    )
}

ALIASES = {"start": "up", "init": "up", "stop": "down", "shutdown": "down"}
"""Spellings from elsewhere, understood with a hint."""

_MEANT = {
    **dict.fromkeys(("heal", "revive", "recover"), "restart @dead"),
    **dict.fromkeys(("cancel", "abort"), "interrupt"),
    **dict.fromkeys(("top", "monitor", "dashboard"), "dash"),
    **dict.fromkeys(("output", "stdout", "print"), "logs"),
    **dict.fromkeys(("vars", "whos"), "who"),
    "kill": "interrupt --kill",
    "reset": "restart",
    "list": "ls",
    "get": "pull",
    "put": "push",
    "trace": "stacks",
    **dict.fromkeys(("prof", "prun", "perf"), "profile"),
    "compare": "diff",
}
"""What others call our sub-commands: only named to the user, as some of these end things."""


def parse_mesh(line: str) -> MeshCommand:
    """Read what stands behind `%mesh`.

    Raises `GrammarError` for a mistake and `HelpRequested` for `-h`.

    >>> parse_mesh("up dp=2 tp=2 --device cpu").args.axes
    {'dp': 2, 'tp': 2}
    >>> parse_mesh("").name
    'status'
    """
    tokens = [token.text for token in tokens_of(line)]
    if tokens and tokens[0] in ("help", *HELP_FLAGS):
        raise HelpRequested(mesh_help(*tokens[1:2]))
    if not tokens or is_option(tokens[0]):
        tokens.insert(0, "status")
    typed = tokens[0]
    command = COMMANDS.get(ALIASES.get(typed, typed)) or _refuse_command(typed)
    hint = f"`%mesh {typed}` is spelled `%mesh {command.name}`" if typed in ALIASES else ""
    if command.args is Diff:
        return MeshCommand(command.name, _read_diff(line, command))
    if command.args is Break:
        return MeshCommand(command.name, read_break(line, command))
    if command.args is Watch:  # quotes in `stats["loss"]` are part of it
        tokens = [token.raw for token in tokens_of(line)]
    return MeshCommand(command.name, command.read(tokens[1:]), hint)


def mesh_help(name: str = "") -> str:
    """The usage of a sub-command, or the list of all."""
    if name in COMMANDS:
        return COMMANDS[name].help()
    rows = [(f"{each.name} {each.words}".strip(), each.summary) for each in COMMANDS.values()]
    return (
        f"usage: %mesh [COMMAND] ...\n\ncommands:\n{columns(rows)}\n\n"
        "`%mesh COMMAND -h` shows the options of one.\n\nexample:\n  m = %mesh up dp=2 tp=2"
    )


_SELECTS = ("-s", "--sel", "--select", "--selector", "-r", "--ranks", "--rank")


def parse_on_mesh(line: str, defaults: Mapping[str, object] | None = None) -> OnMeshArgs:
    """Read what stands behind `%%on_mesh`, or behind `%on_mesh` with an expression after `--`.

    The selector stays text: see `parse_selector`. Raises `GrammarError` for a mistake and `HelpRequested` for
    `-h`.

    >>> parse_on_mesh("dp=0, tp=1: -o r").selector
    'dp=0, tp=1:'
    >>> parse_on_mesh("dp=0 -- x.sum()").expr
    'x.sum()'
    """
    head, expr = _split_expr(line, "%on_mesh dp=0 -- x.sum()")
    selector, tokens = split_line(head)
    targets, tokens = _without_targets(tokens)
    if asked := [token for token in tokens if split_flag(token)[0] in _SELECTS]:
        raise GrammarError(
            f"%%on_mesh: no option {asked[0]}: which ranks is written plain, as in `%%on_mesh dp=0` or `%%on_mesh 0,2`"
        )
    args: OnMeshArgs = ON_MESH.read(tokens, expr=expr)
    given = [text for text in (selector, targets, args.selector) if text]
    if len(given) > 1:
        raise GrammarError(f"%%on_mesh: two selectors, '{given[0]}' and '{given[1]}': write one, in front")
    hint = f"`--targets {targets}` is spelled `%%on_mesh {targets}`" if targets else ""
    return replace(args, selector="".join(given), hint=hint, **_fitting(defaults or {}, args, tokens))


def _fitting(defaults: Mapping[str, object], args: OnMeshArgs, tokens: Sequence[str]) -> dict[str, Any]:
    """The defaults that the line says nothing of, and that do not exclude what it says."""
    flags = {split_flag(token)[0] for token in tokens if is_option(token)}
    said = {field for field, option in ON_MESH.options.items() if flags & set(option.flags)}
    said |= {"tail"} if args.full else set[str]()
    said |= {"on_error"} if args.bg else set[str]()
    said |= {"show"} if args.bg and defaults.get("show") == "diff" else set[str]()
    return {field: value for field, value in defaults.items() if field not in said}


def _read_diff(line: str, command: Command) -> Diff:
    """An expression stands as it was typed: behind `--`, or in front of the options."""
    head, expr = _split_expr(line, command.example.replace("diff ", "diff -- "))
    _, *tokens = tokens_of(head)
    front = next((place for place, token in enumerate(tokens) if expr is not None or is_option(token.raw)), len(tokens))
    if expr is None and front and set(HELP_FLAGS).isdisjoint(token.raw for token in tokens):
        expr = line[tokens[0].start : tokens[front - 1].end]
    try:
        diff: Diff = command.read([token.text for token in tokens[front:]], expr=expr or "")
    except GrammarError as error:
        advice = "" if line != head else f" (an expression with '{tokens[front].text}' in it goes behind --)"
        raise GrammarError(f"{error}{advice if 'no option' in str(error) else ''}") from None
    if not diff.expr:
        raise GrammarError(f"%mesh diff: write the expression to compare, such as {command.example}")
    try:
        ast.parse(diff.expr, mode="eval")
    except SyntaxError as error:
        raise GrammarError(
            f"%mesh diff: '{diff.expr}' is no expression ({error.msg}); --sel SELECTOR says of which ranks"
        ) from None
    return diff


def _split_expr(line: str, example: str) -> tuple[str, str | None]:
    for token in tokens_of(line):
        if token.raw == "--":
            expr = line[token.end :].strip()
            if not expr:
                raise GrammarError(f"an expression is missing after --, such as {example}")
            return line[: token.start], expr
    return line, None


def _without_targets(tokens: list[str]) -> tuple[str, list[str]]:
    """Takes ipyparallel's `--targets` out of the options."""
    for place, token in enumerate(tokens):
        flag, equals, value = token.partition("=")
        if flag == "--targets":
            targets = value if equals else " ".join(tokens[place + 1 : place + 2])
            return targets, tokens[:place] + tokens[place + (1 if equals else 2) :]
    return "", tokens


def _refuse_command(typed: str) -> NoReturn:
    if "=" in typed or typed.isdecimal():
        wanted = typed if "=" in typed else f"-n {typed}"
        raise GrammarError(f"%mesh: '{typed}' is not a sub-command: write `%mesh up {wanted}` to start a mesh")
    meant = _MEANT.get(typed.lower())
    advice = f": did you mean '{meant}'?" if meant else near(typed, [*COMMANDS, *ALIASES])
    raise GrammarError(f"%mesh: no sub-command '{typed}'{advice} (there are {', '.join(COMMANDS)})")
