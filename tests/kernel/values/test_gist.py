"""What numbers are like at a glance: right, bounded, and never at the price of running somebody's code."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.outcome import Gist, Heat
from meshbook.kernel.values.gist import CPU_LIMIT, LEVELS, MAX_SIDE, gist_of
from meshbook.kernel.values.summary import describe

FLOATS = st.floats(-1e6, 1e6, width=32) | st.just(math.nan)


def gist(value: object) -> Gist:
    found = gist_of(value)
    assert found is not None
    return found


def heat(value: object) -> Heat:
    found = gist(value).heat
    assert found is not None
    return found


@given(st.lists(FLOATS, min_size=2, max_size=50))
def test_it_says_what_numpy_says(numbers: list[float]) -> None:
    found, array = gist(torch.tensor(numbers)), np.array(numbers)
    known = array[~np.isnan(array)]
    assert (found.num_nans, found.num_seen) == (len(array) - len(known), len(array))
    if not len(known):
        assert math.isnan(found.least) and math.isnan(found.mean)
        return
    assert (found.least, found.most) == (known.min(), known.max())
    assert found.mean == pytest.approx(known.mean(), abs=1e-3, rel=1e-5)
    assert found.norm == pytest.approx(np.linalg.norm(known), abs=1e-3, rel=1e-5)


@pytest.mark.parametrize("kind", ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64"])
def test_all_types_of_real_numbers_are_looked_at(kind: str) -> None:
    found = gist(torch.tensor([0, 1, 1, 1]).to(getattr(torch, kind)))
    assert (found.least, found.most, found.mean) == (0, 1, 0.75)


def test_more_than_one_thread_takes_at_once_is_added_up() -> None:
    numbers = torch.arange(100_000)
    numbers_seen = gist(numbers)
    assert (numbers_seen.least, numbers_seen.most, numbers_seen.mean) == (0, 99_999, 49_999.5)
    assert numbers_seen.norm == pytest.approx(float(numbers.double().norm()))


def test_an_array_is_looked_at_like_a_tensor() -> None:
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    assert gist(array) == gist(torch.arange(6.0).reshape(2, 3))
    assert gist(np.float32(0.5)) == Gist(0.5, 0.5, 0.5, 0.5, 0, 1)


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        "text",
        [1.0, 2.0],
        torch.tensor([]),
        torch.tensor([1j]),
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        np.array(["a"]),
        np.array([None]),
    ],
    ids=repr,
)
def test_of_anything_else_there_is_none(value: object) -> None:
    assert gist_of(value) is None


def test_a_tensor_of_a_class_of_its_own_is_not_touched() -> None:
    class Distributed(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> object:
            raise AssertionError("a collective")

    assert gist_of(torch.ones(3).as_subclass(Distributed)) is None


def test_what_carries_a_gradient_keeps_its_graph_as_it_was() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))
    assert gist(weight).mean == 1.0 and weight.grad_fn is None
    assert gist(weight * 2).mean == 2.0


def test_of_very_many_numbers_a_sample_is_looked_at_in_no_time() -> None:
    large = torch.zeros(1).expand(1 << 20, 1 << 20)
    started = time.process_time()
    found = gist(large)
    assert time.process_time() - started < 5  # about 0.05
    assert CPU_LIMIT / 4 < found.num_seen <= CPU_LIMIT
    assert found.heat is not None and (found.heat.rows, found.heat.columns) == (MAX_SIDE, MAX_SIDE)


def test_a_matrix_has_a_picture_from_low_to_high_with_its_nans() -> None:
    matrix = torch.arange(16.0).reshape(4, 4)
    matrix[3, 3] = math.nan
    picture = heat(matrix)
    assert (picture.rows, picture.columns, picture.low, picture.high) == (4, 4, 0.0, 14.0)
    assert picture.cells[0] == 1 and picture.cells[14] == LEVELS and picture.cells[15] == 0
    assert list(picture.cells[:15]) == sorted(picture.cells[:15])


def test_a_nan_in_a_large_matrix_is_seen_in_its_picture() -> None:
    matrix = torch.zeros(300, 200)
    matrix[150, 100] = math.nan
    picture = heat(matrix)
    assert (picture.rows, picture.columns) == (64, 64) and 0 in picture.cells


@pytest.mark.parametrize("number", [0.0, math.inf, math.nan])
def test_a_matrix_of_one_number_has_a_picture_of_one_colour(number: float) -> None:
    assert len(set(heat(torch.full((5, 5), number)).cells)) == 1


def test_a_vector_and_a_thin_matrix_have_no_picture() -> None:
    assert gist(torch.zeros(100)).heat is None and gist(torch.zeros(100, 2)).heat is None


def test_it_travels_with_the_value() -> None:
    assert describe(torch.ones(20)).gist == Gist(1.0, 1.0, 1.0, math.sqrt(20), 0, 20)
    assert describe(3).gist is None and describe({"a": 1}).gist is None


@pytest.mark.gpu
def test_on_a_gpu_it_is_the_same_and_a_capture_is_left_alone() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    numbers = torch.arange(90_000.0).reshape(300, 300)
    assert gist(numbers.cuda()).most == gist(numbers).most and heat(numbers.cuda()).rows == 64
    there = numbers.cuda()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert gist_of(there) is None
        there.add_(1)
