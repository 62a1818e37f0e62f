"""The bell of an in-memory link. What all kinds of links have in common: `test_link`."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator

import pytest

from meshbook.runtime.wire.inproc import InprocLink

Ends = tuple[InprocLink, InprocLink]


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = InprocLink.make(limit=1 << 30)
    yield near, far
    near.close()
    far.close()


def rings(link: InprocLink) -> bool:
    return bool(select.select([link], [], [], 0)[0])


def test_without_a_limit_nobody_waits_for_room_in_the_bell(ends: Ends) -> None:
    near, far = ends
    count = 70_000  # a pipe holds 65,536 bytes
    sender = threading.Thread(target=lambda: [near.send([b"x"]) for _ in range(count)], daemon=True)
    sender.start()
    sender.join(20)
    assert not sender.is_alive()
    assert sum(far.recv_nowait() is not None for _ in range(count + 1)) == count


def test_the_bell_rings_while_there_is_something_and_for_good_when_nothing_follows(ends: Ends) -> None:
    near, far = ends
    for _ in range(2):
        assert not rings(far)
        near.send([b"one"])
        near.send([b"two"])
        assert rings(far)
        far.recv()
        assert rings(far)
        far.recv()
    assert not rings(far)
    near.close()
    assert rings(far)
