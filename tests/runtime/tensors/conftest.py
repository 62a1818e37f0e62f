"""A grid of four ranks that all tests of a file compute on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import ProcMesh
from meshbook.runtime.session import ZYGOTE_MODULES
from tests.runtime.conftest import staged

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.runtime.conftest import Stage


@pytest.fixture(scope="module")
def _processes() -> Generator[tuple[str, dict[Any, Any]]]:
    """Here torch is imported once a file, and not by each rank."""
    yield from staged("local", ZYGOTE_MODULES)


@pytest.fixture
def grid(process_stage: Stage) -> ProcMesh:
    """Ranks `dp=2 tp=2`, with process groups."""
    return process_stage.shared(dp=2, tp=2)
