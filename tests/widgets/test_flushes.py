"""Which streams are flushed before a display."""

from __future__ import annotations

import sys
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.widgets.flushes import flush_what_waits


class Stream(StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.num_flushed = 0

    def flush(self) -> None:
        self.num_flushed += 1


class KernelStream(Stream):
    """As those of ipykernel, whose other thread sends what was written."""

    def __init__(self) -> None:
        super().__init__()
        self._flush_pending = False

    def write(self, text: str) -> int:
        self._flush_pending = True
        return super().write(text)


class Publisher(SimpleNamespace):
    def _flush_streams(self) -> None:
        """As that of ipykernel."""
        sys.stdout.flush()
        sys.stderr.flush()

    def publish(self) -> None:
        self._flush_streams()


def streams(monkeypatch: pytest.MonkeyPatch) -> tuple[KernelStream, KernelStream]:
    """Put in the place of what is printed to. (No fixture: pytest sets both again before a test begins.)"""
    out, err = KernelStream(), KernelStream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    return out, err


def test_only_what_was_written_to_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    both, publisher = streams(monkeypatch), Publisher()
    flush_what_waits(publisher)
    publisher.publish()
    print("printed")
    publisher.publish()
    assert [stream.num_flushed for stream in both] == [1, 0]


def test_a_stream_of_others_is_always_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    streams(monkeypatch)
    other = Stream()
    monkeypatch.setattr(sys, "stdout", other)
    publisher = Publisher()
    flush_what_waits(publisher)
    publisher.publish()
    assert other.num_flushed == 1


def test_it_can_be_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    both, publisher = streams(monkeypatch), Publisher()
    undo = flush_what_waits(publisher)
    undo()
    undo()
    publisher.publish()
    assert [stream.num_flushed for stream in both] == [1, 1]


def test_other_publishers_stay_as_they_are() -> None:
    publisher: Any = SimpleNamespace()
    flush_what_waits(publisher)()
    assert vars(publisher) == {}
