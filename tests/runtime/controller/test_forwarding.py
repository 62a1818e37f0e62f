"""What ranks print, as a program has it forwarded."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Actor, endpoint
from meshbook.runtime.config import configured
from meshbook.runtime.controller.audiences import listen_by
from meshbook.runtime.controller.forwarding import Alike, Forwarding

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class Sayer(Actor):
    @endpoint
    def say(self, text: str) -> None:
        print(f"{text}\n", end="")  # in one piece: ranks that are threads share the stream

    @endpoint
    def level(self) -> int:
        return logging.getLogger().level


@pytest.fixture(autouse=True)
def level() -> Generator[None]:
    """Ranks that are threads share theirs with us."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def set_up(procs: Any, **options: Any) -> None:
    asyncio.run(procs.logging_option(**options))


def test_a_flood_of_lines_is_compared_in_part() -> None:
    said = [(0, f"{number:x}" * 1000) for number in range(16)] * 100
    assert [each.count for each in Alike.of(said)] == [100] * 16


def test_lines_are_kept_by_stream_until_the_window_is_over() -> None:
    said = list[tuple[str, str]]()
    forwarding = Forwarding("procs", 3.0, lambda stream, text: said.append((stream, text)))
    forwarding.take(1, "stdout", "one\ntwo\n")
    forwarding.take(0, "stderr", "oh\n")
    forwarding.take(0, "stdout", "one\n")
    assert said == []
    forwarding.flush()
    forwarding.flush()
    (out, told), (err, _) = said
    assert (out, err) == ("stdout", "stderr")
    lines = re.sub(r"\x1b\[\d*m", "", told).split("\n")
    assert lines[0].startswith(">>> Aggregated Logs (2") and lines[3].startswith("<<< Aggregated Logs (2")
    assert lines[1:3] == ["[2 similar log lines] [1] one", "[1 similar log lines] [1] two"]
    assert lines[4:] == ["", ""]


def test_a_program_sees_whose_lines_they_are(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    procs = stage.procs({"r": 2}, name="trainers")
    sayers = stage.spawn(Sayer, on=procs)
    with configured(enable_log_forwarding=True):
        set_up(procs, stream_to_client=True, level=logging.ERROR)
    assert sayers.level.call().get(10).values() == [logging.ERROR] * 2
    sayers.say.call("hello").get(10)
    lines = sorted(capsys.readouterr().out.splitlines())
    assert [line.partition(" ")[2] for line in lines] == ["trainers-0] [0] hello", "trainers-1] [1] hello"]
    set_up(procs)
    sayers.say.call("hello").get(10)
    assert capsys.readouterr().out == "hello\n" * 2


def test_what_was_kept_is_told_as_the_mesh_ends(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    procs = stage.procs({"r": 2})
    sayers = stage.spawn(Sayer, on=procs)
    with configured(enable_log_forwarding=True):
        set_up(procs, stream_to_client=True, aggregate_window_sec=600)
    sayers.say.call("hello").get(10)
    assert capsys.readouterr().out == ""
    procs.stop().get(20)
    assert "[2 similar log lines]\x1b[0m [" in capsys.readouterr().out


def test_windows_end_by_themselves(stage: Stage, capsys: pytest.CaptureFixture[str], until: Any) -> None:
    procs = stage.shared(r=2)
    sayers = stage.spawn(Sayer, on=procs)
    with configured(enable_log_forwarding=True):
        set_up(procs, stream_to_client=True, aggregate_window_sec=0.01)
    sayers.slice(r=1).say.call_one("hello").get(10)
    told = list[str]()
    until(lambda: told.append(capsys.readouterr().out) or "[1] hello" in "".join(told))
    set_up(procs)


def test_without_the_key_it_warns_and_does_nothing(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    procs = stage.shared(r=2)
    with pytest.warns(UserWarning, match=r"logging_option\(stream_to_client=True\) has no effect"):
        set_up(procs, stream_to_client=True)
    stage.spawn(Sayer, on=procs).say.call("hello").get(10)
    assert capsys.readouterr().out == "hello\n" * 2


def test_a_notebook_shows_all_by_itself(stage: Stage) -> None:
    procs = stage.shared(r=2)
    listen_by(lambda: None)
    try:
        set_up(procs, stream_to_client=True)
    finally:
        listen_by(None)
