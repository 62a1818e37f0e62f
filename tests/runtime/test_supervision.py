"""Failures that nobody waits for: to the owner, on to its owner, and to the client."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

import meshbook.runtime
from meshbook.runtime import Channel, MeshFailure, SupervisionError, this_proc
from meshbook.runtime.healing import heal_roster
from meshbook.runtime.looks import actors_text
from meshbook.runtime.mesh import roster_of
from meshbook.runtime.supervision import fault_lines
from tests.runtime.families import AsyncFilial, AsyncOwner, Busy, Filial, Owner, Tidy
from tests.runtime.holders import AsyncHolder, Holder, Load, Weigher
from tests.runtime.troupe import Counter, Mortal, Trouble

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class TestOwners:
    @pytest.mark.parametrize("owner_class", [Owner, AsyncOwner])
    def test_one_that_handles_a_failure_lives_on(self, stage: Stage, owner_class: Any) -> None:
        port, told = Channel[Any].open()
        owner = stage.one(owner_class, "handle", port)
        kid = owner.adopt.call_one(Counter).get(10)
        kid.fail.broadcast("to nobody")
        mesh_name, report, text, _ = told.recv().get(10)
        assert mesh_name == "kid"
        assert "Counter kid" in report
        assert "and all its descendants have failed" in report
        assert "ValueError: to nobody" in report
        assert text.startswith("MeshFailure(mesh_name=kid, crashed_ranks=[0], event=Supervision event: ")
        with pytest.raises(SupervisionError, match="to nobody"):
            kid.add.call_one(1).get(10)
        assert owner.adopt.call_one(Counter).get(10).add.call_one(1).get(10) == 1

    @pytest.mark.parametrize("owner_class", [Owner, AsyncOwner])
    @pytest.mark.parametrize(
        ("verdict", "reason"),
        [("none", "to nobody"), ("raise", "the hook itself failed\nThis error"), ("exit", "3\nThis error")],
    )
    def test_one_that_does_not_fails_too(self, stage: Stage, owner_class: Any, verdict: str, reason: str) -> None:
        port, told = Channel[Any].open()
        owner = stage.one(owner_class, verdict, port)
        kid = owner.adopt.call_one(Counter).get(10)
        kid.fail.broadcast("to nobody")
        told.recv().get(10)
        failure = stage.faults.get(timeout=10)
        assert failure.mesh_name == owner_class.__name__.lower()
        assert reason in failure.report()
        assert "to nobody" in failure.report()
        with pytest.raises(SupervisionError, match=reason):
            owner.adopt.call_one(Counter).get(10)

    @pytest.mark.parametrize("owner_class", [Filial, AsyncFilial])
    def test_hooks_may_ask_those_of_their_parents(self, stage: Stage, owner_class: Any) -> None:
        port, told = Channel[Any].open()
        owner = stage.one(owner_class, port)
        owner.adopt.call_one(Counter).get(10).fail.broadcast("to nobody")
        assert told.recv().get(10) == ("supervise", False)
        owner.stop().get(10)
        assert told.recv().get(10) == ("cleanup", None)

    def test_a_busy_one_hears_of_a_failure_before_what_waits_for_it(self, stage: Stage) -> None:
        started, begun = Channel[Any].open()
        busy = stage.one(Busy)
        kid = busy.adopt.call_one(Counter).get(10)
        busy.hold.broadcast(started)
        release = begun.recv().get(10)
        busy.note.broadcast("waits")
        kid.fail.broadcast("to nobody")
        with pytest.raises(SupervisionError):
            kid.add.call_one(1).get(10)  # it has failed, and its owner was told
        release.send("held")
        assert busy.read.call_one().get(10) == ["held", "failure", "waits"]

    def test_a_failure_climbs_until_somebody_handles_it(self, stage: Stage) -> None:
        port, told = Channel[Any].open()
        top = stage.one(Owner, "handle", port)
        middle = top.adopt.call_one(Owner, "none").get(10)
        bottom = middle.adopt.call_one(Counter).get(10)
        bottom.fail.broadcast("from below")
        mesh_name, report, *_ = told.recv().get(10)
        assert (mesh_name, "from below" in report) == ("kid", True)
        assert len(top.reports.call_one().get(10)) == 1
        with pytest.raises(SupervisionError):
            middle.reports.call_one().get(10)

    def test_a_user_of_a_reference_is_not_its_owner(self, stage: Stage) -> None:
        counter = stage.one(Counter)
        owner = stage.one(Owner, "handle")
        owner.adopt.call_one(Counter).get(10)
        counter.fail.broadcast("mine")
        assert stage.faults.get(timeout=10).mesh_name == "counter"
        assert owner.reports.call_one().get(10) == []

    def test_an_owner_that_knows_of_a_failure_calls_none_of_the_others(self, stage: Stage) -> None:
        port, told = Channel[Any].open()
        owner = stage.one(Owner, "handle", port)
        kids = owner.adopt.call_one(Counter, procs=stage.shared(r=2)).get(10)
        kids.fail.broadcast("x", 1)
        told.recv().get(10)
        assert "ValueError: x" in str(owner.add.call_one().exception(10))
        assert kids.slice(r=0).add.call_one().get(10) == 1, "for it would wait for the other in a collective"

    def test_actors_that_die_take_what_they_own_with_them(self, stage: Stage) -> None:
        port, told = Channel[Any].open()
        owner = stage.one(Owner, "none")
        kid = owner.adopt.call_one(Tidy, port, "kid").get(10)
        assert kid.ok.call_one().get(10) == "ok"
        owner.adopt.broadcast(int)  # which raises, with nobody to be told
        assert told.recv().get(10) == ("kid", None)
        assert "is not an Actor" in stage.faults.get(timeout=10).report()
        with pytest.raises(SupervisionError, match="stopped"):
            kid.ok.call_one().get(10)

    def test_an_error_with_somebody_waiting_is_no_fault(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        for future in [counters.fail.call("x"), counters.slice(r=0).fail.choose("x"), *counters.fail.stream("x")]:
            assert isinstance(future.exception(10), ValueError)
        assert counters.add.call(1).get(10).values() == [1, 1]
        assert stage.faults.empty()

    def test_each_rank_that_fails_is_reported_once(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        for _ in range(3):
            counters.fail.broadcast("x")
        failures = [stage.faults.get(timeout=10) for _ in range(2)]
        with pytest.raises(SupervisionError):
            counters.add.call(1).get(10)
        assert (sorted(failure.ranks[0] for failure in failures), stage.faults.empty()) == ([0, 1], True)
        assert fault_lines(failures) == ["meshbook: unhandled fault: counter on ranks 0-1: ValueError: x"]
        assert "ranks 0-1 failed\n" in actors_text(counters)

    def test_of_what_was_stopped_after_it_failed_calls_tell_the_failure(self, stage: Stage) -> None:
        counters = stage.spawn(Counter)
        counters.fail.broadcast("x", 1)
        stage.faults.get(timeout=10)
        counters.stop().get(10)
        for future in [counters.add.call() for _ in range(20)]:  # rank 0, which had not failed, must not answer first
            assert "ValueError: x" in str(future.exception(10))
        assert "status: stopped" in str(counters.slice(r=0).add.call_one().exception(10))


class TestTheClient:
    def test_the_hook_is_looked_up_when_it_is_needed(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        port, told = Channel[Any].open()
        monkeypatch.setattr(meshbook.runtime, "unhandled_fault_hook", lambda failure: port.send(failure.report()))
        stage.one(Counter).fail.broadcast("assigned")
        assert "assigned" in told.recv().get(10)

    def test_a_hook_that_raises_is_called_once(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        seen: SimpleQueue[tuple[MeshFailure, threading.Thread]] = SimpleQueue()

        def hook(failure: MeshFailure) -> None:
            seen.put((failure, threading.current_thread()))
            raise ZeroDivisionError("in the hook")

        monkeypatch.setattr(meshbook.runtime, "unhandled_fault_hook", hook)
        counter = stage.one(Counter)
        counter.fail.broadcast("x")
        _, teller = seen.get(timeout=10)
        teller.join(10)  # its line is there before its thread is done with stderr, which this test takes away
        assert "fault_hook raised ZeroDivisionError('in the hook')" in capfd.readouterr().err
        assert seen.empty()

    def test_a_failure_is_read_not_sent(self) -> None:
        failure = MeshFailure("m", [1], "rank 1 is gone\nwith a story")
        assert repr(failure) == "MeshFailure(mesh_name=m, crashed_ranks=[1], event=Supervision event: rank 1 is gone)"
        assert (failure.mesh, str(failure).partition("event: ")[2]) == (None, f"{failure.report()})")
        with pytest.raises(TypeError, match="send its report"):
            pickle.dumps(failure)

    def test_a_rank_that_is_restarted_on_request_is_none(self, stage: Stage) -> None:
        procs = stage.procs({"r": 2})
        counters = stage.spawn(Counter, on=procs)
        counters.add.call(1).get(10)
        heal_roster(roster_of(procs), [1])
        assert counters.add.call(1).get(10).values() == [2, 1]
        roster_of(procs).kill([0])
        assert "rank 0" in stage.faults.get(timeout=10).report(), "the first that is told"

    @pytest.mark.parametrize("how", ["sleeps", "waits", "runs a loop"])
    def test_by_default_a_script_ends_with_code_1(self, tmp_path: Path, how: str) -> None:
        ways = {
            "sleeps": "time.sleep(30)",
            "waits": "a.wait.call_one().get(30)",
            "runs a loop": "asyncio.run(asyncio.sleep(30))",
        }
        script = tmp_path / "script.py"
        script.write_text(FAILING.format(way=ways[how]))
        began = time.monotonic()
        ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30)
        assert ended.returncode == 1, ended
        assert ended.stdout.split() == ["finally", "late", "early"]
        assert "unhandled fault: The actor <root>.<__main__.A a" in ended.stderr
        assert "ValueError: nobody waits" in ended.stderr
        assert ended.stderr.count("It goes on where __supervise__ of the owner returns True, or meshbook.runtime.") == 1
        assert "KeyboardInterrupt" not in ended.stderr
        assert time.monotonic() - began < 15


FAILING = """
import asyncio, atexit, time
atexit.register(print, "early", flush=True)
from meshbook.runtime import Actor, endpoint, this_host
from meshbook.runtime.controller import root
root.default_engine[:] = ["inproc"]
atexit.register(print, "late", flush=True)

class A(Actor):
    @endpoint
    def fail(self):
        raise ValueError("nobody waits")

class B(Actor):
    @endpoint
    async def wait(self):
        await asyncio.sleep(30)

procs = this_host().spawn_procs({{"r": 2}})  # of which both fail: the second does not interrupt how the first is told
a = procs.slice(r=0).spawn("b", B)
try:
    procs.spawn("a", A).fail.broadcast()
    {way}
finally:
    print("finally", flush=True)
"""


@pytest.mark.parametrize("holder_class", [Holder, AsyncHolder])
class TestMemory:
    def test_what_a_stopped_actor_held_is_free(self, stage: Stage, until: Any, holder_class: Any) -> None:
        weigher = stage.one(Weigher)
        holder = stage.one(holder_class, Load(), keep=True)
        assert holder.ok.call_one().get(10) == 2
        assert weigher.num_loads.call_one().get(10) == 2
        holder.stop().get(10)
        assert weigher.num_loads.call_one().get(10) == 0

    def test_what_a_failed_actor_held_is_free(self, stage: Stage, until: Any, holder_class: Any) -> None:
        weigher = stage.one(Weigher)
        holder = stage.one(holder_class, Load(), keep=True)
        holder.fail.broadcast()
        stage.faults.get(timeout=10)
        until(lambda: weigher.num_loads.call_one().get(10) == 0)

    def test_arguments_that_the_constructor_did_not_keep_are_free(
        self, stage: Stage, until: Any, holder_class: Any
    ) -> None:
        weigher = stage.one(Weigher)
        holder = stage.one(holder_class, Load(), keep=False)
        assert holder.ok.call_one().get(10) == 0
        until(lambda: weigher.num_loads.call_one().get(10) == 0)


class TestDeaths:
    @pytest.mark.parametrize(
        ("how", "args", "text"),
        [
            ("exit", (3,), "exited with code 3"),
            ("exit", (0,), "exited with code 0"),
            ("kill", (), "SIGKILL"),
            ("segfault", (), "SIGSEGV"),
        ],
    )
    def test_each_is_told_at_once(self, process_stage: Stage, how: str, args: tuple[Any, ...], text: str) -> None:
        mortals = process_stage.procs({"r": 2}).spawn("mortal", Mortal)
        pid = mortals.slice(r=1).pid.call_one().get(10)
        began = time.monotonic()
        with pytest.raises(SupervisionError, match=text) as caught:
            getattr(mortals.slice(r=1), how).call_one(*args).get(10)
        assert time.monotonic() - began < 2
        assert f"rank 1 (r=1, pid {pid})" in str(caught.value)
        if how == "exit":
            assert "my last words" in str(caught.value)
        with pytest.raises(SupervisionError, match=text) as again:
            mortals.pid.call().get(10)
        assert again.value.partial == {}  # pyright: ignore
        assert mortals.slice(r=0).pid.call_one().get(10) != pid
        failure = process_stage.faults.get(timeout=10)
        assert (failure.mesh_name, failure.ranks) == ("mortal", [1])
        assert failure.report().startswith("The actor mortal and all its descendants have failed:")
        assert text in failure.report()
        assert text in str(failure)

    def test_a_death_ends_all_that_was_open(self, process_stage: Stage) -> None:
        procs = process_stage.procs({"r": 2})
        mortals, others = procs.spawn("mortal", Mortal), procs.spawn("other", Counter)
        pid = mortals.slice(r=0).pid.call_one().get(10)
        assert others.add.call(1).get(10).values() == [1, 1]
        with pytest.raises(SupervisionError, match="SIGKILL"):
            mortals.slice(r=0).kill.call_one().get(10)
        for future in [others.add.call(1), others.add.call_all(1), others.slice(r=0).add.call_one(1)]:
            with pytest.raises(SupervisionError, match=f"pid {pid}"):
                future.get(10)
        with pytest.raises(SupervisionError) as caught:
            others.add.call_all(1).get(10)
        assert caught.value.partial == {1: 3}  # pyright: ignore
        # One death, one owner (the client), two meshes: it hears of it once.
        assert process_stage.faults.get(timeout=10).ranks == [0]
        assert process_stage.faults.empty()
        assert procs.slice(r=1).spawn("new", Counter).add.call_one(1).get(10) == 1

    def test_killed_from_outside(self, process_stage: Stage) -> None:
        mortals = process_stage.procs({"r": 2}).spawn("mortal", Mortal)
        os.kill(mortals.slice(r=1).pid.call_one().get(10), signal.SIGKILL)
        assert "SIGKILL" in process_stage.faults.get(timeout=10).report()
        with pytest.raises(SupervisionError, match="SIGKILL"):
            mortals.pid.call().get(10)
        mortals.stop().get(10)

    def test_an_actor_hears_of_the_death_of_its_processes(self, process_stage: Stage) -> None:
        port, told = Channel[Any].open()
        owner = process_stage.one(Owner, "handle", port)
        kids = owner.adopt_procs.call_one(Mortal).get(20)
        pid = kids.slice(k=1).pid.call_one().get(10)
        with pytest.raises(SupervisionError, match="exited with code 4"):
            kids.slice(k=1).exit.call_one(4).get(10)
        mesh_name, report, _, _ = told.recv().get(10)
        assert mesh_name == "kid"
        assert f"pid {pid}" in report
        assert len(owner.reports.call_one().get(10)) == 1
        assert kids.slice(k=0).pid.call_one().get(10) > 0
        owner.dismiss.call_one().get(10)

    def test_processes_end_with_their_owner(self, process_stage: Stage, until: Any) -> None:
        procs = process_stage.procs({"r": 1})
        owner = procs.spawn("owner", Owner, "handle")
        kids = owner.adopt_procs.call_one(Mortal).get(20)
        pids = kids.pid.call().get(10).values()
        procs.stop().get(10)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        with pytest.raises(SupervisionError, match=r"stopped: its owner <root>\..*Owner owner.* has stopped"):
            kids.pid.call().get(10)

    def test_processes_end_with_a_process_that_is_killed(self, process_stage: Stage, until: Any) -> None:
        procs = process_stage.procs({"r": 1})
        owner, mortal = procs.spawn("owner", Owner, "handle"), procs.spawn("mortal", Mortal)
        pids = owner.adopt_procs.call_one(Mortal).get(20).pid.call().get(10).values()
        mortal.kill.broadcast()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        assert "SIGKILL" in process_stage.faults.get(timeout=10).report()

    def test_who_calls_actors_of_one_that_has_failed_is_told_of_it(self, stage: Stage) -> None:
        owner = stage.one(Owner, "handle")
        kids = owner.adopt_procs.call_one(Trouble).get(20)
        owner.fail.broadcast()
        assert "ValueError: unfit" in stage.faults.get(timeout=10).report()
        owner.stop().get(10)
        with pytest.raises(SupervisionError, match=r"its owner <root>\..*Owner owner.* has failed: ValueError: unfit"):
            kids.ok.call().get(10)


def test_the_client_owns_what_it_spawns_in_itself(stage: Stage) -> None:
    trouble = stage.owned(this_proc().spawn("mine", Trouble))
    trouble.boom.broadcast()
    assert "Boom: 7" in stage.faults.get(timeout=10).report()
    with pytest.raises(SupervisionError, match="Boom"):
        trouble.ok.call_one().get(10)
