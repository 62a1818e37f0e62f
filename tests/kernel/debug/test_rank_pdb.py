"""The debugger of a rank without a rank: what it does where it is cut off."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from meshbook.kernel.debug.dialog import Dialog
from meshbook.kernel.debug.events import Event
from meshbook.kernel.debug.rank_pdb import RankPdb
from meshbook.kernel.shell import QuietShell


class Cut(RankPdb):
    """Is interrupted while it shows where it stops."""

    def print_stack_entry(self, *_: Any, **__: Any) -> None:
        raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def shell() -> Iterator[None]:
    """Without one, IPython's debugger would make a shell for a terminal."""
    QuietShell.instance()
    yield
    QuietShell.clear_instance()


def test_an_interrupt_before_the_first_prompt_is_raised_in_the_users_code() -> None:
    told: list[Event] = []
    debugger = Cut(Dialog(1, "live", told.append, lambda: 0))
    tracer = sys.gettrace()
    try:
        with pytest.raises(KeyboardInterrupt):
            debugger.stop_at(sys._getframe(), [])
    finally:
        sys.settrace(tracer)
    assert not debugger.is_tracing and [type(each).__name__ for each in told] == ["Went"]
