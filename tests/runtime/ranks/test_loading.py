"""What is imported once only is imported to its end: an interrupt waits for that, and for nothing else."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType

import pytest

from meshbook.runtime.ranks import interrupts
from meshbook.runtime.ranks.interrupts import Interrupts
from meshbook.runtime.ranks.loading import is_loading
from meshbook.runtime.wire import sigint


class Body(Loader):
    """Runs this in place of a module."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run

    def create_module(self, spec: ModuleSpec) -> None: ...

    def exec_module(self, module: ModuleType) -> None:
        self._run()


class InC(Body, ExtensionFileLoader):
    """The same, as if it was written in C."""


class Finder:
    """Finds one module."""

    def __init__(self, name: str, loader: Loader) -> None:
        self._spec = ModuleSpec(name, loader)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return self._spec if name == self._spec.name else None


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Loader], object]]:
    loaded: list[str] = []

    def load(name: str, loader: Loader) -> object:
        monkeypatch.setattr(sys, "meta_path", [Finder(name, loader), *sys.meta_path])
        loaded.append(name)
        return importlib.import_module(name)

    yield load
    for name in loaded:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "loader", "is_once"),
    [("of_a_user", Body, False), ("in_c", InC, True), ("numpy.in_python", Body, True), ("numpyish", Body, False)],
)
def test_what_is_loaded_once_only(
    load: Callable[[str, Loader], object], name: str, loader: type[Body], is_once: bool
) -> None:
    seen: list[bool] = []
    load(name, loader(lambda: seen.append(is_loading(sys._getframe()))))
    assert seen == [is_once]


@pytest.fixture
def installed() -> Iterator[Interrupts]:
    former, installed = sigint.handler(), Interrupts()
    installed.install()
    yield installed
    sigint.let(former)


@pytest.mark.skipif(os.name != "posix", reason="signals to a thread")
@pytest.mark.parametrize("is_traced", [False, True])
def test_an_interrupt_comes_when_it_has_been_loaded(
    installed: Interrupts, load: Callable[[str, Loader], object], *, is_traced: bool
) -> None:
    steps: list[str] = []
    tracer = (lambda *_: None) if is_traced else None

    def body() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("loaded")

    sys.settrace(tracer)
    try:
        with pytest.raises(KeyboardInterrupt), installed.open_for(7):
            load("in_c", InC(body))
            while True:  # where a debugger traces, it is struck again
                steps[1:] = ["went on"]
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)
    assert steps == ["loaded", "went on"][: 1 + is_traced] and "in_c" in sys.modules
    with installed.open_for(8):
        """What was put off is over."""


@pytest.mark.skipif(os.name != "posix", reason="signals to a thread")
def test_a_program_that_runs_as_it_is_imported_is_not_deaf(
    installed: Interrupts, load: Callable[[str, Loader], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_LONG", 0.0)

    def body() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

    with pytest.raises(KeyboardInterrupt), installed.open_for(7):
        load("in_c", InC(body))
