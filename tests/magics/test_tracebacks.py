"""What a notebook shows of a call that fails, or of a wait that is stopped: the user's lines, and what to do next."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from meshbook.magics.tracebacks import up_to_call
from meshbook.runtime.future import Promise
from meshbook.runtime.shape import Shape
from meshbook.runtime.system import proc
from tests.magics.front_end import Kernel


def functions(trace: TracebackType | None) -> list[str]:
    names: list[str] = []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return names


def raised_by_us() -> TracebackType | None:
    try:
        Promise[int]().future.get(0.0)
    except TimeoutError as error:
        return error.__traceback__
    raise AssertionError


def test_our_frames_at_the_end_are_left_out() -> None:
    trace = raised_by_us()
    assert len(functions(trace)) > 2
    assert functions(up_to_call(trace)) == ["raised_by_us"]


def test_what_ours_have_called_of_a_library_is_left_out_with_them(tmp_path: Path) -> None:
    """Ctrl-C as we read a file, say."""
    (tmp_path / "odd").write_bytes(b"\xff")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(UnicodeDecodeError) as caught:
        patch.setattr(proc, "open", lambda _: (tmp_path / "odd").open(encoding="utf-8"), raising=False)
        proc.stat_of(1)
    names = functions(caught.value.__traceback__)
    assert names[-1] == "decode"
    assert functions(up_to_call(caught.value.__traceback__)) == names[:1]


def test_frames_by_which_torch_comes_to_us_are_left_out_with_ours() -> None:
    in_torch: dict[str, Any] = {"__name__": "torch._compile", "us": Promise[int]().future.get}
    exec("def inner(): us(0.0)", in_torch)
    with pytest.raises(TimeoutError) as caught:
        in_torch["inner"]()
    names = functions(caught.value.__traceback__)
    assert (names[1], functions(up_to_call(caught.value.__traceback__))) == ("inner", names[:1])


def test_our_frames_between_the_users_stay() -> None:
    class Index:
        def __index__(self) -> int:
            raise ValueError

    with pytest.raises(ValueError) as caught:
        Shape.row_major({"r": 2}).slice(r=Index())
    names = functions(caught.value.__traceback__)
    assert functions(up_to_call(caught.value.__traceback__)) == names
    assert (names[0], names[-1]) == (sys._getframe().f_code.co_name, "__index__")


def test_what_is_ours_alone_is_shown() -> None:
    trace = raised_by_us()
    assert trace is not None
    assert functions(up_to_call(trace.tb_next)) == functions(trace.tb_next)
    assert up_to_call(None) is None


ACTORS = """
import asyncio, os, time
import meshbook.runtime as rt
from meshbook import Actor, endpoint, this_host

class Patient(Actor):
    @endpoint
    def wait(self, file):
        print("waits", flush=True)
        while not os.path.exists(file):
            time.sleep(0.01)

    @endpoint
    def fail(self):
        return [][0]

class Unborn(Actor):
    def __init__(self):
        raise ValueError("not yet")

    @endpoint
    def idle(self): ...

vars(rt).pop("unhandled_fault_hook", None)  # another test's
patients = m.spawn("patients", Patient)
patients.initialized.get()
"""


@pytest.mark.slow
@pytest.mark.real
class TestInANotebook:
    @pytest.fixture(autouse=True)
    def _actors(self, kernel: Kernel) -> Iterator[None]:
        kernel.ok(ACTORS)
        yield
        kernel.ok("open('go', 'w').close()\npatients.wait.call('go').get()\nos.remove('go')")

    @pytest.mark.parametrize(
        ("call", "error"),
        [
            ("patients.fail.call().get()", "ActorError: Actor call patients.fail failed on rank"),
            ("await patients.fail.call()", "ActorError: Actor call patients.fail failed on rank"),
            ("patients.fail.call()\npatients.wait.call()", "TypeError: patients.wait() missing a required argument"),
            (
                "patients.wait.call('go').get(timeout=0.01)",
                "TimeoutError: no answer after 0.01",
            ),
            (
                "m.slice(dp=0).spawn('unborn', Unborn).idle.call().get()",
                "SupervisionError: Endpoint call unborn.idle()",
            ),
            ("m.spawn('more', Patient, 1)", "TypeError: Patient(): too many positional arguments"),
            ("m.spawn('more', dict)", "ValueError: <class 'dict'> is not an Actor"),
            ("patients.sleep", "AttributeError: Patient has no endpoint 'sleep'"),
            ("patients.wait('go')", "TypeError: patients.wait is an endpoint"),
            ("patients.wait.call_one('go')", "ValueError: call_one requires exactly 1 actor"),
            ("patients.slice(dp=9)", "IndexError: index out of range: dp=9"),
            ("m.procs.split(dp=('a', 'b'), a=7)", "ValueError: "),
            ("m.procs.slice(dp=0).stop()", "ValueError: ProcMesh is not owned"),
            ("patients.slice(dp=0).stop()", "NotImplementedError: Cannot call stop on an ActorMeshRef"),
        ],
    )
    def test_a_call_that_fails_ends_at_the_users_line(self, kernel: Kernel, call: str, error: str) -> None:
        shown = kernel.cell(call)
        assert shown.error.startswith(error)
        assert f"----> {call.count(chr(10)) + 1} {call.splitlines()[-1]}" in shown.traceback
        assert ".py" not in shown.traceback

    def test_a_wait_that_is_stopped_names_who_goes_on_and_what_ends_it(self, kernel: Kernel) -> None:
        for line in ("patients.wait.call('go').get()", "await patients.wait.call('go')"):
            cell = kernel.start(line)
            cell.until("waits")
            kernel.interrupt()
            stopped = cell.end()
            assert stopped.error.partition(":")[0] in ("KeyboardInterrupt", "CancelledError")
            assert ".py" not in stopped.traceback
            assert "actors on ranks 0-3 of m go on: `%mesh interrupt -m m` interrupts them" in stopped.stderr
            assert "in Patient.wait" in kernel.ok("%mesh stacks").text
            assert kernel.ok("%mesh interrupt -m m").text == "interrupted: ranks 0-3 in patients.wait\n"
            kernel.ok("await asyncio.gather(*patients.fail.stream(), return_exceptions=True)")
            assert "go on" not in kernel.cell("raise KeyboardInterrupt").stderr

    @pytest.mark.parametrize("adverb", ["call", "call_all", "choose", "stream", "broadcast"])
    def test_who_presses_stop_as_a_call_is_sent_sees_the_own_line_alone(self, kernel: Kernel, adverb: str) -> None:
        kernel.ok(
            "from meshbook.runtime import adverbs\nexec('def press(*_): raise KeyboardInterrupt', vars(adverbs))\n"
            "kept, adverbs.codec.quick = adverbs.codec.quick, adverbs.press"
        )
        stopped = kernel.cell(f"patients.fail.{adverb}()")
        kernel.ok("adverbs.codec.quick = kept\ndel adverbs.press")
        assert stopped.error.startswith("KeyboardInterrupt")
        assert f"----> 1 patients.fail.{adverb}()" in stopped.traceback
        assert ".py" not in stopped.traceback

    def test_who_presses_stop_as_it_is_shown_is_shown_it(self, kernel: Kernel) -> None:
        kernel.ok(
            "def press(*_): raise KeyboardInterrupt\n"
            "shows = get_ipython().InteractiveTB\nshows.structured_traceback = press"
        )
        shown = kernel.cell("patients.fail.call().get()")
        kernel.ok("del shows.structured_traceback")
        assert shown.error.startswith("ActorError: Actor call patients.fail failed on rank")
        for line in ("Traceback (most recent call last):", "ActorError: ", "IndexError: list index out of range"):
            assert line in shown.traceback
        assert "interactiveshell.py" not in shown.traceback

    def test_an_error_that_ours_handled_as_stop_was_pressed_is_not_shown(self, kernel: Kernel) -> None:
        kernel.ok(
            "from meshbook.runtime import adverbs\n"
            "exec('def press(*_):\\n try: {}.absent\\n except Exception: raise KeyboardInterrupt', vars(adverbs))\n"
            "kept, adverbs.codec.quick = adverbs.codec.quick, adverbs.press"
        )
        stopped = kernel.cell("patients.fail.call()")
        of_the_users = kernel.cell("try: {}.mine\nexcept AttributeError: patients.fail.call()")
        kernel.ok("adverbs.codec.quick = kept\ndel adverbs.press")
        assert "absent" not in stopped.traceback
        assert "AttributeError" not in stopped.traceback
        assert "object has no attribute 'mine'" in of_the_users.traceback
        assert "absent" not in of_the_users.traceback

    @pytest.mark.parametrize("made", ["spawn_procs()", "spawn_procs({'gpus': 2})"])
    def test_who_stops_the_making_of_processes_sees_the_own_line_alone(self, kernel: Kernel, made: str) -> None:
        cell = kernel.start(f"print('begins')\nwhile True:\n    this_host().{made}.stop().get()")
        cell.until("begins")
        kernel.interrupt()
        stopped = cell.end()
        assert stopped.error.startswith("KeyboardInterrupt")
        assert "----> 3 " in stopped.traceback
        assert ".py" not in stopped.traceback

    def test_the_same_failure_on_all_ranks_is_one_line(self, kernel: Kernel) -> None:
        cell = kernel.start("unborn = m.spawn('unborn', Unborn)\nimport time\nwhile True: time.sleep(0.01)")
        cell.until("unhandled fault: unborn on ranks 0-3: ValueError: not yet · cell")
        kernel.interrupt()
        cell.end()
        assert kernel.ok("unborn").results[0].startswith("ActorMesh unborn of Unborn")
        assert "ranks 0-3 failed" in kernel.ok("unborn").results[0]
