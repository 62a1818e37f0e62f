"""Engines of a test's own: for what is about the zygote itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from meshbook.runtime.engines.local import LocalEngine
from meshbook.runtime.wire.reactor import Reactor


@pytest.fixture
def new_engine(reactor: Reactor) -> Generator[Callable[..., LocalEngine]]:
    """Makes local engines whose zygotes import what the test says; all end with it."""
    with contextlib.ExitStack() as stack:

        def create(*preload: str) -> LocalEngine:
            engine = LocalEngine(reactor, preload)
            stack.callback(engine.close)
            return engine

        yield create


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules a zygote started in this test can import."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path
