"""The end of a child, as a loop hears of it: with pidfds, and where there are none."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from meshbook.runtime.engines.exits import end_of


@pytest.fixture(params=["best", "thread"], autouse=True)
def _system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "thread":
        monkeypatch.delattr(os, "pidfd_open", raising=False)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """One that ends when its input does."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def is_over(fd: int, timeout: float) -> bool:
    return bool(select.select([fd], [], [], timeout)[0])


def test_it_is_readable_from_the_end_on(child: subprocess.Popen[bytes]) -> None:
    fd = end_of(child)
    assert not is_over(fd, 0)
    child.kill()
    assert is_over(fd, 20) and is_over(fd, 0)
    assert child.wait() == -signal.SIGKILL
    os.close(fd)


def test_one_that_has_ended_is_told_at_once(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    first = end_of(child)
    assert is_over(first, 20)
    second = end_of(child)
    assert is_over(second, 20)
    for fd in (first, second):
        os.close(fd)
