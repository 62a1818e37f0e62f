"""What code on a rank knows about where it is."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.ranks import place as place_module
from meshbook.runtime.ranks.place import Place, coordinates, enter, here

axes = st.dictionaries(st.text("abcdef", min_size=1), st.integers(1, 4), min_size=1, max_size=4)


@given(axes)
def test_coordinates_are_row_major(axes: dict[str, int]):
    for rank, index in enumerate(np.ndindex(*axes.values())):
        found = coordinates(rank, axes)
        assert list(found) == list(axes)
        assert tuple(found.values()) == index


def new_place(rank: int) -> Place:
    return Place(rank, 4, rank, {"dp": 2, "tp": 2}, "cpu")


def test_a_place_knows_its_point():
    assert new_place(2).coord == {"dp": 1, "tp": 0}


def test_nowhere():
    with pytest.raises(RuntimeError, match="%%on_mesh"):
        here()


def test_a_process_has_a_place_in_all_its_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(place_module, "_process", [])
    found: list[Place] = []
    place = new_place(1)
    enter(new_place(0))
    enter(place)
    thread = threading.Thread(target=lambda: found.append(here()))
    thread.start()
    thread.join()
    assert found == [here()] == [place]


def test_a_thread_has_a_place_of_its_own():
    found: dict[int, Place] = {}

    def work(rank: int) -> None:
        enter(new_place(rank), whole_process=False)
        found[rank] = here()

    for rank in (0, 1):
        thread = threading.Thread(target=work, args=(rank,))
        thread.start()
        thread.join()
    assert {rank: place.rank for rank, place in found.items()} == {0: 0, 1: 1}
    with pytest.raises(RuntimeError):
        here()
