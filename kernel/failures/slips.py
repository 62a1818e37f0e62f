"""Slips that a line mends: a name or a magic that only the notebook has, groups that are gone, a GPU that is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace

from ...runtime.ranges import named, ranks_text
from ..outcome import Failure
from ..sources.journal import Entry
from .cut_off import is_cut_off
from .story import Hint, Story

_MISSED = re.compile(r"name '(\w+)' is not defined")
_OUR_MAGIC = re.compile(r"(?:Line|Cell) magic(?: function)? `(%mesh|%%?on_mesh)` not found")
_NO_LOOP = "no running event loop"
NO_GROUP = "Default process group has not been initialized"
"""What torch says where there are none."""

_TWO_GROUPS = "trying to initialize the default process group twice"
"""What it says to a second one in a cell, and in one of a slice to a script that has left its group before."""

OF_OLD_GROUPS = (
    "the process groups were made anew before: what was built on the old ones (DistributedDataParallel, FSDP) is to "
    "be built again"
)

_OF_OLD_GROUP = re.compile("Process group .* is not initialized in the world group map|NCCL communicator was aborted")
"""What torch says to a model on a group that is gone, on GPUs; on CPUs its connections say it."""


def with_lines(
    story: Story, failures: Iterable[Failure], notebook: Container[str], has_groups: bool, are_anew: bool = False
) -> Story:
    """The story with the lines that bring what the failed ranks missed.

    `notebook` has the names of its variables; `has_groups` says whether the mesh came up with process groups, and
    `are_anew` whether those it had at first are gone.

    Example:
        >>> missed = Failure("NameError", "name 'lr' is not defined", (), "")
        >>> with_lines(Story("", "", (), (), ()), [missed, missed], {"lr": 0.1}, True).hints
        (Hint(purpose='lr is in the notebook', command='%mesh push lr'),)
    """
    told = list(failures)
    hints = [*_of_names(told, notebook), *_of_magics(told), *_of_loop(told), *_of_groups(told, has_groups)]
    if not has_groups and "group" in map(missed_name, told):
        hints.append(Hint("the mesh came up with --pg none", "dist.group.WORLD, after dist.init_process_group()"))
    has_lost_peer = any(fate.is_lost for fate in story.fates)
    is_old = any(is_cut_off(failure) or _OF_OLD_GROUP.search(failure.message) for failure in told)
    if are_anew and not has_lost_peer and not story.mended and is_old:
        story = replace(story, mended=OF_OLD_GROUPS)
    return replace(story, hints=(*hints, *story.hints))


def missed_name(failure: Failure) -> str:
    """The name that a cell has not found; empty where it failed otherwise."""
    found = _MISSED.match(failure.message) if failure.type_name == "NameError" else None
    return found[1] if found else ""


def with_makers(
    story: Story, failures: Mapping[int, Failure], maker: Callable[[str, int], Entry | None], num_ranks: int
) -> Story:
    """The story with the cells that make what ranks have not found which came new, as `Journal.missed_maker` tells.

    To run the failed cell again would fail again: that advice goes.
    """
    ranks: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
    for rank, failure in failures.items():
        if (name := missed_name(failure)) and (entry := maker(name, rank)):
            ranks.setdefault((name, entry.name, entry.ranks), []).append(rank)
    if not ranks:
        return story
    hints = [_of_maker(*made, sorted(new), num_ranks) for made, new in ranks.items()]
    kept = [hint for hint in story.hints if not hint.command.startswith("%%on_mesh")]
    return replace(story, hints=(*hints, *kept))


_LOST_GPU = re.compile(
    r"(?:\w+Error: )?CUDA error: (?:device-side assert triggered|unspecified launch failure|misaligned address"
    r"|an illegal (?:memory access|instruction)|invalid (?:program counter|address space)|uncorrectable"
    r"|hardware stack error|the launch timed out|unknown error|an exception occurred on the device)"
)
"""Errors after which CUDA answers each call of the process with the same one."""


def with_lost_gpus(story: Story, failures: Mapping[int, Failure]) -> Story:
    """The story with the line that gives ranks a GPU again whose process has lost it for good.

    To run the failed cell again would fail again: that advice goes.

    Example:
        >>> failure = Failure("AcceleratorError", "CUDA error: device-side assert triggered", (), "")
        >>> with_lost_gpus(Story("", "", (), (), ()), {3: failure}).hints
        (Hint(purpose='rank 3 can use its GPU no more', command='%mesh restart 3'),)
    """
    ranks = sorted(rank for rank, failure in failures.items() if _LOST_GPU.match(failure.message))
    if not ranks:
        return story
    gpus = "its GPU" if len(ranks) == 1 else "their GPUs"
    kept = [hint for hint in story.hints if not hint.command.startswith("%%on_mesh")]
    hint = Hint(f"{named(ranks)} can use {gpus} no more", f"%mesh restart {ranks_text(ranks)}")
    return replace(story, hints=(hint, *kept))


_LAUNCHERS = re.compile(
    r"torch/(multiprocessing/spawn|distributed/launcher/api)\.py|/(accelerate/launchers|launchers/multiprocessing)\.py"
)
"""The files of functions that start the processes of a training: of torch, Accelerate and Lightning."""

_HAS_NO_PLACE = re.compile(r"EADDRINUSE|a forked process cannot use its rank's process group")


def with_launchers(story: Story, failures: Mapping[int, Failure]) -> Story:
    """The story with what to do where ranks have launched processes, of which a mesh has one for each rank already.

    Those of all ranks want the same port, or the groups of the ranks. To run the failed cell again would fail again:
    that advice goes.

    Example:
        >>> from meshbook.kernel.outcome import Frame
        >>> launcher = Frame("site-packages/torch/multiprocessing/spawn.py", 300, "spawn", "", False)
        >>> failure = Failure("DistNetworkError", "port: 29500, name: EADDRINUSE", (launcher,), "")
        >>> with_launchers(Story("", "", (), (), ()), {0: failure}).hints[0].purpose
        'each rank is a process of its own already, and runs the whole cell'
    """
    if not any(_HAS_NO_PLACE.search(each.message) and _is_launched(each) for each in failures.values()):
        return story
    kept = [hint for hint in story.hints if not hint.command.startswith("%%on_mesh")]
    why = "each rank is a process of its own already, and runs the whole cell"
    hint = Hint(why, "call the function itself, without a launcher")
    return replace(story, hints=(hint, *kept))


def _is_launched(failure: Failure) -> bool:
    return any(_LAUNCHERS.search(frame.file) for frame in failure.frames)


def _of_maker(name: str, cell: str, ranks: tuple[int, ...], new: list[int], num_ranks: int) -> Hint:
    since = "it came new" if len(new) == 1 else "they came new"
    where = "%%on_mesh" if len(ranks) == num_ranks else f"%%on_mesh {ranks_text(ranks)}"
    return Hint(f"{cell} makes {name}, and has not run on {named(new)} since {since}; run that again on all", where)


_SHELLS = re.compile(r"In|Out|exit|quit|get_ipython|_+|_i*\d*|_[iod]h|_exit_code")
"""What a notebook has without having assigned it: no rank can do anything with it."""


def _of_names(failures: Iterable[Failure], notebook: Container[str]) -> list[Hint]:
    missed = dict.fromkeys(map(missed_name, failures))
    names = [name for name in missed if name in notebook and not _SHELLS.fullmatch(name)]
    if not names:
        return []
    purpose = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} in the notebook"
    return [Hint(purpose, f"%mesh push {' '.join(names)}")]


def _of_magics(failures: Iterable[Failure]) -> list[Hint]:
    found = next((each for failure in failures if (each := _OUR_MAGIC.match(failure.message))), None)
    return [Hint("it is the notebook's, not the ranks'", f"{found[1]} in a cell of its own")] if found else []


def _of_loop(failures: Iterable[Failure]) -> list[Hint]:
    """A function that the cell calls wants what the cell itself, which awaits nothing, does not have."""
    if not any(failure.message == _NO_LOOP for failure in failures):
        return []
    return [Hint("asyncio's loop runs in cells that await", "await asyncio.sleep(0) in the cell")]


def _of_groups(failures: Iterable[Failure], has_groups: bool) -> list[Hint]:
    messages = [failure.message for failure in failures]
    if any(message.startswith(_TWO_GROUPS) for message in messages):
        return [Hint("end the group that an earlier cell or script has left", "dist.destroy_process_group() in a cell")]
    if not any(message.startswith(NO_GROUP) for message in messages):
        return []
    return [Hint("new process groups", "%mesh unstick" if has_groups else "dist.init_process_group() in a cell")]
