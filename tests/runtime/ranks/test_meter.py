"""Bars are told until their end is."""

from __future__ import annotations

import pytest

from meshbook.runtime.ranks.meter import Bar, Meter
from meshbook.runtime.wire.messages import BarState, Metered


def test_a_loop_that_ends_while_its_news_are_taken_is_told_to_be_over(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Metered] = []
    meter = Meter(sent.append, num_ranks=1)
    news = Bar.news

    def and_ends(bar: Bar) -> BarState | None:
        told = news(bar)
        bar.is_over = True
        return told

    monkeypatch.setattr(Bar, "news", and_ends)
    meter.open_bar("epoch", 3)
    meter.close()
    meter.flush()
    meter.flush()
    assert [bar.is_over for message in sent for bar in message.bars] == [False, True]
