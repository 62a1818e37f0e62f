"""A short run of chaos; `make chaos` is the long one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 3])
def test_nothing_hangs_nothing_is_lost_nothing_is_left(seed: int) -> None:
    """In a process of its own: it stops itself, and takes no press of the stop button from pytest."""
    command = [sys.executable, "-m", "tests.chaos", "--seed", str(seed), "--steps", "60", "--ranks", "4"]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"seed {seed}: well")
