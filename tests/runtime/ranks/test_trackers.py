"""What `multiprocessing` leaves in /dev/shm goes away with the rank that made it, however that ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime.healing import heal_roster
from meshbook.runtime.mesh import roster_of

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench

MAKE = """
import multiprocessing
from multiprocessing import resource_tracker
made = multiprocessing.get_context("spawn").Semaphore()
(made._semlock.name, resource_tracker._resource_tracker._pid)
"""


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /dev/shm")
def test_a_restarted_rank_leaves_no_semaphore(local: Bench, until: Callable[..., Any]) -> None:
    workers = local.workers({"rank": 1})
    name, tracker = workers.do.call_one(MAKE).get(30)
    file = Path("/dev/shm", f"sem.{name.strip('/')}")
    assert file.exists()
    try:
        until(lambda: os.getpgid(tracker) == tracker)  # it has begun
        assert heal_roster(roster_of(workers)).ranks == () and file.exists()
        heal_roster(roster_of(workers), [0])
        until(lambda: not file.exists())
    finally:
        file.unlink(missing_ok=True)
