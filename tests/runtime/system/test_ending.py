"""How the main thread is made to end the program (what a program sees of it: `test_supervision`)."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from meshbook.runtime.system.ending import interrupt, place_of


def test_a_thread_that_misses_its_interrupt_gets_another(until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep, sent = threading.Lock(), list[int]()
    asleep.acquire()
    sleeper = threading.Thread(target=asleep.acquire)
    sleeper.start()
    until(lambda: (place := place_of(sleeper.ident or 0)[0]) is not None and place.f_code.co_name == "run")

    def kill(thread: int, signum: int) -> None:
        sent.append(thread)
        if len(sent) == 2:  # the first is lost
            asleep.release()

    monkeypatch.setattr(signal, "pthread_kill", kill)
    interrupt(sleeper.ident or 0)
    sleeper.join()
    assert sent == [sleeper.ident] * 2
