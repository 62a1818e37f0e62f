"""The lines that mend a slip, under the story of a cell."""

from __future__ import annotations

import asyncio

import pytest

from meshbook.kernel.failures.slips import with_launchers, with_lines, with_lost_gpus
from meshbook.kernel.failures.story import Hint, Story, tell
from meshbook.kernel.outcome import Failure, Frame
from meshbook.runtime.groups import forked


def hints(*failures: Failure, notebook: tuple[str, ...] = (), has_groups: bool = True) -> list[str]:
    story = tell({"rank": len(failures)}, range(len(failures)), dict(enumerate(failures)))
    told = with_lines(story, failures, notebook, has_groups)
    assert told.hints[-len(story.hints) :] == story.hints
    return [f"{hint.purpose}: {hint.command}" for hint in told.hints[: -len(story.hints)]]


def missed(name: str) -> Failure:
    try:
        eval(name)
    except NameError as error:
        return Failure("NameError", str(error), (), "")
    raise AssertionError


def test_each_name_is_told_once() -> None:
    told = hints(missed("rate"), missed("scale"), missed("rate"), notebook=("scale", "rate"))
    assert told == ["rate, scale are in the notebook: %mesh push rate scale"]


def test_what_a_notebook_has_by_itself_is_not_to_be_pushed() -> None:
    of_history = ["_", "__", "_3", "_i", "_ii", "_oh", "_i12", "_dh", "In", "Out"]
    failures = [Failure("NameError", f"name {name!r} is not defined", (), "") for name in (*of_history, "_mine")]
    told = hints(*failures, notebook=(*of_history, "_mine"))
    assert told == ["_mine is in the notebook: %mesh push _mine"]


def test_a_mesh_without_groups_says_why_there_is_no_group() -> None:
    told = ["the mesh came up with --pg none: dist.group.WORLD, after dist.init_process_group()"]
    assert hints(missed("group"), has_groups=False) == told
    assert hints(missed("group")) == []


def test_what_the_notebook_lacks_too_is_not_told() -> None:
    assert hints(missed("rate"), notebook=("other",)) == []
    assert hints(missed("In"), notebook=("In",)) == [], "it is the shell's"
    assert hints(Failure("KeyError", "name 'rate' is not defined", (), ""), notebook=("rate",)) == []


@pytest.mark.parametrize(
    ("message", "magic"),
    [
        ("Line magic function `%mesh` not found.", "%mesh"),
        ("Line magic function `%on_mesh` not found (But cell magic `%%on_mesh` exists).", "%on_mesh"),
        ("Cell magic `%%on_mesh` not found.", "%%on_mesh"),
    ],
)
def test_our_magics_are_the_notebooks(message: str, magic: str) -> None:
    told = hints(Failure("UsageError", message, (), ""))
    assert told == [f"it is the notebook's, not the ranks': {magic} in a cell of its own"]
    assert hints(Failure("UsageError", message.replace("mesh", "nosuch"), (), "")) == []


def test_a_function_that_wants_the_loop_of_a_cell_without_one() -> None:
    with pytest.raises(RuntimeError) as caught:
        asyncio.get_running_loop()
    failure = Failure("RuntimeError", str(caught.value), (), "")
    told = hints(failure, failure)
    assert told == ["asyncio's loop runs in cells that await: await asyncio.sleep(0) in the cell"]


@pytest.mark.parametrize(
    ("has_groups", "line"), [(True, "%mesh unstick"), (False, "dist.init_process_group() in a cell")]
)
def test_a_group_that_is_not_there(has_groups: bool, line: str) -> None:
    dist = pytest.importorskip("torch.distributed")
    with pytest.raises(ValueError) as caught:
        dist.barrier()
    failure = Failure("ValueError", str(caught.value), (), "")
    assert hints(failure, failure, has_groups=has_groups) == [f"new process groups: {line}"]
    assert Hint("new process groups", line) not in with_lines(tell({}, [], {}), [missed("x")], (), has_groups).hints


def test_a_group_of_which_a_script_makes_a_second_one() -> None:
    dist = pytest.importorskip("torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ValueError) as caught:
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    finally:
        dist.destroy_process_group()
    [told] = hints(Failure("ValueError", str(caught.value), (), ""))
    assert told == "end the group that an earlier cell or script has left: dist.destroy_process_group() in a cell"


def test_what_was_built_on_groups_of_before() -> None:
    where = Frame("/lib/torch/autograd/graph.py", 9, "f", "", False)
    failure = Failure("RuntimeError", "[x/gloo/pair.cc:5] Connection closed by peer [::1]:7", (where,), "")

    def mended(are_anew: bool, *failures: Failure, lost: dict[int, str] | None = None, mended: str = "") -> str:
        story = tell({"rank": 3}, range(3), dict(enumerate(failures)), lost, mended=mended)
        return with_lines(story, failures, (), True, are_anew).mended

    assert "DistributedDataParallel" in mended(True, failure, failure)
    assert mended(False, failure, failure) == ""  # it is somebody else's connection
    assert mended(True, failure, failure, lost={2: "killed"}) == ""  # that is why
    assert mended(True, failure, failure, mended="new process groups") == "new process groups"
    assert mended(True, missed("x")) == ""
    said = (
        "Process group <object at 0x7f> is not initialized in the world group map. Please initialize the group first."
    )
    assert "DistributedDataParallel" in mended(True, Failure("ValueError", said, (), ""))


@pytest.mark.parametrize(
    ("said", "is_lost"),
    [
        ("CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert'", True),
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA out of memory. Tried to allocate 500.00 GiB.", False),
        ("CUDA error: operation not permitted when stream is capturing", False),
    ],
)
def test_a_gpu_that_a_rank_has_lost_for_good_comes_back_with_a_new_process(said: str, is_lost: bool) -> None:
    again = Hint("run again on them alone", "%%on_mesh @failed")
    failures = {1: Failure("AcceleratorError", said, (), ""), 3: Failure("ValueError", "x", (), "")}
    story = with_lost_gpus(Story("", "", (), (), (again,)), failures)
    lost = (Hint("rank 1 can use its GPU no more", "%mesh restart 1"),)
    assert story.hints == (lost if is_lost else (again,))


@pytest.mark.parametrize(
    ("file", "said", "is_told"),
    [
        ("torch.multiprocessing.spawn", "port: 29500, code: -98, name: EADDRINUSE", True),
        ("torch.distributed.launcher.api", "port: 29500, code: -98, name: EADDRINUSE", True),
        ("torch.multiprocessing.spawn", f"RuntimeError: {forked.REFUSAL}, in another process", True),
        ("torch.multiprocessing.spawn", "ValueError: of the function itself", False),
        ("torch.distributed.rendezvous", "port: 29500, code: -98, name: EADDRINUSE", False),
    ],
)
def test_ranks_that_launch_processes_of_a_training_are_told_that_they_are_such(
    file: str, said: str, is_told: bool
) -> None:
    launcher = Frame(str(pytest.importorskip(file).__file__), 1, "start", "", False)
    again = Hint("run it again on all", "%%on_mesh")
    story = with_launchers(Story("", "", (), (), (again,)), {1: Failure("RuntimeError", said, (launcher,), "")})
    told = "call the function itself, without a launcher"
    assert [hint.command for hint in story.hints] == [told if is_told else "%%on_mesh"]
