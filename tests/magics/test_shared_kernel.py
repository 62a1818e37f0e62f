"""The kernel that many tests share is another one after a test that failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.magics import conftest
from tests.magics.front_end import Kernel


class Shared:
    """Stands for what pytest keeps of a fixture."""

    def __init__(self, scope: str, value: object) -> None:
        self.scope = scope
        self.cached_result = (value, None, None)
        self.is_finished = False

    def finish(self, _: object) -> None:
        self.is_finished = True


def _tear_down(has_failed: bool, *fixtures: Shared) -> list[bool]:
    stash = {conftest.HAS_FAILED: has_failed}
    item: Any = SimpleNamespace(stash=stash, _request=SimpleNamespace(_fixture_defs=dict(enumerate(fixtures))))
    steps = conftest.pytest_runtest_teardown(item)
    next(steps)
    with pytest.raises(StopIteration):
        next(steps)
    return [each.is_finished for each in fixtures]


@pytest.mark.parametrize("has_failed", [True, False])
def test_only_kernels_that_others_would_get_are_given_up_and_only_by_a_failure(has_failed: bool) -> None:
    kernel = object.__new__(Kernel)
    kept = [Shared("package", kernel), Shared("module", kernel), Shared("function", kernel), Shared("module", "local")]
    assert _tear_down(has_failed, *kept) == [has_failed, has_failed, False, False]
