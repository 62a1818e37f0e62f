"""Which process, mesh and ranks the words of `python -m meshbook.debug` mean. Pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshbook.kernel.debug.letters import Listing, MeshFacts
from meshbook.magics.found import Found, NotFound, choose


def found(pid: int, *names: str, stops: dict[int, str] | None = None) -> Found:
    meshes = tuple(MeshFacts(name, {"dp": 2}, {0: "idle", 1: "busy"}, stops or {}) for name in names)
    return Found(pid, Path(f"{pid}.sock"), Listing("python train.py", "/home/me", "train.py line 3", meshes))


ONE = found(4711, "lab")
TWO = [ONE, found(4712, "left", "right")]
SILENT = Found(4713, Path("4713.sock"), None)


@pytest.mark.parametrize(
    ("words", "pid", "mesh", "selector"),
    [
        (["4712"], 4712, "", ""),
        (["4712/left"], 4712, "left", ""),
        (["4711", "dp=1"], 4711, "", "dp=1"),
        (["right", "@busy"], 4712, "right", "@busy"),
        (["lab", "0,1"], 4711, "lab", "0,1"),
    ],
)
def test_words_name_a_process_and_ranks(words: list[str], pid: int, mesh: str, selector: str) -> None:
    chosen, *rest = choose(TWO, words)
    assert (chosen.pid, *rest) == (pid, mesh, selector)


@pytest.mark.parametrize("words", [[], ["1"], ["dp=1"], ["all"], ["@busy"], ["!0"]])
def test_the_only_process_needs_no_name(words: list[str]) -> None:
    assert choose([ONE], words) == (ONE, "", " ".join(words))


def test_of_several_the_only_one_that_is_stopped_needs_none() -> None:
    stopped = found(4714, "lab", stops={1: "train.py line 7"})
    assert choose([*TWO, stopped], [])[0] == stopped
    with pytest.raises(NotFound, match=r"name the process: there is 4711 \(python train.py\), 4712"):
        choose(TWO, [])
    with pytest.raises(NotFound, match="mesh 'left' is there more than once"):
        choose([*TWO, found(4715, "left")], ["left"])


@pytest.mark.parametrize("word", ["2", "99", "nobody", "4716"])
def test_what_names_nothing_is_said(word: str) -> None:
    with pytest.raises(NotFound, match=f"there is no process and no mesh '{word}'; there is 4711"):
        choose(TWO, [word])
    with pytest.raises(NotFound, match="no script or notebook of yours"):
        choose([], [])


def test_one_that_does_not_answer_is_listed() -> None:
    assert str(SILENT) == "pid 4713   does not answer"
    assert choose([SILENT], ["4713"])[0] == SILENT


def test_a_process_is_told_with_its_meshes() -> None:
    told = str(found(4711, "lab", stops={0: "train.py line 7", 1: "train.py line 7"}))
    assert told.splitlines() == [
        "pid 4711   python train.py   in /home/me   at train.py line 3",
        "  mesh lab   dp=2   1 idle, 1 busy",
        "    0-1 stopped at train.py line 7",
    ]
    assert str(found(4711, "lab", stops={0: ""})).splitlines()[-1] == "    0 asks for input"
