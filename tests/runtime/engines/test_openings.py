"""Room for the descriptors of ranks: the soft limit of open files grows, and what cannot be is refused with advice."""

from __future__ import annotations

import os
import resource

import pytest

from meshbook.runtime.engines.openings import make_room, new_limit
from meshbook.runtime.errors import SpawnError

NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("num_ranks", "soft", "hard", "limit"),
    [
        (2, 1024, 4096, 1024),
        (200, 1024, 4096, 2936),
        (500, 1024, 4096, 4096),
        (200, 1024, NO_LIMIT, 2936),
        (2, NO_LIMIT, NO_LIMIT, NO_LIMIT),
        (2, 256, 256, 256),  # what some administrators give
        (2, 64, 256, 256),
    ],
)
def test_the_soft_limit_grows_as_far_as_ranks_need_it_and_it_may(
    num_ranks: int, soft: int, hard: int, limit: int
) -> None:
    assert new_limit(num_ranks, 12, soft, hard) == limit


@pytest.mark.parametrize(
    ("num_ranks", "hard", "told"),
    [
        (40, 256, "40 ranks need 316 open files and this process may have 256: ask for at most 30 ranks, or raise"),
        (2, 82, "2 ranks need 88 open files and this process may have 82: ask for at most 1 rank, or raise `ulimit"),
        (1, 64, "1 rank needs 82 open files and this process may have 64: raise `ulimit -n`"),
    ],
)
def test_too_many_ranks_are_refused_with_the_number_that_fits(num_ranks: int, hard: int, told: str) -> None:
    with pytest.raises(SpawnError) as caught:
        new_limit(num_ranks, 12, hard, hard)
    assert str(caught.value).startswith(told)


def test_without_proc_it_says_what_ranks_need(monkeypatch: pytest.MonkeyPatch) -> None:
    def listdir(path: str) -> list[str]:
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(SpawnError, match="mount /proc"):
        make_room(2)


def test_ranks_in_the_place_of_living_ones_need_little_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mesh that fills what this process may open can be restarted."""
    num_open = len(os.listdir("/dev/fd"))
    limit = num_open + 64 + 2 * 20
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    make_room(0, 20)
    with pytest.raises(SpawnError, match=r"21 ranks need \d+ open files"):
        make_room(1, 20)
