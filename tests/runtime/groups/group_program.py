"""A zygote for the tests of process groups: it forks the ranks of each request on its standard input.

A request is a line `[body, num_ranks, axes]`. Each rank runs `in_rank_<body>` with its `Seat`; the zygote answers, when
all are gone, what they returned or how they failed. The program's arguments are the modules to import before it forks.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import select
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
import weakref
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from meshbook.runtime.groups import c10d, loops, waits
from meshbook.runtime.groups.group_plan import GroupPlan
from meshbook.runtime.groups.groups import Groups
from meshbook.runtime.ranks.seed import prepare_torch

RANK_SECONDS = 50  # less than pytest's minute; on a busy machine the import of torch alone may take ten
EXIT_AT_ONCE = "exit at once"


@dataclass
class Seat:
    """What a rank of a test has: its groups, not started, and pipes from every rank to every rank."""

    groups: Groups
    mail: list[tuple[int, int]]
    next_socket: socket.socket

    @property
    def rank(self) -> int:
        return self.groups.plan.rank

    def tell(self, rank: int, word: str) -> None:
        os.write(self.mail[rank][1], word.ljust(16).encode())

    def hear(self) -> str:
        ready, _, _ = select.select([self.mail[self.rank][0]], [], [], RANK_SECONDS)
        assert ready, f"rank {self.rank} heard nothing"
        return os.read(self.mail[self.rank][0], 16).decode().strip()


def in_rank_default_group(seat: Seat) -> object:
    import torch
    from torch import distributed as dist

    seat.groups.start()
    x = torch.tensor([float(seat.rank)])
    dist.all_reduce(x)
    groups = seat.groups
    whole: Any = groups.slice_group(tuple(range(4)))
    users: Any = dist.new_group()
    days = [group._get_backend(torch.device("cpu")).options._timeout.days for group in (whole, users)]
    is_up = groups.whole_group is not None
    return [is_up, dist.get_rank(), dist.get_world_size(), x.item(), whole is dist.group.WORLD, days]


def in_rank_early_start(seat: Seat) -> object:
    if seat.rank == 0:
        seat.groups.start()
        seat.tell(1, "go")
        seat.tell(2, "go")
    else:
        assert seat.hear() == "go"
        seat.groups.start()
    seat.groups.device_mesh.get_group()
    return "started first" if seat.rank == 0 else None


def in_rank_user_init(seat: Seat) -> object:
    from torch import cuda
    from torch import distributed as dist

    seat.groups.start()
    plan = seat.groups.plan
    os.environ |= {"MASTER_ADDR": plan.master_addr, "MASTER_PORT": "1"}  # where nobody may listen
    dist.init_process_group("gloo", rank=plan.rank, world_size=plan.world_size)
    by_env = _sum_of_ranks()
    try:
        dist.init_process_group("gloo", rank=plan.rank, world_size=plan.world_size)
        twice = "no error"
    except ValueError as error:
        twice = str(error)
    dist.destroy_process_group()
    is_up_after = dist.is_initialized()
    by_tcp = 0.0
    for port in plan.master_port, 1:
        dist.init_process_group("gloo", f"tcp://{plan.master_addr}:{port}", None, plan.world_size, plan.rank)
        by_tcp += _sum_of_ranks()
        dist.destroy_process_group()
    os.environ |= {"RANK": str(plan.rank), "WORLD_SIZE": str(plan.world_size)}
    dist.distributed_c10d.init_process_group("gloo" if cuda.is_available() else None)  # else for GPUs only
    return [by_env, by_tcp, twice, is_up_after, _sum_of_ranks()]


def _sum_of_ranks(group: Any = None) -> float:
    import torch
    from torch import distributed as dist

    x = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(x, group=group)
    return x.item()


def in_rank_own_store(seat: Seat) -> object:
    from torch import distributed as dist

    seat.groups.start()
    path = f"/tmp/meshbook-store-{os.getppid()}"
    untyped: Any = dist  # torch's stubs do not export its stores
    store = untyped.FileStore(path, 2)
    dist.init_process_group("gloo", store=store, rank=seat.rank, world_size=2)
    total = _sum_of_ranks()
    if seat.rank == 0:
        os.unlink(path)
    return [total, list(seat.groups.device_mesh.mesh_dim_names or ())]


def in_rank_failed_init(seat: Seat) -> object:
    from torch import distributed as dist

    seat.groups.start()
    if seat.rank == 1:
        with pytest.raises(AssertionError, match="glooo"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.init_process_group("glooo")
    dist.init_process_group("gloo")
    return _sum_of_ranks()


def in_rank_slices(seat: Seat) -> object:
    seat.groups.start()
    group = seat.groups.slice_group
    pair = (0, 1) if seat.rank < 2 else (2, 3)
    if seat.rank == 1:
        group((1,))
    of_pair = _sum_of_ranks(group(pair))
    of_middle = _sum_of_ranks(group((1, 2))) if seat.rank in (1, 2) else None
    with pytest.raises(ValueError, match="not in the slice"):
        group(tuple({0, 1, 2, 3} - {seat.rank}))
    return [of_pair, of_middle, group(pair) is group(pair)]


def in_rank_loops_at_rest(seat: Seat) -> object:
    import torch.distributed as dist

    loops._NAMED_WITHIN = RANK_SECONDS  # on a busy machine a thread may say later what it is called
    seat.groups.start()
    _sum_of_ranks()
    at_first = _slacks()
    own: Any = dist.new_group()
    with_own = _slacks()
    dist.destroy_process_group(own)
    return at_first, with_own, int(Path(f"/proc/{os.getpid()}/timerslack_ns").read_text())


def _slacks() -> list[int]:
    """The timer slacks of gloo's loops, in nanoseconds."""
    threads = [thread for thread in loops.threads() if loops._name_of(thread) == loops._NAME]
    return [int(Path(f"/proc/{thread}/timerslack_ns").read_text()) for thread in threads]


def in_rank_device_mesh(seat: Seat) -> object:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    seat.groups.start()
    mesh = seat.groups.device_mesh
    names = mesh.mesh_dim_names or ()
    sums = [_sum_of_ranks(mesh[name].get_group()) for name in names]
    full = torch.arange(8.0).view(4, 2)
    ours = distribute_tensor(full, mesh, [Shard(0), Shard(1)])
    users = init_device_mesh("cpu", (2, 2), mesh_dim_names=("x", "y"))
    theirs = distribute_tensor(full, users, [Shard(0), Shard(1)])
    is_same = bool((ours.full_tensor() == full).all() and (theirs.full_tensor() == full).all())
    sizes = list(zip(names, mesh.shape, strict=True))
    return [sizes, list(mesh.get_coordinate() or ()), sums, is_same]


def in_rank_data_parallel(seat: Seat) -> object:
    import torch

    prepare_torch(2, seat.rank, {})
    seat.groups.start()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    model(torch.randn(8, 3)).square().mean().backward()
    return [number for p in model.parameters() if p.grad is not None for number in p.grad.flatten().tolist()]


def in_rank_interrupt(seat: Seat) -> object:
    import torch
    from torch import distributed as dist

    assert waits.install()
    assert waits.install()
    seat.groups.start()
    queued, y, z = torch.ones(2), torch.full((2,), 10.0 + 10 * seat.rank), torch.full((2,), 7.0 * seat.rank)
    about_interrupt: list[Any] = []
    if seat.rank == 0:
        seat.tell(1, str(os.getpid()))
        threading.Thread(target=_tell_when_stuck, args=(seat, 1), daemon=True).start()
        with pytest.raises(KeyboardInterrupt) as caught:
            dist.all_reduce(queued)
        end = time.monotonic()
        about_interrupt = [seat.hear(), end - float(seat.hear()), caught.value.__context__, waits.current(0)]
        seat.tell(1, "interrupted")
    else:
        pid, name = int(seat.hear()), seat.hear()
        seat.tell(0, name)
        seat.tell(0, f"{time.monotonic():.6f}")
        os.kill(pid, signal.SIGINT)
        assert seat.hear() == "interrupted"
        dist.all_reduce(queued)
    dist.all_reduce(y)
    dist.broadcast(z, 1)
    return [*about_interrupt, y[0].item(), z[0].item()]


def _tell_when_stuck(seat: Seat, rank: int) -> None:
    turn = threading.Event()
    while (found := waits.current(0)) is None:
        turn.wait(0.002)
    assert found.since < time.monotonic()
    seat.tell(rank, found.call)


def _interrupted(seat: Seat, collective: Any) -> str:
    assert waits.install()
    seat.groups.start()
    if seat.rank == 0:
        seat.tell(1, str(os.getpid()))
        threading.Thread(target=_tell_when_stuck, args=(seat, 1), daemon=True).start()
        try:
            collective()
        except KeyboardInterrupt:
            seat.tell(1, "interrupted")
            return "interrupted"
        return "not interrupted"
    pid = int(seat.hear())
    seat.hear()
    os.kill(pid, signal.SIGINT)
    return seat.hear()


def in_rank_interrupt_barrier(seat: Seat) -> object:
    from torch import distributed as dist

    return _interrupted(seat, lambda: dist.barrier())


def in_rank_interrupt_broadcast(seat: Seat) -> object:
    import torch
    from torch import distributed as dist

    return _interrupted(seat, lambda: dist.broadcast(torch.ones(1), 1))


def in_rank_interrupt_all_gather_object(seat: Seat) -> object:
    from torch import distributed as dist

    return _interrupted(seat, lambda: dist.all_gather_object([None, None], "x"))


def in_rank_waits(seat: Seat) -> object:
    import torch
    from torch import distributed as dist

    waits.install()
    seat.groups.start()
    x, y = torch.ones(1), torch.full((1,), 5.0)
    if seat.rank == 1:
        assert seat.hear() == "timed out"
        dist.all_reduce(x)
        # Longer than a slice: the other rank waits in recv meanwhile.
        assert threading.Event().wait(0.15) is False
        dist.send(y, 0)
        return None
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    start = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        work.wait(timeout=timedelta(milliseconds=120))
    seconds = time.monotonic() - start
    seat.tell(1, "timed out")
    returned = work.wait()
    dist.recv(y.zero_(), 1)
    return [str(caught.value), seconds, returned, y.item()]


def in_rank_after_interrupt(seat: Seat) -> object:
    import torch
    from torch import distributed as dist

    seat.groups.start()
    if seat.rank == 1:
        return seat.hear()
    start = time.monotonic()
    if seat.rank == 0:
        stuck = dist.all_reduce(torch.ones(1), group=seat.groups.slice_group((0, 1)), async_op=True)
        assert stuck is not None
        with pytest.raises(RuntimeError, match="timed out"):
            stuck.wait(timedelta(milliseconds=60))
    of_pair = _sum_of_ranks(seat.groups.slice_group((0, 2)))
    dist.init_process_group("gloo", rank=seat.rank // 2, world_size=2)  # destroys the group of the stuck collective
    again = _sum_of_ranks() + 1
    dist.destroy_process_group()
    seconds = time.monotonic() - start
    if seat.rank == 0:
        seat.tell(1, "done")
        return [of_pair, again, seconds]
    return [of_pair, again]


def in_rank_dead_store(seat: Seat) -> object:
    seat.groups.start()
    if seat.rank == 0:
        for _ in range(2):
            assert seat.hear() == "go"
        return EXIT_AT_ONCE
    plan = seat.groups.plan
    with socket.create_connection((plan.master_addr, plan.master_port)) as line:
        seat.tell(0, "go")
        with contextlib.suppress(ConnectionResetError):  # where it has not read all
            assert line.recv(1) == b""  # until rank 0, which keeps the store, is gone
    start = time.monotonic()
    with pytest.raises(RuntimeError):
        _sum_of_ranks(seat.groups.slice_group((1, 2)))
    return time.monotonic() - start


def in_rank_close_alone(seat: Seat) -> object:
    import torch
    from torch import distributed as dist

    seat.groups.start()
    dist.all_reduce(torch.ones(1))
    if seat.rank > 0:
        return EXIT_AT_ONCE
    dist.all_reduce(torch.ones(1), async_op=True)
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)
    start = time.monotonic()
    seat.groups.close()
    seconds = time.monotonic() - start
    os.dup2(1, 2)
    return [seconds, dist.is_initialized(), os.read(read, 10_000).decode()]


def in_rank_rebuild(seat: Seat) -> object:
    from torch import distributed as dist

    seat.groups.start()
    dist.init_process_group("gloo")
    before = _sum_of_ranks()
    model = [dist.group.WORLD]  # which has its group as long as it lives
    former = weakref.ref(dist.group.WORLD)
    port = seat.next_socket.getsockname()[1]
    listen_fd = seat.next_socket.detach() if seat.rank == 0 else None
    seat.groups.rebuild(replace(seat.groups.plan, master_port=port, listen_fd=listen_fd, generation=1))
    stays = former() is not None  # what a model that is let go of now does not end with it
    after = _sum_of_ranks()
    dist.init_process_group("gloo")
    after_both = _sum_of_ranks()
    (wake,) = [thread for thread in threading.enumerate() if thread.name == "mesh-wake"]
    wake.join(3 * c10d.WAKE_SECONDS)
    is_held = wake.is_alive()
    model.clear()
    wake.join()
    return [before, after, after_both, stays and is_held, former() is None]


def in_rank_none(seat: Seat) -> object:
    from torch import distributed as dist

    groups = Groups(replace(seat.groups.plan, backend="none"))
    groups.start()
    with pytest.raises(RuntimeError, match="no default process group"):
        groups.slice_group((0,))
    groups.close()
    return [groups.whole_group is not None, dist.is_initialized()]


def in_rank_seeds(seat: Seat) -> object:
    import numpy
    import torch

    prepare_torch(4, seat.rank, {})
    return [torch.rand(1).item(), float(numpy.random.rand()), random.random(), torch.get_num_threads()]


def in_rank_late_torch(seat: Seat) -> object:
    assert "torch" not in sys.modules
    prepare_torch(64, seat.rank, {})
    seat.groups.start()
    if seat.rank == 0:
        assert seat.hear() == "imported"  # rank 1 got through, so our door thread has answered
    import torch
    from torch import distributed as dist

    was_initialized = dist.is_initialized()
    if seat.rank == 1:
        seat.tell(0, "imported")
    return [was_initialized, _sum_of_ranks(), torch.get_num_threads()]


def serve(preloads: list[str]) -> None:
    """The zygote's loop: a request a line, a line of replies for each."""
    for name in preloads:
        __import__(name)
    for line in sys.stdin:
        body, num_ranks, axes = json.loads(line)
        print(json.dumps(_run_ranks(body, num_ranks, axes)), flush=True)


def _run_ranks(body: str, num_ranks: int, axes: dict[str, int]) -> list[Any]:
    assert math.prod(axes.values()) == num_ranks
    doors = [socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))]
    mail, results = [os.pipe() for _ in range(num_ranks)], [os.pipe() for _ in range(num_ranks)]
    all_ran = os.pipe()
    pids: list[int] = []
    for rank in range(num_ranks):
        pids.append(os.fork())
        if pids[-1] == 0:
            for other in results[:rank] + results[rank + 1 :]:
                os.close(other[1])
            _be_rank(body, rank, num_ranks, axes, doors, mail, results[rank], all_ran)
    for door in doors:
        door.close()
    texts = [_text_of(read, write) for read, write in results]
    os.close(all_ran[1])
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    for fd in [all_ran[0], *(fd for pipe in mail for fd in pipe)]:
        os.close(fd)
    return [
        json.loads(text) if code == 0 and text else {"failure": f"exit code {code}, said {text!r}"}
        for text, code in zip(texts, codes, strict=True)
    ]


def _be_rank(
    body: str,
    rank: int,
    num_ranks: int,
    axes: dict[str, int],
    doors: list[socket.socket],
    mail: list[tuple[int, int]],
    result: tuple[int, int],
    all_ran: tuple[int, int],
) -> None:
    try:
        signal.alarm(RANK_SECONDS)
        os.close(all_ran[1])
        port = doors[0].getsockname()[1]
        listen_fd = doors[0].detach() if rank == 0 else doors[0].close()
        plan = GroupPlan(rank, num_ranks, axes, "auto", "cpu", "127.0.0.1", port, listen_fd)
        seat = Seat(Groups(plan), mail, doors[1])
        reply = _reply_of(body, seat)
        os.write(result[1], json.dumps(reply).encode())
        os.close(result[1])
        if reply.get("value") != EXIT_AT_ONCE:
            os.read(all_ran[0], 1)
            seat.groups.close()
    finally:
        os._exit(0)


def _reply_of(body: str, seat: Seat) -> dict[str, Any]:
    try:
        return {"value": globals()[f"in_rank_{body}"](seat)}
    except BaseException:  # noqa: BLE001 the rim of the process: the test reports it
        return {"failure": traceback.format_exc()}


def _text_of(read: int, write: int) -> str:
    os.close(write)
    with os.fdopen(read) as pipe:
        return pipe.read()


if __name__ == "__main__":
    serve(sys.argv[1:])
