"""Ranks share the cores: also in threads of actors, and in those that user code starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from meshbook.runtime.cores import cores
from tests.runtime.crowded import AsyncCrowd, Crowd

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshbook.runtime.engines.local import LocalEngine
    from tests.runtime.conftest import Bench

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize("how", ["fork", "exec"])
@pytest.mark.parametrize("size", [1, 2])
def test_threads_do_not_take_the_cores_of_other_ranks(
    local: Bench, new_engine: Callable[..., LocalEngine], how: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would take all of them: a product of small matrices then takes ten thousand times as long."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    local.engine = new_engine("torch", "meshbook.runtime.ranks.worker")
    mesh = local.up({"rank": size}, how)
    share = max(1, cores() // size)
    crowd = mesh.spawn("crowd", Crowd)
    assert crowd.counts.call().get(30).values() == [[share, share, 1]] * size
    assert crowd.setting.call().get(10).values() == ["1"] * size
    assert mesh.spawn("late", Crowd).own.call().get(30).values() == [share] * size
    assert mesh.spawn("async", AsyncCrowd).own.call().get(30).values() == [share] * size
