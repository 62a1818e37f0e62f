"""The debugger of a rank without a rank: what it does where it is cut off."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshbook.kernel.debug.debugger import Debugger
from meshbook.kernel.debug.dialog import Dialog
from meshbook.kernel.debug.events import Event, Stop, Went
from meshbook.kernel.debug.rank_pdb import RankPdb
from meshbook.kernel.ranks.shell import QuietShell


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


@pytest.mark.parametrize("left_at", [6, 7])
def test_an_error_is_not_looked_at_where_the_user_has_left_before_this_rank_came_to_it(left_at: int) -> None:
    """The seventh is left on all ranks as one of them asks; the sixth was another."""
    told: list[Event] = []

    def tell(event: Event) -> None:
        told.append(event)
        if isinstance(event, Stop):
            debugger.leave(7)

    place = SimpleNamespace(rank=0, shield=nullcontext, streams=SimpleNamespace(flush=lambda: None), awaited=None)
    debugger = Debugger(cast(Any, place), tell)
    try:
        raise ValueError("to be looked at")
    except ValueError as raised:
        error = raised
    debugger.leave(left_at)
    debugger.begin(7)
    debugger.post_mortem(error)
    assert [type(event) for event in told] == ([Stop, Went] if left_at == 6 else [])
