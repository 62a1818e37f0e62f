"""The scripts of the widgets: their pure functions under node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = sorted(Path(__file__).parent.glob("*.test.mjs"))


@pytest.mark.slow
@pytest.mark.parametrize("path", TESTS, ids=[path.name for path in TESTS])
def test_script(path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    done = subprocess.run([node, "--test", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
