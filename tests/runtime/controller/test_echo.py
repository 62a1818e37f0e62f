"""What ranks print in a program that is no notebook."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Actor, endpoint
from meshbook.runtime.controller.audiences import listen_by
from meshbook.runtime.controller.echo import Echo
from meshbook.runtime.wire.tape import Ended, Text

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class _Mesh:
    def __init__(self, mesh: int) -> None:
        self.mesh = mesh


class Sayer(Actor):
    @endpoint
    def say(self, text: str, end: str = "\n") -> None:
        print(f"{text}{end}", end="")  # in one piece: ranks that are threads share the stream

    @endpoint
    def complain(self) -> None:
        self.logger.warning("too loud")

    @endpoint
    def run_others(self) -> None:
        os.write(1, b"by number\n")
        subprocess.run(["echo", "by a child"], check=True)

    def __cleanup__(self, exc: Exception | None) -> None:
        print("cleaned up\n", end="")


def test_lines_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    echo, one, two = Echo(), _Mesh(1), _Mesh(2)
    said: list[tuple[Any, int, Any]] = [
        (one, 0, Text(1, "stdout", "from ze")),
        (one, 1, Text(1, "stdout", "from one\nand")),
        (two, 0, Text(1, "stderr", "not so\n")),
        (one, 0, Ended(1)),
        (one, 0, Text(1, "stdout", "ro\n")),
    ]
    for event in said:
        echo.on_said(*event)
    assert tuple(capsys.readouterr()) == ("from one\nfrom zero\n", "not so\n")
    echo.settle()
    echo.settle()
    assert capsys.readouterr().out == "and"


def test_a_program_that_nobody_reads_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mesh: Any = _Mesh(1)
    closed = io.StringIO()
    closed.close()
    echo = Echo()
    for stream in (None, closed):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            echo.on_said(mesh, 0, Text(1, "stdout", "to nobody\n"))
    echo.on_said(mesh, 0, Text(1, "stdout", "to somebody\n"))
    assert tuple(capsys.readouterr()) == ("to somebody\n", "")


def test_it_stands_before_what_the_program_says_next(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    sayers = stage.spawn(Sayer)
    sayers.say.call("hello").get(10)
    assert capsys.readouterr().out == "hello\n" * 2
    sayers.slice(r=1).say.call_one("half", end="").get(10)
    assert capsys.readouterr().out == "half"
    sayers.stop().get(10)
    assert capsys.readouterr().out == "cleaned up\n" * 2


def test_so_does_what_is_not_printed_by_python(process_stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    sayer = process_stage.one(Sayer)
    sayer.run_others.call_one().get(10)
    sayer.complain.call_one().get(10)
    out, err = capsys.readouterr()
    assert out == "by number\nby a child\n"
    assert "too loud" in err


def test_where_a_notebook_listens_it_is_the_notebook_s(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    listen_by(lambda: None)
    try:
        stage.one(Sayer).say.call_one("hello").get(10)
    finally:
        listen_by(None)
    assert capsys.readouterr().out == ""
