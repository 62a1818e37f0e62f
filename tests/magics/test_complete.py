from __future__ import annotations

import pytest

from meshbook.magics.complete import MAX_INDICES, Completions, World, complete
from meshbook.magics.grammar import COMMANDS, ON_MESH

NAMES = ("model", "model.layers", "model.loss", "mode", "x")
WORLD = World(
    meshes=("m0", "big"),
    axes={"dp": 2, "tp": 4},
    states={0: "idle", 3: "failed"},
    remote_names=lambda prefix: [name for name in NAMES if name.startswith(prefix)],
)


def offered(text: str, world: World = WORLD) -> list[str]:
    """What Tab offers at the end of a text: each the whole text that it would give."""
    found = complete(text, len(text), world)
    assert found is not None
    return [text[: found.start] + item for item in found.items]


def words(text: str) -> list[str]:
    found = complete(text, len(text), WORLD)
    assert found is not None
    return list(found.items)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%mesh res", ["%mesh restart", "%mesh resize"]),
        ("  %mesh u", ["  %mesh up", "  %mesh use", "  %mesh unstick"]),
        ("m = %mesh u", ["m = %mesh up", "m = %mesh use", "m = %mesh unstick"]),
        ("x = 1\n%mesh dow", ["x = 1\n%mesh down"]),
        ("%mesh up --dev", ["%mesh up --device"]),
        ("%mesh start --dev", ["%mesh start --device"]),
        ("%mesh up --device ", [f"%mesh up --device {each}" for each in ("auto", "cpu", "cuda", "shared")]),
        ("%mesh up --device=", [f"%mesh up --device={each}" for each in ("auto", "cpu", "cuda", "shared")]),
        ("%mesh up --device=cu", ["%mesh up --device=cuda"]),
        ("%mesh up dp=2 --pg n", ["%mesh up dp=2 --pg nccl", "%mesh up dp=2 --pg none"]),
        ("%mesh use ", ["%mesh use m0", "%mesh use big"]),
        ("%mesh down b", ["%mesh down big"]),
        ("%mesh status -m b", ["%mesh status -m big"]),
        ("%mesh status dp=0,t", ["%mesh status dp=0,tp="]),
        ("%mesh push x --sel dp=", [f"%mesh push x --sel dp={each}" for each in ("0", "1", ":")]),
        ("%mesh pull mod", [f"%mesh pull {each}" for each in NAMES[:4]]),
        ("%mesh nonsense a", []),
        ("%%on_mesh d", ["%%on_mesh dp="]),
        ("%%on_mesh dp=", ["%%on_mesh dp=0", "%%on_mesh dp=1", "%%on_mesh dp=:"]),
        ("%%on_mesh dp=0,tp=3", ["%%on_mesh dp=0,tp=3"]),
        ("%%on_mesh dp=0 t", ["%%on_mesh dp=0 tp="]),
        ("%%on_mesh tp=(0, ", [f"%%on_mesh tp=(0, {each}" for each in range(4)]),
        ("%%on_mesh tp=!3", ["%%on_mesh tp=!3"]),
        ("%%on_mesh rank=7", ["%%on_mesh rank=7"]),
        ("%%on_mesh xx=", []),
        ("%%on_mesh @s", ["%%on_mesh @stuck"]),
        ("%%on_mesh al", ["%%on_mesh all"]),
        ("%%on_mesh lo", ["%%on_mesh local_rank="]),
        ("%%on_mesh -o r --sh", ["%%on_mesh -o r --show"]),
        ("%%on_mesh --on-error=w", ["%%on_mesh --on-error=wait"]),
        ("%%on_mesh --show f", ["%%on_mesh --show first"]),
        ("%%on_mesh --label dp=", []),
        ("%%on_mesh --get model.lo", ["%%on_mesh --get model.loss"]),
        ("# why\n\n%%on_mesh --bg t", ["# why\n\n%%on_mesh --bg tp="]),
        ("%on_mesh dp=0 -- x + mode", [f"%on_mesh dp=0 -- x + {each}" for each in NAMES[:4]]),
        ("%on_mesh dp=", ["%on_mesh dp=0", "%on_mesh dp=1", "%on_mesh dp=:"]),
    ],
)
def test_tab_at_the_end_of(text: str, expected: list[str]):
    assert offered(text) == expected


def test_every_sub_command_is_offered():
    assert words("%mesh ") == list(COMMANDS)


def test_options_are_those_of_the_parser():
    flags = [flag for each in ON_MESH.options.values() for flag in each.flags]
    assert words("%%on_mesh -") == [*flags, "-h", "--help"]
    assert words("%mesh ls --") == ["--all", "--json", "--help"]


def test_an_option_that_is_there_is_not_offered_again_unless_it_may_be_repeated():
    assert "--bg" not in words("%%on_mesh -b --")
    assert "--show" not in words("%%on_mesh --show=first --")
    assert "--env" in words("%mesh up --env A=1 --")


def test_an_empty_word_offers_the_selector_first_and_then_options():
    found = words("%%on_mesh ")
    assert found[:4] == ["dp=", "tp=", "@failed", "@alive"]
    assert "--timeout" in found
    assert "-t" not in found


def test_behind_a_comma_only_the_selector_goes_on():
    found = words("%%on_mesh dp=0, ")
    assert found[0] == "tp="
    assert not any(each.startswith("-") or each == "dp=" for each in found)


def test_states_that_are_there_come_first():
    assert words("%%on_mesh @")[0] == "@failed"


def test_of_a_long_axis_the_first_indices_are_offered():
    assert len(offered("%%on_mesh dp=", World(axes={"dp": 500}))) == MAX_INDICES + 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mode", list(NAMES[:4])),
        ("y = model.", ["model.layers", "model.loss"]),
        ("if True:\n    print(model.la", ["model.layers"]),
        ("f(x).mode", None),
        ("x[0].mode", None),
        ("%mode", None),
        ("y = ", None),
        ("'mode", None),
    ],
)
@pytest.mark.parametrize("head", ["%%on_mesh\n", "%%on_mesh dp=0 -o r\n", "# why\n%%on_mesh @alive\n"])
def test_the_body_offers_names_on_the_ranks(head: str, body: str, expected: list[str] | None):
    text = head + body
    found = complete(text, len(text), WORLD)
    assert (list(found.items) if found else None) == expected


def test_the_cursor_may_stand_anywhere():
    text = "%%on_mesh dp= -o r\nmode + 1"
    assert complete(text, 13, WORLD) == Completions(13, ("0", "1", ":"))
    assert complete(text, text.index(" + 1"), WORLD) == Completions(19, NAMES[:4])


@pytest.mark.parametrize(
    "text",
    ["", "x = mode", "%%on_mesh", "%mesh", "%%time\nx", "print('%mesh ')", "%%on_meshes d", "%meshes u"],
)
def test_what_is_not_ours_is_left_alone(text: str):
    assert complete(text, len(text), WORLD) is None


def test_names_on_the_ranks_are_asked_for_only_where_they_fit():
    asked: list[str] = []

    def names(prefix: str) -> list[str]:
        asked.append(prefix)
        return []

    world = World(axes={"dp": 2}, remote_names=names)
    for text in ("%%on_mesh d", "%mesh u", "model", "%%on_mesh\nmodel.la"):
        complete(text, len(text), world)
    assert asked == ["model.la"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("state['", ["state['epoch'", "state['loss"]),
        ("print(run.state[", ["print(run.state['epoch'", "print(run.state[3"]),
        ('state["lo', ['state["loss']),
        ("x = 'state['", []),
    ],
)
def test_keys_are_those_of_the_ranks(typed: str, expected: list[str]) -> None:
    keys = {
        "state['": ["state['epoch'", "state['loss"],
        "run.state[": ["run.state['epoch'", "run.state[3"],
        'state["lo': ['state["loss'],
    }
    world = World(axes={"dp": 2}, remote_names=lambda prefix: keys.get(prefix, []))
    text = f"%%on_mesh\n{typed}"
    found = complete(text, len(text), world)
    offered = [] if found is None else [typed[: len(typed) - (len(text) - found.start)] + each for each in found.items]
    assert offered == expected
