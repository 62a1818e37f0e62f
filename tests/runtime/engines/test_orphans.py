"""No process of a mesh outlives its controller, however that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

Until = Callable[..., Any]

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a pipe kills whole process groups on Linux only"),
]

PROGRAM = Path(__file__).with_name("controller.py")


class Controller:
    """The process of `controller.py`."""

    def __init__(self, way: str) -> None:
        # From Python 3.12 on a fork of a process with threads warns, which is what some of these programs are about.
        command = [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM), way]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        lines = (line for line in self.process.stdout if line.startswith("{"))  # its ranks say something too
        line = next(lines, "")
        return json.loads(line) if line else {"stderr": self.stderr()}

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()


@pytest.fixture
def run() -> Generator[Callable[[str], Controller]]:
    made: list[Controller] = []

    def start(way: str) -> Controller:
        made.append(Controller(way))
        return made[-1]

    yield start
    for controller in made:
        with controller.process:
            controller.process.kill()


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # whose new parent may be slow to look
    except psutil.NoSuchProcess:
        return True


WAYS = [
    ("wait", signal.SIGKILL, -9, ""),
    ("wait", signal.SIGTERM, -15, ""),
    ("return", None, 0, ""),
    ("sys.exit", None, 5, ""),
    ("raise", None, 1, "ValueError: the program failed\n"),
    ("_exit", None, 4, ""),
]


@pytest.mark.parametrize(("way", "signum", "code", "stderr"), WAYS)
def test_nothing_is_left(
    run: Callable[[str], Controller], until: Until, way: str, signum: int | None, code: int, stderr: str
):
    controller = run(way)
    pids = controller.hear()["pids"]
    assert len(pids) == 9  # six ranks, a spare, the zygote, and the child of a rank
    if signum is not None:
        controller.process.send_signal(signum)
    assert controller.process.wait(20) == code
    until(lambda: all(map(is_gone, pids)), seconds=10)
    said = controller.stderr()
    assert said == stderr or (stderr and said.endswith(stderr))


@pytest.mark.parametrize(("way", "signum", "code", "stderr"), WAYS)
def test_nothing_is_left_on_other_hosts(
    run: Callable[[str], Controller],
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    signum: int | None,
    code: int,
    stderr: str,
):
    monkeypatch.setenv("CONTROLLER_ENGINE", "hosts")
    controller = run(way)
    pids = controller.hear()["pids"]
    assert len(pids) == 11  # six ranks, two agents, two zygotes, and the child of a rank
    if signum is not None:
        controller.process.send_signal(signum)
    assert controller.process.wait(20) == code
    until(lambda: all(map(is_gone, pids)), seconds=10)
    said = controller.stderr()
    assert said == stderr or (stderr and said.endswith(stderr))


def test_a_forked_child_of_the_controller_keeps_nothing_alive(run: Callable[[str], Controller], until: Until):
    controller = run("fork")
    pids = controller.hear()["pids"]
    assert "belongs to the process that this one was forked from" in controller.hear()["error"]
    (child,) = {p.pid for p in psutil.Process(controller.process.pid).children()} - set(pids)
    try:
        controller.process.kill()
        controller.process.wait(20)
        until(lambda: all(map(is_gone, pids)), seconds=10)
        assert not is_gone(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_children_of_the_controller_leave_its_mesh_alone(run: Callable[[str], Controller]):
    controller = run("play")
    assert controller.hear() == {"done": False, "states": ["busy", "busy"], "own": 0}
    assert controller.process.wait(20) == 0
    assert controller.stderr() == ""


def test_nothing_is_left_when_the_zygote_went_first(run: Callable[[str], Controller], until: Until):
    controller = run("wait")
    pids = controller.hear()["pids"]
    (zygote,) = psutil.Process(controller.process.pid).children()
    zygote.kill()
    until(lambda: is_gone(zygote.pid))
    assert sum(map(is_gone, pids)) == 1
    controller.process.kill()
    until(lambda: all(map(is_gone, pids)), seconds=10)
