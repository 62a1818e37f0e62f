"""Process groups are renewed where ranks have parted in the middle of a step: models that hold them go on."""

from __future__ import annotations

import ast
import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshbook.kernel.drive import Drive
from meshbook.kernel.driver import drive
from meshbook.kernel.failures.together import GIVEN_UP, Deeds
from meshbook.kernel.mesh import Mesh
from meshbook.kernel.stopping.patience import Patience
from meshbook.kernel.values.results import MeshResult
from meshbook.kernel.verdict import check
from meshbook.runtime import Actor, ActorError, current_rank, endpoint
from meshbook.runtime.controller import group_state
from meshbook.runtime.controller.regroup import regroup, wait_until
from meshbook.runtime.errors import MeshError
from meshbook.runtime.wire import codec
from tests.kernel.cells import SUM, ran, values
from tests.kernel.pretended import PretendedLive

pytestmark = [pytest.mark.slow, pytest.mark.real]

MODELS = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))

def replicated():
    return nn.parallel.DistributedDataParallel(small())

def sharded():
    net = small()
    for part in (net[0], net):
        fully_shard(part, mesh=mesh.device_mesh)
    return net

pair = dist.new_group([0, 1])
unused = sharded()

def step(model, bad=""):
    torch.manual_seed(rank)
    x = torch.randn(8, 4)
    if bad == "input" and rank == 1:
        x = x[:, :3]
    out = model(x)
    loss = out.pow(2).mean()
    if bad == "loss" and rank == 1:
        raise ValueError("boom")
    for p in model.parameters():
        p.grad = None
    if bad == "all" or bad == "gradient" and rank == 1:
        out.register_hook(lambda _: 1 / 0)
    loss.backward()
    if bad == "update" and rank == 1:
        raise ValueError("boom")
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    if bad == "update":
        dist.barrier()

def total(model):
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return round(sum(p.double().sum().item() for p in full), 6)
"""


@pytest.fixture(scope="module")
def mesh() -> Iterator[Mesh]:
    """One mesh for all: each test leaves it in order, which is what they are about."""
    with Mesh.up("m", {"dp": 2}, path=sys.path) as mesh:
        ran(mesh, MODELS)
        yield mesh


@pytest.fixture(autouse=True)
def shared(mesh: Mesh, leaks: Any) -> Iterator[None]:
    yield
    leaks.allow_what_stands()


def part(mesh: Mesh, source: str) -> None:
    """Rank 1 raises in this cell while rank 0 waits for it; then rank 0 is freed and the groups are mended."""
    run = mesh.run(source)
    assert wait_until(mesh.roster, lambda: run.owing == [0], 20)
    while "waiting in" not in mesh.where([0], 5).get(0, "") and "line" not in mesh.where([0], 5).get(0, ""):
        pass
    mesh.release([0], run.call)
    run.finished.get(10)
    assert sorted(run.progress.failed) == [0, 1]
    assert mesh.mend()


def needs_reset() -> None:
    if not hasattr(pytest.importorskip("torch.distributed.fsdp").FSDPModule, "reset_iter_state"):
        pytest.skip("this torch cannot put a sharded model back")


@pytest.mark.parametrize(
    "kind, bad, num_steps",
    [
        ("replicated", "input", 3),
        ("replicated", "loss", 3),
        ("replicated", "gradient", 3),
        ("replicated", "update", 4),  # rank 0 has made its step
        ("sharded", "input", 3),
        ("sharded", "loss", 3),
        ("sharded", "gradient", 3),
    ],
)
def test_a_model_goes_on_as_if_the_step_in_which_one_rank_raised_had_not_been(
    mesh: Mesh, kind: str, bad: str, num_steps: int
) -> None:
    if kind == "sharded":
        needs_reset()
    ran(mesh, f"model = {kind}()\nstep(model)")
    part(mesh, f"step(model, {bad!r})")
    assert mesh.roster.groups.is_renewed
    ran(mesh, "step(model)\nstep(model)")
    ran(mesh, f"twin = {kind}()\nfor _ in range({num_steps}): step(twin)")
    assert values(mesh, "total(model) == total(twin), total(twin) == total(small())") == ["(True, False)"] * 2


@pytest.mark.parametrize("num_steps", [0, 1, 2])
@pytest.mark.parametrize("hook", ["", "model.register_comm_hook(None, halved)\n"])
def test_a_model_of_a_static_graph_learns_it_again(mesh: Mesh, num_steps: int, hook: str) -> None:
    """Of its first step, which rank 1 has not come to, rank 0 keeps that it was."""
    made = f"model = nn.parallel.DistributedDataParallel(small(), static_graph=True)\n{hook}"
    ran(mesh, HALVED + made + f"for _ in range({num_steps}): step(model)")
    part(mesh, "step(model, 'loss')")
    ran(mesh, "step(model)\nstep(model)\nfound = total(model)")
    ran(mesh, made + f"for _ in range({num_steps} + 2): step(model)")
    assert values(mesh, "found == total(model), found == total(small())") == ["(True, False)"] * 2


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_a_model_goes_on_after_a_backward_pass_that_no_rank_has_ended(mesh: Mesh, kind: str) -> None:
    """torch takes that of a sharded model for one that still goes on, and begins none again."""
    if kind == "sharded":
        needs_reset()
    ran(mesh, f"model = {kind}()\nstep(model)")
    assert all("ZeroDivisionError" in told for told in values(mesh, "step(model, 'all')"))
    assert mesh.mend() == ""
    ran(mesh, f"step(model)\nstep(model)\ntwin = {kind}()\nfor _ in range(3): step(twin)")
    assert values(mesh, "total(model) == total(twin), total(twin) == total(small())") == ["(True, False)"] * 2


MICROBATCHES = """
from torch.distributed.fsdp import MixedPrecisionPolicy
def in_halves(dtype):
    net = small()
    return fully_shard(net, mesh=mesh.device_mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=dtype))
def feed(model, *seeds, last=False):
    model.set_requires_gradient_sync(last)
    for seed in seeds:
        torch.manual_seed(seed)
        model(torch.randn(8, 4)).pow(2).mean().backward()
def gradient(model):
    model.reshard()
    return round(sum(p.grad.full_tensor().sum().item() for p in model.parameters()), 5)
"""


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.float64"])
def test_a_sharded_model_keeps_no_microbatches_of_a_cell_that_failed_but_those_of_cells_before(
    mesh: Mesh, dtype: str
) -> None:
    needs_reset()
    ran(mesh, f"{MICROBATCHES}\ntwin = in_halves({dtype})\nfeed(twin, 1, 2)\nfeed(twin, 3, last=True)")
    ran(mesh, f"model = in_halves({dtype})")
    assert all("ZeroDivisionError" in told for told in values(mesh, "feed(model, 1, 2)\n1 / 0"))
    ran(mesh, "feed(model, 1)")
    ran(mesh, "feed(model, 2)")
    assert all("ZeroDivisionError" in told for told in values(mesh, "1 / 0"))
    ran(mesh, "feed(model, 3, last=True)")
    assert values(mesh, "gradient(model) == gradient(twin), gradient(twin) != 0") == ["(True, True)"] * 2


def told_of_failure(mesh: Mesh, source: str) -> str:
    """What the story of a cell says in which rank 1 raises."""
    driven = Drive(mesh, mesh.run(source), cast(Any, PretendedLive()), Patience(time.monotonic()))
    drive(driven)
    came = driven.run.progress
    result = MeshResult(driven.run.axes, driven.run.ranks, came.outcomes, came.seconds, came.lost, codec.loads)
    with pytest.raises(MeshError) as caught:
        check(driven, result)
    return str(caught.value.story)


ALONE = """
model = in_halves(torch.float32)
model.set_reshard_after_forward(False)
model.set_reshard_after_backward(False)
"""
"""A model of which a microbatch needs no other rank."""


@pytest.mark.parametrize(
    "bad",
    [
        "feed(model, 7)\nif rank == 1: raise ValueError",  # rank 0 has it, too, and has not failed
        "if rank == 1: raise ValueError\nfeed(model, 7)",  # rank 1 has begun nothing
        "if rank == 1: raise ValueError\ndist.barrier()",  # groups are renewed
    ],
)
def test_microbatches_that_one_rank_has_given_up_all_give_up_and_it_is_told(mesh: Mesh, bad: str) -> None:
    needs_reset()
    ran(mesh, f"{MICROBATCHES}\n{ALONE}\nfeed(model, 1)\nfeed(model, 2)")
    assert GIVEN_UP in told_of_failure(mesh, bad)
    ran(mesh, "feed(model, 3)\nfeed(model, 4, last=True)")
    ran(mesh, f"found = gradient(model)\n{ALONE}\nfeed(model, 3)\nfeed(model, 4, last=True)")
    assert values(mesh, "found == gradient(model), found != 0") == ["(True, True)"] * 2


def test_microbatches_that_a_cell_has_not_touched_stay_and_nothing_is_told(mesh: Mesh) -> None:
    needs_reset()
    ran(mesh, f"{MICROBATCHES}\n{ALONE}\nfeed(model, 1)")
    assert GIVEN_UP not in told_of_failure(mesh, "if rank == 1: raise ValueError")
    ran(mesh, "feed(model, 2, last=True)")
    ran(mesh, f"found = gradient(model)\n{ALONE}\nfeed(model, 1)\nfeed(model, 2, last=True)")
    assert values(mesh, "found == gradient(model), found != 0") == ["(True, True)"] * 2


class Trainer(Actor):
    def __init__(self) -> None:
        line = importlib.import_module("torch.distributed.device_mesh").init_device_mesh("cpu", (2,))
        self.names: dict[str, Any] = {"rank": current_rank().rank, "mesh": SimpleNamespace(device_mesh=line)}
        exec(MODELS, self.names)

    @endpoint
    def do(self, source: str) -> object:
        exec(source, self.names)
        return self.names.get("said")


def test_neither_does_an_actor_go_on_with_what_a_backward_pass_has_left(mesh: Mesh) -> None:
    needs_reset()
    trainers = mesh.procs.spawn("trainers", Trainer)
    trainers.do.call("model = sharded()\nstep(model)").get(20)
    with pytest.raises(ActorError, match="ZeroDivisionError"):
        trainers.do.call("step(model, 'all')").get(20)
    trainers.do.call(f"step(model)\n{MICROBATCHES}\nfeed(model, 1)").get(20)
    with pytest.raises(ActorError, match="ZeroDivisionError"):
        trainers.do.call("feed(model, 1)\n1 / 0").get(20)
    trainers.do.call("twin = sharded()\nstep(twin)\nstep(twin)\nfor each in model, twin: feed(each, 2, last=True)").get(
        20
    )
    assert trainers.do.call("said = total(model) == total(twin)").get(20).values() == [True, True]
    trainers.stop().get(20)


PIPELINE = """
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
def square(out, target):
    if bad and len(schedule._internal_losses) == 1: raise ValueError("boom")
    return (out - target).pow(2).mean()
def chain():
    torch.manual_seed(rank)
    return ScheduleGPipe(PipelineStage(nn.Linear(4, 4), rank, 2, device), 2, loss_fn=square)
def feed(schedule):
    losses = []
    schedule.step(*([torch.ones(4, 4)] if rank == 0 else []), target=torch.zeros(4, 4) if rank else None, losses=losses)
    return sum(loss.item() for loss in losses)
bad, schedule = False, chain()
"""


def test_a_pipeline_goes_on_after_a_microbatch_has_failed(mesh: Mesh) -> None:
    pytest.importorskip("torch.distributed.pipelining")
    once = values(mesh, f"{PIPELINE}\nfeed(schedule)")
    ran(mesh, "bad = True")
    part(mesh, "feed(schedule)")
    ran(mesh, "bad = False")
    assert values(mesh, "feed(schedule)") == once
    assert once[1] != "0"


HALVED = """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
def halved(state, bucket):
    return default_hooks.allreduce_hook(state, bucket).then(lambda future: future.value() / 2)
"""


def test_a_sharded_model_goes_on_after_its_parameters_were_under_way(mesh: Mesh) -> None:
    needs_reset()
    ran(mesh, "model = sharded()\nstep(model)")
    part(mesh, "if rank == 1: raise ValueError\nmodel.unshard(async_op=True)\ndist.barrier()")
    ran(mesh, "step(model)\ntwin = sharded()\nstep(twin)\nstep(twin)")
    assert values(mesh, "total(model) == total(twin)") == ["True", "True"]


def test_a_flat_model_says_that_it_is_lost(mesh: Mesh) -> None:
    """Nobody knows how to put FSDP1 back: its ranks would wait for each other for ever."""
    flat = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as Flat\nmodel = Flat(small(), device_id=device)"
    )
    quiet = "import warnings\nwarnings.simplefilter('ignore')\ndevice = torch.device('cpu')"
    assert values(mesh, f"{quiet}\n{flat}\nstep(model)") == ["None", "None"]
    part(mesh, "step(model, 'loss')")
    assert all("may have been in the middle of a step" in told for told in values(mesh, "step(model)"))


def test_where_torch_cannot_put_a_sharded_model_back_it_says_so(mesh: Mesh) -> None:
    needs_reset()
    ran(mesh, "model = sharded()\nstep(model)\nfrom torch.distributed.fsdp import FSDPModule")
    ran(mesh, "reset = FSDPModule.reset_iter_state\ndel FSDPModule.reset_iter_state")
    part(mesh, "step(model, 'loss')")
    ran(mesh, "FSDPModule.reset_iter_state = reset")
    assert all("may have been in the middle of a step" in told for told in values(mesh, "step(model)"))


def test_ranks_one_of_which_has_made_a_step_more_are_alike_again(mesh: Mesh) -> None:
    ran(mesh, "plain = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))\nstep(plain)")
    ran(mesh, "plain.module.weight.data += rank")
    part(mesh, "step(plain, 'loss')")
    ran(mesh, "if rank == 0: plain.eval()(torch.ones(2, 4)), plain.train()")  # no step: nobody is waited for
    ran(mesh, "step(plain)")
    one, other = values(mesh, "total(plain)")
    assert one == other


def test_what_ranks_did_in_common_is_counted(mesh: Mesh) -> None:
    ran(mesh, "model = replicated()")
    ran(mesh, "sgd = torch.optim.SGD(model.parameters(), lr=0.1)\nfor p in model.parameters(): p.grad = p + 0")
    ran(mesh, "for _ in range(2 - rank): sgd.step()\ndist.barrier()")
    assert mesh.deeds([0, 1]) == {0: Deeds(True, 2), 1: Deeds(True, 1)}
    ran(mesh, "pass")
    assert mesh.deeds([0, 1]) == {0: Deeds(False, 0), 1: Deeds(False, 0)}


def test_what_was_done_before_does_not_count_where_it_takes_long_to_read(mesh: Mesh) -> None:
    ran(mesh, "import time\nfrom meshbook.runtime.groups import ledger\nread = ledger.read")
    ran(mesh, "ledger.read = lambda limit: (read(limit), time.sleep(0.1))[0]")
    try:
        ran(mesh, "dist.barrier()")
        ran(mesh, "pass")
        assert mesh.deeds([0, 1]) == {0: Deeds(False, 0), 1: Deeds(False, 0)}
    finally:
        ran(mesh, "ledger.read = read")


def test_groups_of_the_user_and_of_axes_go_on(mesh: Mesh) -> None:
    ran(mesh, "old, line = dist.group.WORLD, mesh.device_mesh")
    part(mesh, "if rank == 1: raise ValueError\ndist.all_reduce(torch.ones(1), group=pair)")
    gathered = "x = torch.ones(1)\ndist.all_reduce(x, group=pair)\ndist.all_reduce(x, group=line.get_group())\nx.item()"
    assert values(mesh, gathered) == ["4.0", "4.0"]
    assert values(mesh, "old is dist.group.WORLD and line is mesh.device_mesh") == ["True", "True"]
    assert values(mesh, "y = torch.ones(1)\ndist.all_reduce(y, group=dist.new_group())\ny.item()") == ["2.0", "2.0"]
    assert mesh.ledger().findings == ()


def test_what_was_counted_before_does_not_count(mesh: Mesh) -> None:
    part(mesh, "if rank == 1: raise ValueError\ndist.barrier()")
    assert mesh.mend() == ""
    part(mesh, "dist.all_reduce(torch.ones(1))\nif rank == 1: raise ValueError\ndist.barrier()")
    assert mesh.mend() == ""


@pytest.mark.parametrize("more", ["dist.new_group()", "dist.new_group([0, 1], use_local_synchronization=True)"])
def test_groups_that_only_some_ranks_have_are_dropped_and_the_others_go_on(mesh: Mesh, more: str) -> None:
    part(mesh, f"if rank == 1: raise ValueError\nalone = {more}\ndist.barrier()")
    assert mesh.roster.groups.is_renewed
    met = f"y = torch.ones(1)\nfor g in (pair, None, {more}): dist.all_reduce(y, group=g)\ny.item()"
    assert values(mesh, met) == ["8.0", "8.0"]


def test_a_group_whose_making_was_interrupted_is_dropped(mesh: Mesh) -> None:
    torn = "world = dist.distributed_c10d._world\nhalf = dist.new_group([0], use_local_synchronization=True)"
    ran(mesh, f"{torn}\ndel world.pg_group_ranks[half]", [0])
    part(mesh, "if rank == 1: raise ValueError\ndist.barrier()")
    assert mesh.roster.groups.is_renewed
    assert values(mesh, "half in world.pg_map", [0]) == ["False"]


def test_the_group_of_a_slice_goes_on(mesh: Mesh) -> None:
    """It is made as a cell runs on the slice: by those of its ranks that come so far."""
    ran(mesh, "mine = group\nassert group.size() == 1", [0])
    part(mesh, "if rank == 1: raise ValueError\ndist.barrier()")
    assert values(mesh, "dist.barrier(group=group), group is mine", [0]) == ["(None, True)"]


def test_where_the_user_has_made_the_default_group_it_goes_on(mesh: Mesh) -> None:
    ran(mesh, "dist.init_process_group('gloo')\nown = dist.group.WORLD")
    part(mesh, "if rank == 1: raise ValueError\ndist.barrier()")
    assert values(mesh, "x = torch.ones(1)\ndist.all_reduce(x, group=own)\nx.item()") == ["2.0", "2.0"]
    ran(mesh, "dist.destroy_process_group(dist.new_group())\ndist.destroy_process_group()")
    mesh.unstick()
    assert values(mesh, "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()") == ["2.0", "2.0"]
    ran(mesh, MODELS)


def test_a_rank_that_lacks_the_newest_groups_keeps_the_others_from_renewing_theirs(mesh: Mesh, tmp_path: Path) -> None:
    """It has been busy since before all were made anew: what it had then meets nobody."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = mesh.run(f"open({str(gate)!r}).read()", [1])
    assert regroup(mesh.roster) == (1,)
    assert regroup(mesh.roster, renews=True) == (1,)
    gate.write_text("")
    run.finished.get(30)
    assert values(mesh, SUM) == ["3.0", "3.0"]
    ran(mesh, MODELS)


def test_a_rank_that_gives_up_its_groups_before_it_renews_them_says_so(mesh: Mesh, tmp_path: Path) -> None:
    """Made anew, they would not meet those of the others: all would wait for ever."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = mesh.run(f"open({str(gate)!r}).read()\ndist.destroy_process_group()", [1])
    assert regroup(mesh.roster, renews=True) == (1,)
    gate.write_text("")
    run.finished.get(30)
    assert "no groups that it could renew" in values(mesh, "group.size()", [1])[0]
    assert mesh.mend() == ""  # there is nothing that could be compared
    mesh.unstick()
    assert values(mesh, SUM) == ["3.0", "3.0"]
    ran(mesh, MODELS)


def test_a_restart_makes_them_anew() -> None:
    with Mesh.up("m", {"dp": 3}, path=sys.path) as mesh:
        assert values(mesh, f"import torch, torch.distributed as dist\n{SUM}") == ["6.0"] * 3
        assert mesh.unstick().is_renewed
        mesh.heal([1])
        assert not mesh.roster.groups.is_renewed
        assert values(mesh, SUM) == ["6.0"] * 3
        assert mesh.unstick().is_renewed
        assert values(mesh, SUM) == ["6.0"] * 3


def test_renewals_find_room_for_what_they_leave_behind() -> None:
    """A session sets a soft limit of 1024 in most places: a mesh with ten groups came to it at the 17th renewal."""
    few = (
        "import os, resource\n_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\nnow = len(os.listdir('/dev/fd'))\n"
    )
    few += "resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))"
    with Mesh.up("m", {"dp": 2}, path=sys.path) as mesh:
        assert values(mesh, f"import torch, torch.distributed as dist\n{SUM}") == ["3.0"] * 2
        ran(mesh, few.format(soft="now + 30", hard="hard"))
        for _ in range(6):
            assert mesh.unstick().is_renewed
            assert values(mesh, SUM) == ["3.0"] * 2
        ran(mesh, few.format(soft="now + 50", hard="now + 50"), [0])
        with pytest.raises(ActorError, match=r"open files and may have .*`%mesh restart`"):
            for _ in range(12):
                mesh.unstick()
        mesh.heal([0])
        assert values(mesh, f"import torch, torch.distributed as dist\n{SUM}") == ["3.0"] * 2


def test_renewals_leave_little_behind_and_end_where_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_state, "MOST_RENEWALS", 5)
    held = "import os\nlen(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task'))"
    with Mesh.up("m", {"dp": 3}, path=sys.path) as mesh:
        assert values(mesh, f"import torch, torch.distributed as dist\n{SUM}") == ["6.0"] * 3
        seen: list[tuple[int, int]] = []
        for _ in range(5):
            assert mesh.unstick().is_renewed
            assert values(mesh, SUM) == ["6.0"] * 3
            seen.append(ast.literal_eval(values(mesh, held, [1])[0]))
        fds, threads = (later - earlier for earlier, later in zip(seen[1], seen[4], strict=True))
        assert (fds, threads) <= (3 * 2 * 6, 3 * 2 * 3)  # of three renewals, of two groups
        assert not mesh.unstick().is_renewed
        mesh.heal([0, 1, 2])
        assert values(mesh, f"import torch, torch.distributed as dist\n{SUM}") == ["6.0"] * 3
        assert mesh.unstick().is_renewed
