"""Whoever is stopped, the client shows one of them, and hears whenever what it lists is no longer so."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from meshbook.kernel.panel.floor import Floor, Hide, Show, Told

WHO = st.integers(0, 4)


class Client(RuleBasedStateMachine):
    """JupyterLab's panel: it lists what was stopped when it last heard that one has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.floor = Floor()
        self.shown: int | None = None
        self.listed: set[int] = set()
        self.steps = False

    def hear(self, told: Told) -> None:
        for each in told:
            if isinstance(each, Hide):
                assert each.adapter == self.shown
                self.shown, self.listed = None, set()
            else:
                assert each.is_new == (each.adapter != self.shown)
                self.shown, self.listed = each.adapter, set(self.floor.held)

    @rule(who=WHO)
    def stop(self, who: int) -> None:
        self.hear(self.floor.stopped(who))

    @rule(who=WHO)
    def go(self, who: int) -> None:
        self.hear(self.floor.went(who))

    @rule(who=WHO)
    def end(self, who: int) -> None:
        self.hear(self.floor.left(who))

    @rule(who=WHO)
    def look(self, who: int) -> None:
        self.hear(self.floor.looked(who))
        assert who not in self.floor.held or self.shown == who

    @rule(is_step=st.booleans())
    def command(self, is_step: bool) -> None:
        if self.shown is not None:
            who, self.steps = self.shown, is_step
            self.floor.commanded(who, is_step=is_step)
            self.hear(self.floor.went(who))
            assert self.shown != who

    @rule()
    def wait(self) -> None:
        self.steps = False
        self.hear(self.floor.waited())

    @invariant()
    def the_client_lists_what_is_stopped(self) -> None:
        assert self.shown == self.floor.shown
        if self.shown is None:
            assert not self.floor.held or self.steps
        else:
            assert self.shown in self.floor.held and self.listed == self.floor.held


TestClient = Client.TestCase


def test_what_steps_keeps_the_floor_unless_the_user_looks_elsewhere() -> None:
    floor = Floor()
    assert floor.stopped(1) == [Show(1, is_new=True)]
    assert floor.stopped(2) == [Show(1, is_new=False)]
    floor.commanded(1, is_step=True)
    assert floor.went(1) == [Hide(1)]
    assert floor.stopped(3) == []
    assert floor.waited() == [Show(2, is_new=True)]
    assert floor.stopped(1) == [Show(1, is_new=True)]
    floor.commanded(1, is_step=True)
    assert floor.went(1) + floor.waited() == [Hide(1), Show(2, is_new=True)]
    assert floor.looked(3) == [Show(3, is_new=True)]
    assert floor.stopped(1) == [Show(3, is_new=False)]
