"""Ranks share the cores: also in threads of actors, and in those that user code starts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import default_bootstrap_cmd
from meshbook.runtime.engines.local import LocalEngine
from meshbook.runtime.system.cores import cores
from tests.runtime.crowded import AsyncCrowd, Crowd, say

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from meshbook.runtime.wire.reactor import Reactor
    from tests.runtime.conftest import Bench, Stage

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def engines(reactor: Reactor, local_engine: LocalEngine) -> Generator[dict[str, LocalEngine]]:
    """For each way to start ranks, an engine to which nobody has said with how many threads to compute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        forking = LocalEngine(reactor, ["torch", "meshbook.runtime.ranks.worker"])
        forking.warm()
    yield {"fork": forking, "exec": local_engine}  # who is not forked imports torch by itself
    forking.close()


@pytest.mark.parametrize("how", ["fork", "exec"])
@pytest.mark.parametrize("size", [1, 2])
def test_threads_do_not_take_the_cores_of_other_ranks(
    local: Bench, engines: dict[str, LocalEngine], how: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would take all of them: a product of small matrices then takes ten thousand times as long."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    local.engine = engines[how]
    mesh = local.up({"rank": size}, how)
    share = max(1, cores() // size)
    crowd = mesh.spawn("crowd", Crowd)
    assert crowd.counts.call().get(30).values() == [[share, share, 1]] * size
    assert crowd.setting.call().get(10).values() == ["1"] * size
    assert mesh.spawn("late", Crowd).own.call().get(30).values() == [share] * size
    assert mesh.spawn("async", AsyncCrowd).own.call().get(30).values() == [share] * size


@pytest.mark.parametrize(("how", "said"), [("fork", cores() + 1), ("exec", cores() + 2)])
def test_who_says_with_how_many_threads_to_compute_has_it_so(
    local: Bench, new_engine: Callable[..., LocalEngine], how: str, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(said))
    if how == "fork":
        local.engine = new_engine("torch", "meshbook.runtime.ranks.worker")
    assert local.up({"rank": 1}, how).spawn("crowd", Crowd).counts.call_one().get(30) == [said] * 3


# 1 is also what each rank is told of OpenMP when nobody has said anything.
@pytest.mark.parametrize(
    ("variable", "said"), [("OMP_NUM_THREADS", 1), ("OMP_NUM_THREADS", cores() + 1), ("MKL_NUM_THREADS", cores() + 1)]
)
def test_a_bootstrap_may_say_it_too(
    process_stage: Stage, leaks: Any, monkeypatch: pytest.MonkeyPatch, said: int, variable: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    command = default_bootstrap_cmd().with_env({variable: str(said)})
    by_command = process_stage.procs({"rank": 1}, bootstrap_command=command)
    by_itself = process_stage.procs({"rank": 1}, bootstrap=partial(say, variable, said))
    for procs in (by_command, by_itself):
        crowd = procs.spawn("crowd", Crowd)
        assert crowd.counts.call_one().get(30)[0] == said
        assert crowd.setting.call_one().get(10) == (str(said) if variable == "OMP_NUM_THREADS" else "1")
    leaks.allow_what_stands()  # ranks with a command that says it have a zygote of their own
