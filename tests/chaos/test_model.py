"""The model of chaos, and the choice of operations: the same seed gives the same story, and the story makes sense."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos import operations as ops
from tests.chaos.choice import Choice
from tests.chaos.model import UNSET, Model
from tests.chaos.operations import Operation

AXES = {"dp": 2, "tp": 2}


def story(seed: int, steps: int) -> Iterator[tuple[Operation, Model]]:
    """Operations with the model before each, as if all went as it must."""
    model, choice = Model(AXES), Choice(seed)
    for _ in range(steps):
        operation = choice.next(model)
        yield operation, model
        live_through(operation, model)


def live_through(operation: Operation, model: Model) -> None:
    match operation:
        case ops.Kill():
            model.die(operation.ranks)
        case ops.KillDuring() | ops.Leave():
            model.die(operation.victims)
        case ops.Heal():
            model.revive(model.dead, operation.replay)
        case ops.Restart():
            model.die(operation.ranks)
            model.revive(operation.ranks, operation.replay)
        case ops.Halt(then="kill"):
            model.die([operation.rank])
        case ops.Start():
            model.background[operation.number] = operation.ranks
        case ops.Finish():
            del model.background[operation.number]
        case ops.Push():
            model.push(operation.ranks, (operation.value, operation.size))
        case ops.Spawn() if model.alive.issuperset(model.at(operation.where)):
            model.spawn(operation.name, model.at(operation.where), operation.start)
        case ops.Add():
            model.add(operation.name, operation.amount)
        case ops.StopActors():
            del model.troupes[operation.name]
        case _:
            pass


@given(st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_operations(seed: int) -> None:
    first, second = ([str(operation) for operation, _ in story(seed, 60)] for _ in range(2))
    assert first == second


@given(st.integers(0, 2**32))
def test_nobody_is_asked_who_cannot_answer(seed: int) -> None:
    for operation, model in story(seed, 120):
        if isinstance(operation, ops.Kill):
            assert set(operation.ranks) <= model.alive
        elif not isinstance(operation, ops.Restart):
            assert set(getattr(operation, "ranks", ())) <= set(model.free)
        assert set(getattr(operation, "victims", ())) <= set(getattr(operation, "ranks", ()))
        if isinstance(operation, ops.Collect) and operation.axis:
            for rank in operation.ranks:
                assert set(model.line(rank, operation.axis)) <= set(operation.ranks)


@given(st.integers(0, 2**32))
def test_every_cell_is_python(seed: int) -> None:
    for operation, _ in story(seed, 60):
        if source := getattr(operation, "source", ""):
            compile(source, "cell", "exec", flags=0x2000, dont_inherit=True)  # PyCF_ALLOW_TOP_LEVEL_AWAIT


def test_every_kind_of_operation_comes() -> None:
    kinds = {type(operation) for operation, _ in story(0, 2000)}
    assert kinds == set(ops.Operation.__args__)


def test_a_value_that_an_interrupt_left_open_is_known_once_it_was_read() -> None:
    model = Model(AXES)
    model.assign("v = 1", (0, 1), 1)
    model.assign("v = 2\nwait()", (0, 1), 2, is_sure=False)
    assert model.v[0] == {1, 2}
    assert model.saw(0, 1)
    assert not model.saw(0, 2)
    assert model.v[1] == {1, 2}


@pytest.mark.parametrize(("replay", "v", "p"), [("auto", {2}, (5, 1)), ("none", {UNSET}, None)])
def test_who_comes_new_knows_what_is_replayed(
    replay: ops.Replay, v: set[int | None], p: tuple[int, int] | None
) -> None:
    model = Model(AXES)
    model.assign("v = 2", (0, 3), 2)
    model.assign("v = 1", (0, 1), 1)
    model.assign("v = 2", (0, 3), 2)
    model.push((0, 3), (5, 1))
    model.push((0,), (6, 1))
    model.spawn("troupe", (1, 3), 10)
    assert model.add("troupe", 1)
    model.background[1] = (2, 3)
    assert model.die([3]) == [1]
    assert not model.add("troupe", 1)
    model.revive([3], replay)
    assert (model.v[3], model.p[3], model.troupes["troupe"].totals) == (v, p, {1: 11, 3: 10})


def test_sums_along_an_axis() -> None:
    model = Model(AXES)
    assert [model.total(rank, model.everyone, "dp") for rank in model.everyone] == [4, 6, 4, 6]
    assert [model.total(rank, model.everyone, "tp") for rank in model.everyone] == [3, 3, 7, 7]
    assert model.total(1, (1, 3), "") == 6
    assert all(model.state(rank) == "idle" for rank in itertools.chain(model.free))
