"""A dashboard of 1,024 ranks, four times a second: what it costs the kernel, and how many bytes it sends.

The ranks are made up, one number of many changing at each look, so that only the dashboard is measured; what looking at
real processes costs is measured beside it, on as many looks at our own.
"""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any

from measure import Row, check

from meshbook.kernel.dashboard.facts import RankFacts
from meshbook.kernel.dashboard.frames import delta, pack
from meshbook.kernel.dashboard.survey import CHECKUP_A_RANK
from meshbook.runtime.controller.meters import Meters
from meshbook.runtime.system.proc import stat_of
from meshbook.runtime.wire.messages import Metered
from meshbook.widgets.dashboard import Dashboard
from meshbook.widgets.hands import Deed

AXES = {"dp": 16, "tp": 64}
HZ = 4.0


class MadeUp:
    """A source of facts that no process is behind: a busy mesh with some ranks that wait, and a few in trouble."""

    def __init__(self, axes: Mapping[str, int] = AXES, churn: float = 1.0) -> None:
        self.axes = dict(axes)
        self.facts = [RankFacts(rank, "busy", time.monotonic()) for rank in range(math.prod(axes.values()))]
        self.finding = self.late = self.metric = ""
        self.is_over = False
        self.meters = Meters(len(self.facts))
        self._churn = churn
        self._random = random.Random(7)
        self._step = 0
        for facts in self.facts:
            facts.pid, facts.place, facts.cell, facts.run = 4000 + facts.rank, "cell 7 line 12", "cell 7", 9
            facts.memory, facts.cpu, facts.loop, facts.total = 1 << 30, 0.9, "step", 1000

    def refresh(self, now: float) -> None:
        self._step += 1
        for facts in self.facts:
            if self._random.random() < self._churn:
                facts.cpu = min(max((facts.cpu or 0.0) + self._random.gauss(0, 0.05), 0.3), 1.0)
                facts.memory = (facts.memory or 0) + (self._random.randrange(3) << 22)
                facts.done, facts.rate = self._step, 3.2
                facts.metric = self.loss(facts.rank)

    def report(self, ranks: int) -> None:
        """So many ranks report a loss."""
        for rank in range(ranks):
            point = (float(self._step), self.loss(rank), time.time())
            self.meters.take(rank, Metered({"loss": (point,)}))

    def loss(self, rank: int) -> float:
        return 2 * math.exp(-self._step / 60) + 0.1 * self._random.random() + rank / 20_000

    def trouble(self, now: float) -> None:
        """Most wait for one; some are dead, failed, stopped."""
        for facts in self.facts:
            facts.state, facts.waiting, facts.waiting_since = "waiting", "all_reduce", now - 42
        behind = self.facts[37]
        behind.state, behind.waiting, behind.place = "busy", "", "cell 7 line 9"

    def close(self) -> None: ...


class Nobody:
    """Does nothing that is clicked."""

    def do(self, action: str, ranks: object, runs: object) -> Deed:
        return Deed(f"{action} does nothing here")


def made_up_dashboard(axes: Mapping[str, int] = AXES, hz: float = HZ, churn: float = 1.0) -> Dashboard:
    """A dashboard without a mesh, which is looking already once a view says hello."""
    source = MadeUp(axes, churn)
    dashboard = Dashboard("made up", axes, source, source.meters, Nobody())
    dashboard.pulse.hz = hz
    dashboard.pulse.start()
    return dashboard


class Wire:
    """Counts what a dashboard sends, packed as ipykernel does: JSON with a signature's worth of headers."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def send(self, content: Any, buffers: Any) -> None:
        text = json.dumps({"method": "custom", "content": content})
        self.sizes.append(len(text) + sum(map(len, buffers)) + 800)


def measure(is_quick: bool) -> Iterator[Row]:
    looks = 40 if is_quick else 400
    for churn, what in ((1.0, "every rank changes"), (0.1, "one in ten changes")):
        source = MadeUp(churn=churn)
        dashboard, wire = Dashboard("made up", AXES, source, source.meters, Nobody()), Wire()
        dashboard.send = wire.send
        spent: list[float] = []
        for look in range(looks):
            source.refresh(0.0)
            if look % 4 == 0:
                source.report(256)
            started = time.thread_time()
            dashboard.on_look(source.facts, look / HZ)
            spent.append(time.thread_time() - started)
        check(dashboard.frame == pack(source.facts), "the frame is not what the facts are")
        check(delta(dashboard.frame, pack(source.facts)) == b"", "a delta of nothing is not empty")
        share = 100 * statistics.mean(spent) * HZ
        yield Row(
            f"dashboard of 1,024 ranks, {what}", f"{1e3 * statistics.mean(spent):.2f} ms a look", "", share, "%", 2
        )
        yield Row("  bytes a look", "", "", sum(wire.sizes) / looks / 1024, "KiB", 12)
    started = time.thread_time()
    for _ in range(1024):
        check(stat_of(os.getpid()) is not None, "our own process is gone")
    share = 100 * (time.thread_time() - started) / (1024 * CHECKUP_A_RANK)
    yield Row("  looking at 1,024 processes, calmly", "", "", share, "% more", 2)
