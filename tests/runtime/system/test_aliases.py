"""Names that a program has given to our modules."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from meshbook import runtime
from meshbook.runtime import Actor, endpoint
from meshbook.runtime.spmd import SPMDActor
from meshbook.runtime.system.aliases import assume, given


def _monarch() -> dict[str, Any]:
    """Modules as a program makes them that is to run here unchanged."""
    monarch = ModuleType("monarch")
    inner: Any = ModuleType("monarch._rust.supervision")
    inner.SupervisionError = runtime.SupervisionError
    inner.ProcId = str
    inner.answer = 42
    monarch.spmd = runtime.spmd  # pyright: ignore[reportAttributeAccessIssue]
    return {"monarch": monarch, "monarch.actor": runtime, "monarch._rust.supervision": inner}


def test_what_a_program_calls_our_modules() -> None:
    bare: dict[str, Any] = {"bare": ModuleType("bare"), "none": None, "json": sys.modules["json"]}
    bare["bare"].text = str
    assert given({**bare, **_monarch()}) == {
        "monarch": "",
        "monarch:spmd": "meshbook.runtime.spmd:",
        "monarch.actor": "meshbook.runtime",
        "monarch._rust.supervision": "",
        "monarch._rust.supervision:SupervisionError": "meshbook.runtime.errors:SupervisionError",
        "monarch._rust.supervision:ProcId": "builtins:str",
    }
    assert given({"meshbook.runtime": runtime}) == {}


def test_another_process_has_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("monarch", "monarch.actor", "monarch._rust.supervision"):
        monkeypatch.setitem(sys.modules, name, ModuleType("to be made again"))
        del sys.modules[name]
    assume(given(_monarch()))
    monarch: Any = sys.modules["monarch"]
    assert monarch.actor is sys.modules["monarch.actor"] is runtime
    assert monarch.spmd.SPMDActor is SPMDActor
    assert sys.modules["monarch._rust.supervision"].SupervisionError is runtime.SupervisionError


def test_modules_of_python_with_hooks_of_ours_are_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "breakpointhook", given)
    assert given({"sys": sys, "zipimport": sys.modules["zipimport"]}) == {}


def test_what_a_module_of_a_rank_is_called_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs: Any = ModuleType("theirs")
    monkeypatch.setitem(sys.modules, "theirs", theirs)
    assume({"theirs": "", "theirs:Extent": "meshbook.runtime.shape:Extent"})
    assert sys.modules["theirs"] is theirs
    assert not hasattr(theirs, "Extent")


class Importer(Actor):
    @endpoint
    def imports(self) -> tuple[bool, int]:
        import monarch.actor as theirs  # pyright: ignore[reportMissingImports]
        from monarch.actor import current_rank  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

        return theirs.Actor is Actor, current_rank().rank  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.slow
def test_ranks_import_our_modules_by_these_names(process_stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in _monarch().items():
        monkeypatch.setitem(sys.modules, name, module)
    importers = process_stage.spawn(Importer, on=process_stage.procs({"r": 2}))
    assert importers.imports.call().get(20).values() == [(True, 0), (True, 1)]
