"""Modules that start processes as they are imported: refused where a rank imports them, which would never end."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from meshbook.runtime.system.unguarded import refuse_unguarded
from meshbook.runtime.wire import codec

UNGUARDED = "from meshbook.runtime import this_host\nclass Thing: pass\nprocs = this_host().spawn_procs({'gpus': 1})\n"


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[codec.Encoded]:
    """A class, pickled by the name of its module, which is not loaded any more."""
    name = "unguarded_module"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{name}.py").write_text(UNGUARDED.partition("procs")[0])
    module: ModuleType = importlib.import_module(name)
    encoded = codec.encode(module.Thing)
    del sys.modules[name]
    (tmp_path / f"{name}.py").write_text(UNGUARDED)
    yield encoded
    sys.modules.pop(name, None)


def test_a_module_that_is_imported_for_what_is_unpickled_starts_nothing(thing: codec.Encoded) -> None:
    with pytest.raises(
        codec.DecodeError, match=r'unguarded_module starts processes .* under `if __name__ == "__main__":`'
    ):
        codec.decode(thing.head, thing.buffers)


def test_who_starts_processes_otherwise_is_let(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_unguarded()
    (tmp_path / "guarded_by_nobody.py").write_text(
        "from meshbook.runtime.system.unguarded import refuse_unguarded as r\nr()"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.import_module("guarded_by_nobody").r is refuse_unguarded
    del sys.modules["guarded_by_nobody"]


def test_what_is_unpickled_by_a_function_may_start_processes() -> None:
    """Not while a module is imported: a class that does it as it is made anew knows what it does."""
    assert codec.decode(*_pickled_call()) is None


def _pickled_call() -> tuple[bytes, list[memoryview]]:
    encoded = codec.encode(_Calls())
    return encoded.head, [memoryview(each) for each in encoded.buffers]


class _Calls:
    def __reduce__(self) -> object:
        return refuse_unguarded, ()
