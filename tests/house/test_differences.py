"""Where a test is left out on an engine, the page on hosts tells its users what differs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PAGES = {"hosts": "hosts.md", "monarch": "hosts.md"}


def differences(root: Path) -> Iterator[tuple[str, str, str]]:
    """Each mark `differs` in the tests: its place, the engine, and the reason."""
    for file in sorted((root / "tests").rglob("*.py")):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "pytest.mark.differs" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.differs":
                engine, reason = (ast.literal_eval(each) for each in node.args)
                yield f"{file.name}:{node.lineno}", engine, reason


def test_each_reason_stands_in_the_page(root: Path) -> None:
    found = list(differences(root))
    assert found, "no test is marked with `differs` any more: take the mark away"
    for place, engine, reason in found:
        page = " ".join((root / "docs" / PAGES[engine]).read_text().split()).lower()
        assert reason.lower() in page, f"{place}: docs/{PAGES[engine]} does not say that {reason!r}"
