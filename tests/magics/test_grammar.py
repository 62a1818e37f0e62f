from __future__ import annotations

from dataclasses import fields

import pytest

from meshbook.magics.grammar import (
    ALIASES,
    COMMANDS,
    ON_MESH,
    Diff,
    Down,
    GrammarError,
    HelpRequested,
    Interrupt,
    Logs,
    Ls,
    MeshCommand,
    OnMeshArgs,
    Pull,
    Push,
    Resize,
    Restart,
    Status,
    Unstick,
    Up,
    Use,
    Who,
    mesh_help,
    parse_mesh,
    parse_on_mesh,
    split_line,
)
from meshbook.magics.options import Command


def mesh_refusal(line: str) -> str:
    with pytest.raises(GrammarError) as caught:
        parse_mesh(line)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def on_mesh_refusal(line: str) -> str:
    with pytest.raises(GrammarError) as caught:
        parse_on_mesh(line)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "selector", "tokens"),
    [
        ("", "", []),
        ("  dp=0 , tp=1  ", "dp=0 , tp=1", []),
        ("-1", "-1", []),
        ("-1,tp=0 -b", "-1,tp=0", ["-b"]),
        ("-2: --bg", "-2:", ["--bg"]),
        ("(1, 3) -o r", "(1, 3)", ["-o", "r"]),
        ("'dp=0, tp=1' -o r", "'dp=0, tp=1'", ["-o", "r"]),
        ('--label "two words" -b', "", ["--label", "two words", "-b"]),
        ("dp=0 # it's a comment -b", "dp=0", []),
        ("dp=0 --label '#1'", "dp=0", ["--label", "#1"]),
    ],
)
def test_a_line_is_a_selector_and_then_options(line: str, selector: str, tokens: list[str]):
    assert split_line(line) == (selector, tokens)


def test_on_mesh_without_anything_has_the_defaults():
    assert parse_on_mesh("") == OnMeshArgs()
    assert (OnMeshArgs().on_error, OnMeshArgs().grace, OnMeshArgs().show) == ("stop", 2.0, "auto")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dp=0", OnMeshArgs(selector="dp=0")),
        ("-m other", OnMeshArgs(mesh="other")),
        ("-o r", OnMeshArgs(out="r")),
        ("--out=r", OnMeshArgs(out="r")),
        ("-b", OnMeshArgs(bg=True)),
        ("-t 1.5", OnMeshArgs(timeout=1.5)),
        ("-t30", OnMeshArgs(timeout=30.0)),
        ("--on-error wait --grace 0", OnMeshArgs(on_error="wait", grace=0.0)),
        ("--show first", OnMeshArgs(show="first")),
        ("--show tabs", OnMeshArgs(show="tabs")),
        ("--tail 50", OnMeshArgs(tail=50)),
        ("--full -l", OnMeshArgs(full=True, local=True)),
        ("--get a,b --get c", OnMeshArgs(get=("a", "b", "c"))),
        ("--no-stream", OnMeshArgs(no_stream=True)),
        ("dp=0 --no-check", OnMeshArgs(selector="dp=0", no_check=True)),
        ("--label 'warm up'", OnMeshArgs(label="warm up")),
        ("-b -1,tp=0", OnMeshArgs(bg=True, selector="-1,tp=0")),
        ("--bg dp=0 tp=1", OnMeshArgs(bg=True, selector="dp=0 tp=1")),
    ],
)
def test_on_mesh_options(line: str, expected: OnMeshArgs):
    assert parse_on_mesh(line) == expected


@pytest.mark.parametrize(
    ("line", "selector", "expr"),
    [
        ("dp=0 -- x.sum()", "dp=0", "x.sum()"),
        ("-- it's  # kept", "", "it's  # kept"),
        ("dp=0 -t 3 -- f(-h, -- x)", "dp=0", "f(-h, -- x)"),
        ("dp=0", "dp=0", None),
    ],
)
def test_the_line_form_keeps_its_expression_as_it_is(line: str, selector: str, expr: str | None):
    args = parse_on_mesh(line)
    assert (args.selector, args.expr) == (selector, expr)


@pytest.mark.parametrize("line", ["--targets 0:2 -b", "--targets=0:2 -b", "-b --targets 0:2"])
def test_targets_is_understood_with_a_hint(line: str):
    expected = OnMeshArgs(selector="0:2", bg=True, hint="`--targets 0:2` is spelled `%%on_mesh 0:2`")
    assert parse_on_mesh(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-o 1x", "%%on_mesh: -o: '1x' is not a name: write letters, digits and _, such as m0"),
        ("-o class", "-o: 'class' is not a name, but a word of Python: write another, such as class_"),
        ("-o", "-o needs a value: -o NAME"),
        ("-o -b", "-o needs a value: -o NAME"),
        ("-t 0", "-t: '0' is not a number of seconds over 0, such as 30"),
        ("-t soon", "'soon' is not a number of seconds"),
        ("-t nan", "'nan' is not a number of seconds"),
        ("-t inf", "'inf' is not a number of seconds"),
        ("--grace -1", "--grace: '-1' is not a number of seconds"),
        ("--tail 0", "--tail: '0' is not a whole number of 1 or more"),
        ("--show tab", "--show: 'tab' is not one of auto, table, tabs, first, diff, none"),
        ("--on-error go", "--on-error: 'go' is not one of stop, wait"),
        ("--bg=1", "--bg takes no value, and '1' stands behind it"),
        ("--timout 3", "%%on_mesh: no option --timout: did you mean '--timeout'?"),
        ("--no_stream", "did you mean '--no-stream'?"),
        ("-timeout 3", "no option -timeout: did you mean '--timeout'?"),
        ("-x", "no option -x: there are -m, --mesh,"),
        ("--sel dp=1", "%%on_mesh: no option --sel: which ranks is written plain, as in `%%on_mesh dp=0`"),
        ("-o r -s dp=1", "%%on_mesh: no option -s: which ranks is written plain"),
        ("--tail 3 --full", "--tail and --full exclude each other"),
        ("--get x -b", "--get and --bg exclude each other"),
        ("--nocheck", "no option --nocheck: did you mean '--no-check'?"),
        ("dp=0 -b tp=1", "two selectors, 'dp=0' and 'tp=1': write one, in front"),
        ("dp=0 --targets 1", "two selectors, 'dp=0' and '1'"),
        ("dp=0 --", "an expression is missing after --"),
        ("dp=0 --label 'x", "the quote at column 14 is not closed"),
        ("--get a-b", "--get: 'a-b' is not a name"),
    ],
)
def test_a_mistake_on_the_line_of_a_cell(line: str, expected: str):
    assert expected in on_mesh_refusal(line)


@pytest.mark.parametrize(
    ("line", "name", "args"),
    [
        ("", "status", Status()),
        ("--json", "status", Status(json=True)),
        ("status -1,tp=0 -m m1", "status", Status("-1,tp=0", mesh="m1")),
        ("ls --json", "ls", Ls(json=True)),
        ("use m0", "use", Use("m0")),
        ("use m0[dp=0, tp=1]", "use", Use("m0", "dp=0, tp=1")),
        ("use m0 dp=0", "use", Use("m0", "dp=0")),
        ("down", "down", Down()),
        ("down m0 --grace 5", "down", Down("m0", grace=5.0)),
        ("down --all", "down", Down(all=True)),
        ("restart", "restart", Restart()),
        ("restart @dead, dp=1 --replay all", "restart", Restart("@dead, dp=1", replay="all")),
        ("restart m0 --replay 1-3,7", "restart", Restart("m0", replay=frozenset({1, 2, 3, 7}))),
        ("resize dp=8", "resize", Resize({"dp": 8})),
        ("resize dp=1,tp=4 -m m1 --replay none", "resize", Resize({"dp": 1, "tp": 4}, mesh="m1", replay="none")),
        ("interrupt --hard -m m1", "interrupt", Interrupt(mesh="m1", hard=True)),
        ("unstick rank=0 --no-reinit", "unstick", Unstick("rank=0", no_reinit=True)),
        ("interrupt dp=1, tp=0", "interrupt", Interrupt("dp=1, tp=0")),
        ("interrupt --kill", "interrupt", Interrupt(kill=True)),
        ("push x y, z --sel -1,tp=0", "push", Push(("x", "y", "z"), sel="-1,tp=0")),
        ("pull x --as stack --max-bytes 64M", "pull", Pull(("x",), gather="stack", max_bytes=64 * 1024**2)),
    ],
)
def test_a_sub_command_is_read_into_its_dataclass(line: str, name: str, args: object):
    assert parse_mesh(line) == MeshCommand(name, args)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("up dp=2 tp=4", Up(None, {"dp": 2, "tp": 4})),
        ("up m0 dp=2", Up("m0", {"dp": 2})),
        ("up dp=2,tp=4", Up(None, {"dp": 2, "tp": 4})),
        ("up -n 4", Up(None, {"rank": 4}, num_ranks=4)),
        ("up rank=4", Up(None, {"rank": 4})),
        ("up dp=2 --device cpu --pg gloo", Up(None, {"dp": 2}, device="cpu", pg="gloo")),
        ("up dp=2 --spawn=exec --engine local", Up(None, {"dp": 2}, spawn="exec")),
        ("up dp=2 --spares 1", Up(None, {"dp": 2}, spares=1)),
        ("up dp=2 --env A=1 --env B=x=y", Up(None, {"dp": 2}, env=(("A", "1"), ("B", "x=y")))),
        ("up dp=2 --env 'A=two words'", Up(None, {"dp": 2}, env=(("A", "two words"),))),
        ("up dp=2 --cwd '/a b' --ready-timeout 5", Up(None, {"dp": 2}, cwd="/a b", ready_timeout=5.0)),
        ("up dp=2 --import torch --import os.path,json", Up(None, {"dp": 2}, imports=("torch", "os.path", "json"))),
    ],
)
def test_up(line: str, expected: Up):
    assert parse_mesh(line).args == expected


def test_axes_keep_the_order_they_are_typed_in():
    args = parse_mesh("up tp=2 dp=3").args
    assert isinstance(args, Up)
    assert list(args.axes) == ["tp", "dp"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("up", "%mesh up: write axes with their sizes, such as dp=2 tp=2, or -n 4 for 4 ranks in a row"),
        ("up dp=0", "'dp=0' gives no size: write a whole number of 1 or more, such as dp=2"),
        ("up dp=-1", "'dp=-1' gives no size: write a whole number of 1 or more, such as dp=2"),
        ("up dp=abc", "'dp=abc' gives no size"),
        ("up dp=", "'dp=' gives no size"),
        ("up dp=2.5", "'dp=2.5' gives no size"),
        ("up dp=2 dp=3", "axis 'dp' is given twice, dp=2 and dp=3: write it once"),
        ("up rank=2 tp=2", "'rank' is for a mesh with one axis: write another name here, such as dp"),
        ("up host=2", "'host' has a meaning in selectors: write another name here"),
        ("up local_rank=2", "'local_rank' has a meaning in selectors"),
        ("up 2d=3", "'2d' cannot name an axis: write letters, digits and _"),
        ("up d-p=3", "'d-p' cannot name an axis"),
        ("up for=3", "'for' cannot name an axis, as it is a word of Python's: write another"),
        ("up dp 2", "'2' is not AXIS=N: write a size without spaces, such as dp=2"),
        ("up 4", "'4' is not a name: write -n 4 for 4 ranks in a row"),
        ("up my-mesh dp=2", "'my-mesh' is not a name"),
        ("up -n 4 dp=2", "-n and axes exclude each other"),
        ("up -n 0", "-n: '0' is not a whole number of 1 or more"),
        ("up -n -2", "-n: '-2' is not a whole number of 1 or more"),
        ("up dp=2 --device gpu", "--device: 'gpu' is not one of auto, cpu, cuda"),
        ("up dp=2 --devise cpu", "no option --devise: did you mean '--device'?"),
        ("up dp=2 --env A", "--env: 'A' is not K=V, such as OMP_NUM_THREADS=1"),
        ("up dp=2 --import a-b", "--import: 'a-b' is not a name"),
        ("ls x", "%mesh ls: 'x' is one word too many"),
        ("use", "write the mesh to use, such as m0 or m0[dp=0]"),
        ("use m0[dp=0", "write the mesh to use, such as m0 or m0[dp=0]"),
        ("down a b", "%mesh down: 'b' is one word too many"),
        ("down a --all", "--all and the name 'a' exclude each other"),
        ("down a b", "%mesh down: 'b' is one word too many"),
        ("restart --replay x", "%mesh restart: --replay: 'x' is not auto, all, none or cell numbers such as 1-3,5"),
        ("restart --replay 1-", "%mesh restart: --replay: '1-' is not auto, all, none or cell numbers such as 1-3,5"),
        ("resize", "%mesh resize: write axes with their new sizes, such as dp=8"),
        ("resize 8", "%mesh resize: '8' is not AXIS=N: write an axis with its new size, such as dp=8"),
        ("resize dp=x", "%mesh resize: 'dp=x' gives no size: write a whole number of 1 or more, such as dp=2"),
        ("push", "%mesh push: write one name or more, such as x y"),
        ("pull x --max-bytes big", "--max-bytes: 'big' is not a number of bytes, such as 500k or 64M"),
        ("stauts", "no sub-command 'stauts': did you mean 'status'? (there are up, attach, ls, actors, use, status,"),
        ("qqq", "%mesh: no sub-command 'qqq' (there are up, attach,"),
        ("Kill 1", "%mesh: no sub-command 'Kill': did you mean 'interrupt --kill'? (there are up, attach,"),
        ("diff x = 1", "%mesh diff: 'x = 1' is no expression (invalid syntax"),
        ("diff x dp=0", "%mesh diff: 'x dp=0' is no expression (invalid syntax); --sel SELECTOR says of which ranks"),
        ("4", "'4' is not a sub-command: write `%mesh up -n 4` to start a mesh"),
        ("dp=2", "'dp=2' is not a sub-command: write `%mesh up dp=2` to start a mesh"),
        ("up 'dp=2", "the quote at column 4 is not closed"),
    ],
)
def test_a_mistake_of_mesh_names_what_would_have_been_right(line: str, expected: str):
    assert expected in mesh_refusal(line)


@pytest.mark.parametrize(("typed", "name"), ALIASES.items())
def test_spellings_from_elsewhere_are_understood_with_a_hint(typed: str, name: str):
    command = parse_mesh(f"{typed} dp=2" if name == "up" else typed)
    assert (command.name, command.hint) == (name, f"`%mesh {typed}` is spelled `%mesh {name}`")


@pytest.mark.parametrize("line", ["-h", "--help", "help"])
def test_help_lists_the_sub_commands(line: str):
    with pytest.raises(HelpRequested) as caught:
        parse_mesh(line)
    assert all(f"\n  {name}" in caught.value.text for name in COMMANDS)


@pytest.mark.parametrize("line", ["up -h", "up dp=zero --bogus --help", "start -h", "help up"])
def test_help_of_a_sub_command_shows_its_options_and_an_example(line: str):
    with pytest.raises(HelpRequested) as caught:
        parse_mesh(line)
    text = caught.value.text
    assert text.startswith("usage: %mesh up [NAME] AXIS=N ... [options]\n\nStart a mesh")
    assert "--device {auto,cpu,cuda,shared}" in text
    assert "(default: auto)" in text
    assert text.endswith("example:\n  m = %mesh up dp=2 tp=2 --device cpu")


def test_help_of_on_mesh():
    with pytest.raises(HelpRequested) as caught:
        parse_on_mesh("dp=0 -h")
    assert "-t, --timeout S " in caught.value.text
    assert "example:\n  %%on_mesh dp=0,tp=1: -o r" in caught.value.text


@pytest.mark.parametrize("command", [ON_MESH, *COMMANDS.values()], ids=lambda command: command.name)
def test_every_example_in_the_help_can_be_typed(command: Command):
    typed = command.example.partition(command.prog)[2]
    args = parse_on_mesh(typed) if command is ON_MESH else parse_mesh(f"{command.name} {typed}").args
    assert isinstance(args, command.args)
    assert args != parse_on_mesh("")


@pytest.mark.parametrize("command", [ON_MESH, *COMMANDS.values()], ids=lambda command: command.name)
def test_no_two_options_of_a_command_share_a_flag(command: Command):
    flags = [flag for each in command.options.values() for flag in each.flags]
    assert len({*flags, "-h", "--help"}) == len(flags) + 2


def test_the_spec_of_on_mesh_is_complete():
    flags = [flag for each in ON_MESH.options.values() for flag in each.flags]
    long = "mesh out bg timeout on-error grace show tail full local get no-stream label no-check"
    assert [flag for flag in flags if flag.startswith("--")] == [f"--{each}" for each in long.split()]
    assert {each.name for each in fields(OnMeshArgs)} >= {"selector", "expr", "hint"}


def test_mesh_help_of_one_command_is_its_usage():
    assert mesh_help("ls").startswith("usage: %mesh ls [options]\n\nList the meshes")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("diff x", Diff("x")),
        ("diff x['a b'] - y  --rtol 1e-3", Diff("x['a b'] - y", rtol=1e-3)),
        ("diff --sel dp=0 -- x --y", Diff("x --y", sel="dp=0")),
        ("diff -- -x", Diff("-x")),
        ("diff f(a, b) --max-bytes 2k --json", Diff("f(a, b)", max_bytes=2048, json=True)),
        ("logs", Logs()),
        ("logs dp=0 -n all -f --err --cell 7", Logs("dp=0", last=None, follow=True, err=True, cell="7")),
        ("who tp=1 --json", Who("tp=1", json=True)),
    ],
)
def test_what_asks_the_ranks(line: str, expected: object):
    assert parse_mesh(line).args == expected


@pytest.mark.parametrize("line", ["diff -h", "diff x --help", "diff --help -- x"])
def test_help_of_diff(line: str):
    with pytest.raises(HelpRequested, match="usage: %mesh diff EXPR"):
        parse_mesh(line)


def test_an_expression_whose_end_looks_like_an_option_is_refused_with_advice():
    told = mesh_refusal("diff x -y")
    assert "no option -y" in told and told.endswith("(an expression with '-y' in it goes behind --)")
    assert "goes behind" not in mesh_refusal("diff x --rtol no") + mesh_refusal("diff --rtoll 1 -- x")
