"""Processes that user code spawns on a rank: what has come to the rank by value comes to them, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spawned import SOURCE

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench


@pytest.mark.real
@pytest.mark.slow
def test_classes_and_functions_that_came_by_value_go_on_so(local: Bench) -> None:
    assert local.workers({"rank": 1}).do.call_one(SOURCE).get(60) == [42, 42, 42]
