"""The dashboard in marimo: the script of `notebooks/` in its own server, live, and a click while ranks work."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "notebooks" / "marimo_dashboard.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.browser,
    pytest.mark.skipif(importlib.util.find_spec("marimo") is None, reason="marimo is not installed"),
]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where the script runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "marimo", "run", str(SCRIPT), *options]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}/"
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url, timeout=5).close()
                break
            assert server.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
        yield url
    finally:
        started = psutil.Process(server.pid).children(recursive=True)
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(20)
        _, left = psutil.wait_procs(started, timeout=10)  # the mesh ends with the process that brought it up
        assert not left, left


def test_the_dashboard_is_live_and_hears_clicks(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    board = page.locator(".mbd")
    page.locator(".mbd[data-frame]").wait_for(timeout=60_000)
    board.get_by_text("busy").first.wait_for()
    board.locator(".mbd-grid").click(position={"x": 10, "y": 10})
    board.get_by_text("rank 0").first.wait_for()
    board.locator("[data-action=interrupt]").click()
    board.get_by_text("interrupted: rank 0").wait_for()
    page.close()
