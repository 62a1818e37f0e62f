"""Which modules have changed since they were imported."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshbook.kernel.sources.editions import Editions


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("edition_"):
            del sys.modules[name]


def write(path: Path, text: str, at: float) -> None:
    path.write_text(text)
    os.utime(path, (at, at))


def test_what_changed_after_it_was_imported_is_stale(folder: Path) -> None:
    editions = Editions()
    write(folder / "edition_a.py", "x = 1\n", 1e9)
    write(folder / "edition_b.py", "x = 1\n", 1e9)
    importlib.import_module("edition_a")
    importlib.import_module("edition_b")
    editions.look()
    assert editions.stale() == {}
    write(folder / "edition_a.py", "x = 2\n", 1.1e9)
    editions.look()
    assert editions.stale() == {"edition_a": 1e9}
    (folder / "edition_a.py").unlink()
    assert editions.stale() == {}, "what is gone cannot be loaded"


def test_what_is_installed_or_was_there_before_is_not_looked_at(folder: Path) -> None:
    write(folder / "edition_c.py", "x = 1\n", 1e9)
    importlib.import_module("edition_c")
    editions = Editions()
    sys.modules.pop("colorsys", None)
    importlib.import_module("colorsys")
    editions.look()
    write(folder / "edition_c.py", "x = 2\n", 1.1e9)
    assert editions.stale() == {}
