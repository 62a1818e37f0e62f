"""Slips that a line mends: a name or a magic that only the notebook has, process groups that are gone."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import replace

from .cut_off import is_cut_off
from .outcome import Failure
from .story import Hint, Story

_MISSED = re.compile(r"name '(\w+)' is not defined")
_OUR_MAGIC = re.compile(r"(?:Line|Cell) magic(?: function)? `(%mesh|%%?on_mesh)` not found")
NO_GROUP = "Default process group has not been initialized"
"""What torch says where there are none."""

OF_OLD_GROUPS = (
    "the process groups were made anew before: what was built on the old ones (DistributedDataParallel, FSDP) is to "
    "be built again"
)


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
    hints = [*_of_names(told, notebook), *_of_magics(told), *_of_groups(told, has_groups)]
    has_lost_peer = any(fate.is_lost for fate in story.fates)
    if are_anew and not has_lost_peer and not story.mended and any(map(is_cut_off, told)):
        story = replace(story, mended=OF_OLD_GROUPS)
    return replace(story, hints=(*hints, *story.hints))


_SHELLS = {"In", "Out", "exit", "quit", "get_ipython"}
"""What a notebook has without having assigned it: no rank can do anything with it."""


def _of_names(failures: Iterable[Failure], notebook: Container[str]) -> list[Hint]:
    found = [_MISSED.match(failure.message) for failure in failures if failure.type_name == "NameError"]
    names = list(dict.fromkeys(each[1] for each in found if each is not None and each[1] in notebook))
    names = [name for name in names if name not in _SHELLS]
    if not names:
        return []
    purpose = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} in the notebook"
    return [Hint(purpose, f"%mesh push {' '.join(names)}")]


def _of_magics(failures: Iterable[Failure]) -> list[Hint]:
    found = next((each for failure in failures if (each := _OUR_MAGIC.match(failure.message))), None)
    return [Hint("it is the notebook's, not the ranks'", f"{found[1]} in a cell of its own")] if found else []


def _of_groups(failures: Iterable[Failure], has_groups: bool) -> list[Hint]:
    if not any(failure.message.startswith(NO_GROUP) for failure in failures):
        return []
    return [Hint("new process groups", "%mesh unstick" if has_groups else "dist.init_process_group() in a cell")]
