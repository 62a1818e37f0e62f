"""What failed ranks did in common with others: told where it tells what to do next."""

from __future__ import annotations

import pytest

from meshbook.kernel.failures.story import tell
from meshbook.kernel.failures.together import Deeds, together
from meshbook.kernel.outcome import Failure

BOOM = Failure("ValueError", "boom", (), "")


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([4, 4, 4], ""),
        ([0, 1, 1], "ranks 1-2 have made 1 optimizer step in this cell, rank 0 none"),
        ([7, 5, 6], "rank 0 has made 7 optimizer steps in this cell, rank 2 6, rank 1 5"),
        ([1, 2, 3, 9], "ranks 0-3 have made 1 to 9 optimizer steps in this cell"),
        ([1], ""),
    ],
)
def test_ranks_that_have_made_more_steps_than_others_are_told(steps: list[int], text: str) -> None:
    deeds = {rank: Deeds(False, made) for rank, made in enumerate(steps)}
    assert together(deeds).uneven == (text and f"{text}: models and optimizers differ now, load a checkpoint")


@pytest.mark.parametrize(
    ("deeds", "command"),
    [
        ({0: Deeds(False, 0), 1: Deeds(False, 0)}, "run again on it alone: %%on_mesh @failed"),
        ({0: Deeds(True, 0), 1: Deeds(True, 0)}, "run it again on all: %%on_mesh"),
        ({0: Deeds(True, 0), 1: Deeds(False, 0)}, "run it again on all: %%on_mesh"),
        ({}, "run again on it alone: %%on_mesh @failed"),
    ],
)
def test_a_cell_with_collectives_is_not_to_be_run_again_on_one_rank(deeds: dict[int, Deeds], command: str) -> None:
    text = tell({"dp": 2}, range(2), {1: BOOM}, together=together(deeds)).text()
    assert text.splitlines()[-1].endswith(command)


def test_the_story_has_it_beside_the_notes() -> None:
    deeds = {0: Deeds(True, 1), 1: Deeds(True, 0)}
    story = tell({"dp": 2}, range(2), {1: BOOM}, notes=["rank 0 waits"], together=together(deeds))
    assert story.notes == ("rank 0 waits", together(deeds).uneven)
