"""IPython in a terminal: the same words, no kernel."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.real]

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_PROMPT = r"In \[\d+\]: "
_OPTIONS = ["--simple-prompt", "--colors=NoColor", "--no-confirm-exit", "--no-banner"]


class Terminal:
    """An IPython that somebody sits at."""

    def __init__(self, folder: Path) -> None:
        env = os.environ | {"IPYTHONDIR": str(folder), "TERM": "dumb"}
        command = ["-m", "IPython", *_OPTIONS]
        self._child: Any = pexpect.spawn(
            sys.executable, command, env=env, cwd=str(folder), encoding="utf-8", timeout=15, echo=False
        )
        self._child.setwinsize(50, 200)
        self._child.expect(_PROMPT)

    @property
    def pid(self) -> int:
        return self._child.pid

    def type(self, source: str) -> None:
        """Type a cell; one of several lines ends with two that are empty."""
        self._child.sendline(source + ("\n\n" if "\n" in source else ""))

    def until(self, text: str) -> None:
        self._child.expect_exact(text)

    def reply(self) -> str:
        """What is shown until the next prompt."""
        self._child.expect(_PROMPT)
        return _ESCAPES.sub("", self._child.before).replace("\r\n", "\n")

    def run(self, source: str) -> str:
        self.type(source)
        return self.reply()

    def interrupt(self) -> None:
        """Ctrl-C: the terminal signals the whole process group in front."""
        self._child.sendintr()

    def leave(self) -> None:
        self._child.sendline("exit")
        self._child.expect(pexpect.EOF)
        self._child.wait()

    def close(self) -> None:
        self._child.close(force=True)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Generator[Terminal]:
    terminal = Terminal(tmp_path_factory.mktemp("terminal"))
    try:
        terminal.run("%load_ext meshbook")
        terminal.run("m = %mesh up dp=2 tp=2 --device cpu")
        yield terminal
    finally:
        terminal.close()


def test_a_cell_runs_and_shows_its_result(terminal: Terminal) -> None:
    shown = terminal.run("%%on_mesh -o r\nimport time\nprint('hi')\nrank // 2")
    assert "0-3 │ hi\n" in shown
    assert re.search(r"^0   ranks 0-1", shown, re.MULTILINE)
    assert "[0, 0, 1, 1]" in terminal.run("r.values()")


def test_management_is_shown_as_text(terminal: Terminal) -> None:
    assert "mesh m0   dp=2 × tp=2   4 idle" in terminal.run("%mesh")
    assert "usage: %mesh up" in terminal.run("%mesh up -h")
    assert "usage: %%on_mesh" in terminal.run("%on_mesh -h")
    assert "<Mesh m0 dp=2 tp=2>" in terminal.run("m")


def test_a_failing_cell_tells_its_story(terminal: Terminal) -> None:
    shown = terminal.run("%%on_mesh dp=1\n1 / 0")
    assert "✗ 2 of 2 ranks failed" in shown
    assert "ZeroDivisionError: division by zero" in shown
    assert "MeshError: 2 of 2 ranks failed (dp=1,tp=0-1)" in shown
    assert "magics" not in shown
    assert "UsageError: no axis 'dq'" in terminal.run("%%on_mesh dq=0\n1")


def pids_in(terminal: Terminal, num_ranks: int = 4) -> list[str]:
    shown = terminal.run("%on_mesh --show table -- __import__('os').getpid()")
    pids = re.findall(r"(\d+) +rank \d", shown)
    assert len(pids) == num_ranks
    return pids


@pytest.mark.parametrize("statement", ["__import__('time').sleep(60)", "while True: pass"])
def test_ctrl_c_reaches_the_ranks_and_leaves_them_alive(terminal: Terminal, statement: str) -> None:
    pids = pids_in(terminal)
    terminal.type(f"%%on_mesh\nprint('in')\n{statement}")
    terminal.until("0-3 │ in")
    terminal.interrupt()
    shown = terminal.reply()
    assert "KeyboardInterrupt: interrupted: ranks 0-3 at cell" in shown
    assert "Traceback" not in shown
    assert pids_in(terminal) == pids


def test_plain_cells_on_the_mesh(terminal: Terminal) -> None:
    assert "auto is on: plain cells run on m0" in terminal.run("%mesh auto on")
    assert re.search(r"^0   ranks 0-1", terminal.run("rank // 2"), re.MULTILINE)
    assert "NameError: name 'rank'" in terminal.run("%%local\nrank")
    assert "auto is off" in terminal.run("%mesh auto off")


def test_a_cell_in_the_background(terminal: Terminal) -> None:
    terminal.run("%%on_mesh -b -o f\nimport time\ntime.sleep(0.1)\nprint('late')\nrank")
    assert "[0, 1, 2, 3]" in terminal.run("f.result().values()")


def test_who_dies_as_the_user_sits_at_a_prompt_is_told_and_the_prompt_written_again(terminal: Terminal) -> None:
    terminal.run("spare = %mesh up spare dp=2 --device cpu")
    pids = pids_in(terminal, 2)
    terminal.type("%%on_mesh\nif rank == 0: breakpoint()\nif rank == 1: __import__('time').sleep(60)")
    terminal.until("rank 0 ipdb> ")
    os.kill(int(pids[1]), signal.SIGKILL)
    terminal.until("killed by SIGKILL")
    terminal.until("rank 0 ipdb> ")
    terminal.type("c")
    assert "1 of 2 ranks lost" in terminal.reply()
    terminal.run("%mesh down spare")
    terminal.run("%mesh use m")


def test_leaving_ends_the_ranks(tmp_path: Path, gone: Callable[..., None]) -> None:
    terminal = Terminal(tmp_path)
    terminal.run("%load_ext meshbook")
    terminal.run("%mesh up dp=2 --pg none")
    pids = {number: child.pid for number, child in enumerate(psutil.Process(terminal.pid).children(recursive=True))}
    assert len(pids) >= 3
    terminal.leave()
    gone(pids)


def test_where_the_folder_is_gone_only_what_needs_one_says_so(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.run("import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')")
    assert "Error" not in terminal.run("%load_ext meshbook")
    assert "the working directory of this program was removed" in terminal.run("%mesh up -n 1 --device cpu")
    terminal.leave()
    terminal.close()
