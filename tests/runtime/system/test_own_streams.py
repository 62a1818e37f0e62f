"""A program may have streams of few characters, closed ones or none."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshbook.runtime.system import own_streams


def test_what_a_stream_cannot_say_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, "latin-1"))
    own_streams.write("stderr", "loss ↓ für dp=1\n")
    assert raw.getvalue().decode("latin-1") == "loss \\u2193 für dp=1\n"


def test_a_closed_stream_and_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            own_streams.write("stdout", "to nobody")
            own_streams.flush()
    own_streams.write("stdout", "to somebody")
    assert tuple(capsys.readouterr()) == ("to somebody", "")


class Tee:
    """What a script may have in place of `sys.stdout`: `print` is content with it."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


def test_a_stream_that_can_only_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    tee = Tee()
    monkeypatch.setattr(sys, "stdout", tee)
    own_streams.write("stdout", "to both")
    own_streams.flush()
    assert tee.text == "to both"


PROGRAM = """
import os, sys
from meshbook.runtime import Actor, endpoint, this_host
from meshbook.runtime.session import ZYGOTE_MODULES
ZYGOTE_MODULES.remove("torch?")  # takes a second

class Printing(Actor):
    @endpoint
    def work(self):
        print("to nobody")
        os.system("echo to nobody")
        return os.readlink("/proc/self/fd/1").partition(":")[0]

if __name__ == "__main__":
    with this_host().spawn_procs({"r": 2}) as procs:
        answers = procs.spawn("printing", Printing).work.call().get(60).values()
    open(sys.argv[1], "w").write(f"{answers} {sys.stdout}")
"""


@pytest.mark.real
def test_a_program_that_was_started_without_streams(tmp_path: Path) -> None:
    script, told = tmp_path / "program.py", tmp_path / "told"
    script.write_text(PROGRAM)
    command = f'exec "{sys.executable}" "{script}" "{told}" <&- >&- 2>&-'
    path = os.pathsep.join(each for each in sys.path if each)
    subprocess.run(["sh", "-c", command], check=True, timeout=60, env={**os.environ, "PYTHONPATH": path})
    assert told.read_text() == "['pipe', 'pipe'] None"
