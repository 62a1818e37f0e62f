"""Names that a cell missed on ranks, and that the notebook has: the commonest slip of all."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import replace

from .outcome import Failure
from .story import Hint, Story

_MISSED = re.compile(r"name '(\w+)' is not defined")


def with_names(story: Story, failures: Iterable[Failure], notebook: Container[str]) -> Story:
    """The story with the line that brings what the failed ranks missed, where the notebook has a variable so called.

    Example:
        >>> missed = Failure("NameError", "name 'lr' is not defined", (), "")
        >>> with_names(Story("", "", (), (), ()), [missed, missed], {"lr": 0.1}).hints
        (Hint(purpose='lr is in the notebook', command='%mesh push lr'),)
    """
    found = [_MISSED.match(failure.message) for failure in failures if failure.type_name == "NameError"]
    names = list(dict.fromkeys(each[1] for each in found if each is not None and each[1] in notebook))
    if not names:
        return story
    purpose = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} in the notebook"
    return replace(story, hints=(Hint(purpose, f"%mesh push {' '.join(names)}"), *story.hints))
