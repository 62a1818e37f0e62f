"""The base of live widgets: messages both ways, a twin in every bundle, and a quiet end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.widgets.base import LiveWidget, harden, has_widgets
from tests.widgets.stages import Paper

VIEW = "application/vnd.jupyter.widget-view+json"


class Probe(LiveWidget):
    """Keeps what it sends and hears."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], list[bytes]]] = []
        self.heard: list[Mapping[str, Any]] = []
        super().__init__()

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self.sent.append((content, buffers))

    def on_message(self, message: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        self.heard.append(message)

    def twin(self) -> dict[str, str]:
        return {"text/plain": "the twin", "text/html": "<p>the twin</p>"}


def test_its_bundle_holds_the_view_and_the_twin_until_it_retires() -> None:
    probe = Probe()
    alive, _ = probe._repr_mimebundle_()
    assert alive.keys() == {VIEW, "text/plain", "text/html"} and alive[VIEW]["model_id"] == probe.model_id
    probe.retire()
    assert probe._repr_mimebundle_()[0] == probe.twin()


def test_retiring_leaves_the_twin_in_the_notebook_once() -> None:
    probe, stage = Probe(), Paper()
    probe.show(stage)
    probe.retire()
    probe.retire()
    _, *later = stage.shown
    assert later == [(probe.twin(), stage.ids[0], True)]
    assert probe.comm is None


def test_where_its_view_can_move_into_the_twin_the_file_has_the_twin_alone() -> None:
    probe, stage = Probe(), Paper()
    probe.show(stage)
    keep = {"content": {"data": {"method": "custom", "content": {"kind": "keep"}}}, "buffers": []}
    probe.comm.handle_msg(keep)
    probe.comm.handle_msg(keep)  # nothing new
    probe.show(stage)
    probe.retire()
    home = f'<meshbook-live data-home="{probe.home}"><p>the twin</p></meshbook-live>'
    first, second = stage.ids[0], stage.ids[2]
    assert [(data.get("text/html"), where) for data, where, _ in stage.shown] == [
        ("<p>the twin</p>", first),
        (home, first),
        (home, second),
        ("<p>the twin</p>", first),
        ("<p>the twin</p>", second),
    ]
    assert [VIEW in data for data, _, _ in stage.shown] == [True, False, False, False, False]
    assert probe.heard == []


def test_messages_go_both_ways_until_it_retires() -> None:
    probe = Probe()
    assert probe.tell("frame", [b"ab"], n=1)
    assert probe.sent == [({"kind": "frame", "n": 1}, [b"ab"])]
    message = {"content": {"data": {"method": "custom", "content": {"kind": "hello"}}}, "buffers": []}
    probe.comm.handle_msg(message)
    assert probe.heard == [{"kind": "hello"}]
    probe.retire()
    assert not probe.tell("frame")


def test_a_hardened_comm_takes_messages_where_the_frontend_sends_them_and_fires_no_events() -> None:
    heard: list[object] = []
    comm = SimpleNamespace(
        _reply_subshell_for=lambda data, default: "elsewhere",
        _msg_callback=heard.append,
        handle_msg=lambda message: pytest.fail("the events of a cell were fired"),
    )
    harden(comm)
    assert comm._reply_subshell_for({}, "asked for") == "asked for"
    comm.handle_msg("click")
    assert heard == ["click"]


def test_a_comm_of_another_make_stays_as_it_is() -> None:
    comm = SimpleNamespace(send=print)
    harden(comm)
    assert vars(comm) == {"send": print}


@pytest.mark.parametrize(("content", "is_seen"), [({"allow_stdin": False}, False), ({"allow_stdin": True}, True)])
def test_an_executed_notebook_has_nobody_who_sees_widgets(content: dict[str, bool], is_seen: bool) -> None:
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda: {"content": content}))
    assert has_widgets(shell) is is_seen
    assert not has_widgets(SimpleNamespace())
