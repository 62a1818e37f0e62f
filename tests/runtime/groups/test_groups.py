"""Process groups, interruptible waits and seeds, in real ranks, forked from a process that imported torch.

What the ranks of a test do stands in `group_program.py`: `zygote.run("x", 2)` runs its `in_rank_x` in two.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.runtime.groups import meeting
from meshbook.runtime.groups.group_plan import GroupPlan
from meshbook.runtime.groups.groups import Groups, bury
from meshbook.runtime.ranks.imports import when_imported
from meshbook.runtime.ranks.seed import prepare_torch

pytestmark = [pytest.mark.real, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("group_program.py")


class Zygote:
    """The process that forks the ranks."""

    def __init__(self, *preloads: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, *preloads],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # OpenBLAS would start a thread at import; a process with threads must not fork.
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )

    def run(self, body: str, num_ranks: int, **axes: int) -> list[Any]:
        """Run `in_rank_<body>` in each of the ranks; what they returned, by rank."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([body, num_ranks, axes or {"dp": num_ranks}]), file=self.process.stdin, flush=True)
        replies = json.loads(self.process.stdout.readline())
        failures = [f"rank {rank}: {reply['failure']}" for rank, reply in enumerate(replies) if "failure" in reply]
        assert not failures, "\n".join(failures)
        return [reply["value"] for reply in replies]

    def close(self) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    # The last two are what sharded tensors and DDP import at their first use: 1 s of CPU, once and not per rank.
    preloads = ["torch", "numpy.random", "torch.distributed.tensor", "torch._dynamo"]
    with contextlib.closing(Zygote(*preloads)) as zygote:
        yield zygote
    assert zygote.process.returncode == 0


def test_default_group_is_there(zygote: Zygote) -> None:
    assert zygote.run("default_group", 4) == [[True, rank, 4, 6.0, True, [7, 7]] for rank in range(4)]


@pytest.mark.skipif(not Path("/proc/self/timerslack_ns").exists(), reason="timers cannot be told to be late here")
def test_loops_of_gloo_look_less_often_at_rest_and_no_other_thread_does(zygote: Zygote) -> None:
    for at_first, with_own, main in zygote.run("loops_at_rest", 2):
        assert at_first == [20_000_000]
        assert with_own == [20_000_000] * 2
        assert main == 50_000


def test_start_does_not_wait_for_peers(zygote: Zygote) -> None:
    assert zygote.run("early_start", 3) == ["started first", None, None]


def test_user_init_replaces_ours(zygote: Zygote) -> None:
    for by_env, by_tcp, twice, is_up_after, again in zygote.run("user_init", 2):
        assert (by_env, by_tcp, again) == (3.0, 6.0, 3.0)
        assert "twice" in twice
        assert is_up_after is False


def test_user_init_with_a_store_of_its_own(zygote: Zygote) -> None:
    assert zygote.run("own_store", 2) == [[3.0, ["dp"]]] * 2


def test_init_that_fails_on_one_rank_can_be_repeated_there(zygote: Zygote) -> None:
    assert zygote.run("failed_init", 2) == [3.0, 3.0]


def test_slices_at_the_same_time(zygote: Zygote) -> None:
    # Ranks 1 and 2 have made different numbers of groups when they meet: torch's own names would differ then.
    assert zygote.run("slices", 4) == [
        [3.0, None, True],
        [3.0, 5.0, True],
        [7.0, 5.0, True],
        [7.0, None, True],
    ]


def test_device_mesh_has_our_axes(zygote: Zygote) -> None:
    expected = [
        [[["dp", 2], ["tp", 2]], [r // 2, r % 2], [4 + 2.0 * (r % 2), 3 + 4.0 * (r // 2)], True] for r in range(4)
    ]
    assert zygote.run("device_mesh", 4, dp=2, tp=2) == expected


def test_data_parallel_step_gives_equal_gradients(zygote: Zygote) -> None:
    first, second = zygote.run("data_parallel", 2)
    assert first == second
    assert any(first)


def test_interrupt_of_a_stuck_collective(zygote: Zygote) -> None:
    interrupted, interrupting = zygote.run("interrupt", 2)
    name, seconds, context, current, *results = interrupted
    assert name == "all_reduce"
    assert seconds < 1
    assert (context, current) == (None, None)
    assert results == interrupting == [30.0, 7.0]


@pytest.mark.parametrize("name", ["barrier", "broadcast", "all_gather_object"])
def test_interrupt_of_other_collectives(zygote: Zygote, name: str) -> None:
    assert zygote.run(f"interrupt_{name}", 2)[0] == "interrupted"


def test_waits_keep_their_meaning(zygote: Zygote) -> None:
    (timed_out, seconds, returned, received), _ = zygote.run("waits", 2)
    assert timed_out == "Operation timed out!"
    assert 0.11 <= seconds < 1
    assert returned is True
    assert received == 5.0


def test_groups_after_an_interrupt(zygote: Zygote) -> None:
    # Rank 0 leaves a collective on (0, 1) that rank 1 never joins: everything else must go on.
    (of_pair, again, seconds), _, (from_2, again_2) = zygote.run("after_interrupt", 3)
    assert of_pair == from_2 == 4.0
    assert again == again_2 == 4.0
    assert seconds < 3


def test_close_with_dead_peers_is_prompt_and_silent(zygote: Zygote) -> None:
    replies = zygote.run("close_alone", 3)
    assert replies[1:] == ["exit at once"] * 2
    seconds, is_initialized, said = replies[0]
    assert seconds < 2
    assert is_initialized is False
    assert said == ""


def test_a_group_after_the_store_died_fails_soon(zygote: Zygote) -> None:
    # torch would try for days to reach it, in C. (One that dies as it is asked is tried for some 6 s, with pauses.)
    died, *seconds = zygote.run("dead_store", 3)
    assert died == "exit at once"
    assert max(seconds) < 30


def test_rebuild_makes_a_new_generation(zygote: Zygote) -> None:
    assert zygote.run("rebuild", 2) == [[3.0, 3.0, 3.0, True, True]] * 2


def test_no_groups_when_none_are_wanted(zygote: Zygote) -> None:
    assert zygote.run("none", 1) == [[False, False]]


def test_forked_ranks_differ_in_random_numbers_and_share_the_cores(zygote: Zygote) -> None:
    replies = zygote.run("seeds", 4)
    for kind in range(3):
        assert len({reply[kind] for reply in replies}) == 4
    share = max(1, len(os.sched_getaffinity(0)) // 4)
    assert [reply[3] for reply in replies] == [share] * 4


def test_torch_imported_later_on_some_ranks() -> None:
    with contextlib.closing(Zygote()) as zygote:
        assert zygote.run("late_torch", 2) == [[True, 3.0, 1], [True, 3.0, 1]]
    assert zygote.process.returncode == 0


WITHOUT_TORCH = """
import os, socket, sys, threading
from dataclasses import replace
from meshbook.runtime.groups.group_plan import GroupPlan
from meshbook.runtime.groups.groups import Groups

held = socket.create_server(("127.0.0.1", 0))
port = held.getsockname()[1]
groups = Groups(GroupPlan(0, 1, {"dp": 1}, "gloo", "cpu", "127.0.0.1", port, listen_fd=held.detach()))
groups.start()
for generation in range(1, 4):
    before = threading.enumerate()
    groups.open_door()  # who asked has given up waiting, and asks again
    groups.rebuild(replace(groups.plan, master_port=groups.open_door(), generation=generation))
    [old] = [thread for thread in before if thread.name == "mesh-door"]
    old.join()
    print(len(threading.enumerate()), len(os.listdir("/dev/fd")), "torch" in sys.modules)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody is woken")
def test_new_groups_without_torch_leave_nothing_of_the_old() -> None:
    told = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, timeout=60, check=True)
    first, *others = told.stdout.splitlines()
    assert others == [first] * 2
    assert first.startswith("2 ") and first.endswith("False")


WITH_TORCH = """
import os, socket, sys, time
from dataclasses import replace
import torch.distributed as dist
from meshbook.runtime.groups.group_plan import GroupPlan
from meshbook.runtime.groups.groups import Groups

groups = Groups(GroupPlan(0, 1, {"dp": 1}, "gloo", "cpu", "127.0.0.1", 0))
groups.rebuild(replace(groups.plan, master_port=groups.open_door(), generation=1))
for generation in range(2, 5):
    stale = groups.open_door()
    groups.rebuild(replace(groups.plan, master_port=groups.open_door(), generation=generation))
    is_there, deadline = True, time.monotonic() + 20  # a store that takes long to end does so in a thread
    while is_there and time.monotonic() < deadline:
        with socket.socket() as caller:
            is_there = caller.connect_ex(("127.0.0.1", stale)) == 0
    print(not is_there)
other = groups.open_door()
groups.open_door()
groups._take_door(replace(groups.plan, master_port=other, store_rank=1, world_size=2, axes={"dp": 2}))
print(len(groups._doors))  # the same port of another rank, on another host, is not ours
groups.close()
"""


def test_a_store_that_nobody_comes_to_is_gone_with_the_next_groups() -> None:
    told = subprocess.run([sys.executable, "-c", WITH_TORCH], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split() == ["True"] * 3 + ["2"]


def test_a_host_that_does_not_answer_is_named_and_lets_torch_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "CONNECT_SECONDS", 0.2)
    with socket.socket() as full, contextlib.ExitStack() as crowd:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # all that wait there; who comes then is not heard
            caller = crowd.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        late = Groups(GroupPlan(1, 2, {"dp": 2}, "gloo", "cpu", *full.getsockname()))
        with pytest.raises(ConnectionError, match=r"rank 0 does not answer at 127\.0\.0\.1:\d+: timed out"):
            meeting.open_store(None, late.plan)
        with pytest.warns(RuntimeWarning, match="no default process group: rank 0 does not answer"):
            late._begin_late()


def test_plan_must_hold_its_ranks() -> None:
    plan = GroupPlan(5, 8, {"dp": 2, "tp": 4}, "auto", "cuda:1", "127.0.0.1", 1)
    assert (plan.torch_backend, plan.plain_device) == ("cpu:gloo,cuda:nccl", "cpu")
    assert replace(plan, backend="nccl").plain_device == "cuda:1"
    assert (plan.peers("dp"), plan.peers("tp")) == ((1, 5), (4, 5, 6, 7))
    with pytest.raises(ValueError, match="hold 4 ranks, not 8"):
        replace(plan, axes={"dp": 4})
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.7, not 8"):
        replace(plan, rank=8)
    with pytest.raises(ValueError, match="local_world_size"):
        prepare_torch(0, 0, {})


def test_when_imported_waits_for_an_import_that_succeeds(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name, calls = "a_module_of_test_groups", list[str]()
    (tmp_path / f"{name}.py").write_text("import sys\nvalue = 1 / sys.flags_of_test_groups\n")
    when_imported(name, lambda: calls.append("then"))
    with pytest.raises(AttributeError):
        __import__(name)
    assert calls == []
    monkeypatch.setattr(sys, "flags_of_test_groups", 1, raising=False)
    __import__(name)
    assert calls == ["then"]
    when_imported(name, lambda: calls.append("at once"))
    assert calls == ["then", "at once"]
    del sys.modules[name]
    __import__(name)
    assert len(calls) == 2
    del sys.modules[name]


def test_a_destructor_that_waits_for_ever_is_waited_for_in_a_thread() -> None:
    end = threading.Event()

    class Stuck:
        def __del__(self) -> None:
            end.wait()

    held: list[Any] = [Stuck()]
    bury(held)
    assert not held
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "mesh-groups"]
    end.set()
    thread.join()


def test_a_store_whose_rank_dies_while_it_is_connected_to_is_not_waited_for() -> None:
    given_up = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as store:
        plan = GroupPlan(1, 2, {"r": 2}, "gloo", "cpu", "127.0.0.1", store.getsockname()[1])

        def connect(*_: object, **__: object) -> None:
            store.close()
            given_up.wait(30)  # as torch does: it tries again and again

        with pytest.raises(ConnectionError, match="rank 0 does not listen at "):
            meeting.open_store(SimpleNamespace(TCPStore=connect), plan)
    given_up.set()
