"""What the tests of cells share: a notebook with a private shell, and a zygote whose forks run cells."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from meshbook.kernel.outcome import Display, Failure, Outcome, Value
from meshbook.kernel.ranks.cell import CellShell
from meshbook.runtime import session as sessions
from tests.profiles import COMPILER

NUM_HOSTS = 2
HERE = Path(__file__).parent
PROGRAM = Path(__file__).with_name("rank_program.py")


class Notebook:
    """A private `CellShell`, and the cells it has run."""

    def __init__(self) -> None:
        self.shown: list[Display] = []
        self.shell = CellShell({"rank": 3}, self.shown.append)
        self.runs = 0

    def run(self, source: str, *, first_line: int = 1) -> Outcome:
        self.runs += 1
        return self.shell.run(source, run=self.runs, name=f"cell {self.runs}", first_line=first_line)

    def value(self, source: str) -> Value:
        outcome = self.run(source)
        assert outcome.value is not None, outcome.failure
        return outcome.value

    def failure(self, source: str, *, first_line: int = 1) -> Failure:
        outcome = self.run(source, first_line=first_line)
        assert outcome.failure is not None, outcome.value
        return outcome.failure


@pytest.fixture
def new_notebook() -> Generator[Callable[[], Notebook]]:
    with contextlib.ExitStack() as stack:

        def create() -> Notebook:
            notebook = Notebook()
            stack.callback(notebook.shell.close)
            return notebook

        yield create


@pytest.fixture
def notebook(new_notebook: Callable[[], Notebook]) -> Notebook:
    return new_notebook()


@dataclass(frozen=True)
class Report:
    """What a forked rank left behind."""

    outcomes: list[Outcome]
    shown: list[Display]
    seconds: list[float]
    ended: float
    stdout: str
    stderr: str

    @classmethod
    def of(cls, folder: Path) -> Report:
        form = tuple[list[Outcome], list[Display], list[float], float]
        fields = msgspec.msgpack.decode((folder / "report").read_bytes(), type=form)
        return cls(*fields, (folder / "stdout").read_text(), (folder / "stderr").read_text())

    def text(self, number: int) -> str:
        """Of the value of a cell, counted from 1."""
        value = self.outcomes[number - 1].value
        assert value is not None, self.outcomes[number - 1]
        return value.text

    def failure(self, number: int) -> Failure:
        failure = self.outcomes[number - 1].failure
        assert failure is not None, self.outcomes[number - 1]
        return failure


class Zygote:
    """The process of `rank_program.py`."""

    def __init__(self) -> None:
        environment = {name: text for name, text in os.environ.items() if name != "MPLBACKEND"}
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )
        self.warmed: dict[str, Any] = json.loads(self._line())

    def run(self, folder: Path, *cells: str, meanwhile: Callable[[int], None] = lambda pid: None) -> Report:
        """Fork a rank that runs the cells; `meanwhile` is called with its pid."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"cells": cells, "folder": str(folder)}) + "\n")
        self.process.stdin.flush()
        meanwhile(int(self._line()))
        assert int(self._line()) == 0
        return Report.of(folder)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()


@pytest.fixture(scope="module")
def zygote() -> Generator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture(scope="module")
def engine(on: str) -> str:
    """The name of the engine on which meshes of a file come up, which is warm, and stays so for the next file here."""
    if COMPILER not in sessions.ZYGOTE_MODULES:
        sessions.ZYGOTE_MODULES.append(COMPILER)
    session = sessions.session()
    if on == "local":
        name = on
        session.engine(name).warm()
    else:
        name = session.use_hosts(NUM_HOSTS) if on == "hosts" else session.use_monarch(NUM_HOSTS)
        session.engine(name).seats({"rank": NUM_HOSTS})
    return name


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """After the last test of this folder that this process runs, and its fixtures."""
    if (nextitem is None or HERE not in nextitem.path.parents) and COMPILER in sessions.ZYGOTE_MODULES:
        sessions.ZYGOTE_MODULES.remove(COMPILER)
        sessions.close()
