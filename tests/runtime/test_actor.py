"""Endpoints as they stand in their class."""

from __future__ import annotations

import pytest

from tests.runtime.troupe import Counter


def test_an_actor_cannot_call_its_endpoints_as_methods() -> None:
    with pytest.raises(TypeError, match="add is an endpoint, which its actor cannot call as a method: put what add"):
        Counter(1).add(1)  # type: ignore[operator]
    counter = Counter(1)
    assert type(counter).add.method(counter, 1) == 2  # type: ignore[attr-defined]
