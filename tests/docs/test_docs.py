"""The examples of the documentation run, and give what stands behind `# ->`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.real]

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("pages.py")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def wrong() -> dict[str, list[str]]:
    """What is wrong, by page. One process for all: it starts one zygote."""
    done = subprocess.run(
        [sys.executable, str(RUNNER), *map(str, PAGES)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert not done.stderr, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run_and_give_what_is_written(page: Path, wrong: dict[str, list[str]]) -> None:
    assert not wrong[str(page)], "\n".join(wrong[str(page)])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


def test_a_wrong_example_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n1 + 1  # -> 3\nprint('a', 1)  # -> a ...\n```\n```python\nnope\n```\n")
    done = subprocess.run([sys.executable, str(RUNNER), str(page)], capture_output=True, text=True, check=True)
    [first, second] = json.loads(done.stdout)[str(page)]
    assert first == "page.md:2: expected '3', found '2'"
    assert "page.md, block at line 5" in second and "NameError" in second
