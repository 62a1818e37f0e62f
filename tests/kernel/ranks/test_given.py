"""Names that cells find: kept up to date, left to who has taken them over, brought back to who has deleted them."""

from __future__ import annotations

from typing import Any

import pytest

from meshbook.kernel.ranks.given import Given, names_of
from meshbook.runtime.ranks.place import Place


def place(rank: int = 2, size: int = 4) -> Place:
    return Place(rank, size, rank, {"dp": size}, "cpu")


@pytest.fixture
def namespace() -> dict[str, Any]:
    return {"display": print, "device": "cpu", **names_of(place())}


@pytest.fixture
def given(namespace: dict[str, Any]) -> Given:
    return Given(namespace, {name: namespace[name] for name in namespace if name != "display"}, {})


def test_who_takes_one_over_is_told_once_and_until_it_is_deleted(namespace: dict[str, Any], given: Given) -> None:
    assert given.notes() == []
    namespace.update(rank=8, coord=1, device="meta")
    rank, coord = given.notes()
    assert "`rank`" in rank and "`del rank` brings back the number of the rank" in rank and "`coord`" in coord
    assert given.notes() == []
    del namespace["rank"]
    given.restore()
    assert namespace["rank"] == 2 and namespace["coord"] == 1 and given.notes() == []
    namespace["rank"] = 9
    assert len(given.notes()) == 1


def test_the_same_number_is_nothing_new(namespace: dict[str, Any], given: Given) -> None:
    namespace["rank"], namespace["world_size"] = int("2"), True
    assert ["world_size" in note for note in given.notes()] == [True]


def test_after_a_resize_what_is_the_users_stays(namespace: dict[str, Any], given: Given) -> None:
    namespace["world_size"] = "mine"
    given.move(place(0, 2))
    assert namespace["rank"] == 0 and namespace["coord"] == {"dp": 0} and namespace["world_size"] == "mine"
    assert given.first["rank"] == 0 and given.first["display"] is print
    del namespace["world_size"]
    given.restore()
    assert namespace["world_size"] == 2


def test_the_group_of_each_cell_unless_the_user_has_one(namespace: dict[str, Any], given: Given) -> None:
    first, second, third, own = object(), object(), object(), object()
    given.replace_group(first)
    assert namespace["group"] is first and given.replace_group(second) == [first, first]
    namespace["group"] = own
    assert len(given.notes()) == 1
    assert given.replace_group(third) == [second]
    assert namespace["group"] is own and given.first["group"] is third
    del namespace["group"]
    given.restore()
    assert namespace["group"] is third


def test_a_value_that_cannot_be_compared(namespace: dict[str, Any], given: Given) -> None:
    class Sulky:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth value is ambiguous")

    namespace["rank"] = Sulky()
    assert len(given.notes()) == 1


def test_what_is_given_is_nothing_of_the_users(namespace: dict[str, Any]) -> None:
    hidden: dict[str, Any] = {"rank": 2}
    given, group = Given(namespace, dict(namespace), hidden), object()
    given.replace_group(group)
    given.move(place(1))
    assert (hidden["group"], hidden["rank"]) == (group, 1)
    hidden.clear()
    given.restore()
    assert hidden["group"] is group
