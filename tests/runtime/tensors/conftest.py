"""A grid of four ranks that all tests of a file compute on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from meshbook.runtime import ProcMesh

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


@pytest.fixture
def grid(process_stage: Stage) -> ProcMesh:
    """Ranks `dp=2 tp=2`, with process groups."""
    return process_stage.shared(dp=2, tp=2)
