"""Spans and meters: OpenTelemetry's where a program has it, and nothing where it has not."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from meshbook.runtime import Actor, endpoint, get_meter, span, traced, tracing

from .conftest import Stage

Spans = list[tuple[str, dict[str, object]]]


def fake_telemetry() -> tuple[dict[str, ModuleType], Spans]:
    """As much of OpenTelemetry's interface as is used; what it is told is kept."""
    ended: Spans = []

    class Tracer:
        @contextmanager
        def start_as_current_span(self, name: str, attributes: dict[str, object]) -> Generator[None]:
            try:
                yield
            finally:
                ended.append((name, attributes))

    trace: Any = ModuleType("opentelemetry.trace")
    trace.get_tracer = lambda scope: Tracer() if scope == tracing.SCOPE else None
    metrics: Any = ModuleType("opentelemetry.metrics")
    metrics.get_meter = lambda scope: ("meter", scope)
    package: Any = ModuleType("opentelemetry")
    package.trace, package.metrics = trace, metrics
    return {"opentelemetry": package, "opentelemetry.trace": trace, "opentelemetry.metrics": metrics}, ended


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Generator[Spans]:
    modules, ended = fake_telemetry()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    tracing._api.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield ended
    tracing._api.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    for name in ("opentelemetry.trace", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, None)  # to import it is an error
    tracing._api.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield
    tracing._api.cache_clear()  # pyright: ignore[reportPrivateUsage]


def test_a_block_is_a_span_with_its_attributes(spans: Spans) -> None:
    with span("load", shards=4):
        assert spans == []
    assert spans == [("load", {"shards": 4})]


def test_each_call_of_a_function_is_a_span(spans: Spans) -> None:
    @traced
    def train(x: int) -> int:
        return x + 1

    @traced(name="slow step")
    async def step(x: int) -> int:
        await asyncio.sleep(0)
        return x * 2

    assert (train(1), asyncio.run(step(2)), train.__name__) == (2, 4, "train")
    assert inspect.iscoroutinefunction(step)
    assert [name for name, _ in spans] == ["train", "slow step"]


def test_one_that_raises_ends_its_span(spans: Spans) -> None:
    @traced
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert [name for name, _ in spans] == ["fail"]


def test_the_meter_is_telemetrys(spans: Spans) -> None:
    assert get_meter() == ("meter", tracing.SCOPE)


@pytest.mark.usefixtures("without")
def test_without_it_nothing_is_changed() -> None:
    def train() -> int:
        return 7

    assert traced(train) is train and traced(name="x")(train) is train
    with span("load", shards=4):
        get_meter().create_histogram("seconds", unit="s").record(0.5)


class Worker(Actor):
    """Traces itself in its own process."""

    @endpoint
    def trace(self) -> Spans:
        modules, ended = fake_telemetry()
        sys.modules.update(modules)
        tracing._api.cache_clear()  # pyright: ignore[reportPrivateUsage]
        with span("step"):
            pass
        return ended


def test_a_span_says_which_actor_it_is_of(process_stage: Stage) -> None:
    workers = process_stage.procs({"r": 2}).spawn("workers", Worker)
    own = {"meshbook.actor": "workers"}
    assert workers.trace.call().get(20).values() == [[("step", {**own, "meshbook.rank": rank})] for rank in range(2)]
