"""The C program below which no call over sockets can be: compiled here, and asked in turns with ours."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType

_SOURCE = Path(__file__).with_name("floor.c")
_PROGRAM = _SOURCE.parents[1] / "build" / "floor"


def compiled() -> Path | None:
    """The program, made if need be; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    if not _PROGRAM.exists() or _PROGRAM.stat().st_mtime < _SOURCE.stat().st_mtime:
        _PROGRAM.parent.mkdir(exist_ok=True)
        subprocess.run([compiler, "-O2", "-Wall", "-o", _PROGRAM, _SOURCE], check=True)
    return _PROGRAM


class Floor:
    """`num_ranks` C processes that answer. A context manager: they end with it."""

    def __init__(self, program: Path, num_ranks: int) -> None:
        self._process = subprocess.Popen([program, str(num_ranks)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def seconds(self, rounds: int) -> float:
        """The median of so many rounds: one message to each, then one from each."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"%d\n" % rounds)
        self._process.stdin.flush()
        return float(self._process.stdout.readline()) / 1e6

    def __enter__(self) -> Floor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate()
