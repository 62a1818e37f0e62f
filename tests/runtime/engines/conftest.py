"""Engines of a test's own: for what is about the zygote, or about agents, themselves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime.engines.hosts import HostsEngine
from meshbook.runtime.engines.launch import CommandLauncher
from meshbook.runtime.engines.local import LocalEngine
from meshbook.runtime.wire.reactor import Reactor

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench


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
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


@pytest.fixture
def own(reactor: Reactor, make: Callable[..., Bench]) -> Bench:
    """Two hosts of a test's own, which it may end."""
    return make(["left", "right"])


@pytest.fixture
def make(reactor: Reactor) -> Generator[Callable[..., Bench]]:
    """Makes engines of hosts that end with the test."""
    from tests.runtime.conftest import PRELOAD, Bench

    made: list[Bench] = []

    def create(names: list[str], command: str = "", **options: Any) -> Bench:
        engine = HostsEngine(reactor, CommandLauncher(reactor, command, names), len(names), PRELOAD, **options)
        made.append(Bench(reactor, engine))
        return made[-1]

    yield create
    for bench in made:
        bench.close()
        bench.engine.close()
