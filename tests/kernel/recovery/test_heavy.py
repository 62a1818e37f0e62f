"""Which packages a restart is advised to have imported before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from meshbook.kernel.recovery import heavy
from meshbook.kernel.recovery.heavy import HEAVY_SECONDS, heavy_imports
from meshbook.runtime.engines.spec import RankSpec
from meshbook.runtime.session import specs_for

SLOW = [("import heavy, torch, mine\nfrom heavy.sub import x", HEAVY_SECONDS)]


@pytest.fixture
def spec(tmp_path: Path) -> RankSpec:
    """A rank that finds one package that is installed, and one that is being written."""
    for folder, package in ("lib/site-packages", "heavy"), ("work", "mine"):
        (tmp_path / folder / package).mkdir(parents=True)
        (tmp_path / folder / package / "__init__.py").touch()
    found = specs_for({"dp": 2})[0]
    return replace(found, path=(str(tmp_path / "lib/site-packages"), str(tmp_path / "work"), *sys.path))


def test_what_slow_cells_import_of_installed_packages_is_named(spec: RankSpec) -> None:
    assert heavy_imports(SLOW, spec) == ("heavy", "heavy.sub.x")
    assert heavy_imports([(SLOW[0][0], HEAVY_SECONDS / 2)], spec) == ()


def test_those_that_were_imported_before_the_fork_are_not(spec: RankSpec) -> None:
    assert heavy_imports(SLOW, replace(spec, preload=("heavy", "heavy.sub.x"))) == ()


def test_nothing_is_advised_where_ranks_are_not_forked(spec: RankSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy, "why_exec", lambda: "forking is not safe here")
    assert heavy_imports(SLOW, spec) == ()
