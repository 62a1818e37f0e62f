"""A grid of four ranks that all tests of a file compute on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import ProcMesh
from meshbook.runtime.session import ZYGOTE_MODULES
from tests.runtime.conftest import staged

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.runtime.conftest import Stage


@pytest.fixture(scope="module")
def zygote_modules() -> list[str]:
    """Here torch is imported by zygotes, and not by each rank."""
    return ZYGOTE_MODULES


@pytest.fixture(scope="package")
def _session() -> Generator[str]:
    """The engine of all files of this folder, whose zygote has torch."""
    with contextlib.contextmanager(staged)("local", ZYGOTE_MODULES) as (engine, _):
        yield engine


@pytest.fixture(scope="module")
def _processes(_session: str) -> Generator[tuple[str, dict[Any, Any]]]:
    """What a file shares ends with it."""
    shared: dict[Any, Any] = {}
    yield _session, shared
    for mesh in shared.values():
        mesh.stop().get(20)


@pytest.fixture
def grid(process_stage: Stage) -> ProcMesh:
    """Ranks `dp=2 tp=2`, with process groups."""
    return process_stage.shared(dp=2, tp=2)
