from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.lib.pretty import pretty  # pyright: ignore[reportUnknownVariableType]

from meshbook.runtime.shape import Extent, Point, Shape
from meshbook.runtime.values import MOST_LINES, ValueMesh

GRID = Shape.row_major({"x": 2, "y": 3})


def names() -> ValueMesh[str]:
    return ValueMesh(GRID, ["00", "01", "02", "10", "11", "12"])


def text_of(values: ValueMesh[Any]) -> list[str]:
    return str(pretty(values)).splitlines()


class TestAccess:
    def test_like_a_mapping(self) -> None:
        values = names()
        assert values.values() == ["00", "01", "02", "10", "11", "12"]
        assert [(dict(point), value) for point, value in values.items()][4] == ({"x": 1, "y": 1}, "11")
        assert list(values) == list(values.items()) == list(zip(values.keys(), values.values(), strict=True))
        assert dict(values) == dict(values.items())
        assert (len(values), values.shape, values.extent) == (6, GRID, Extent(["x", "y"], [2, 3]))

    def test_in_and_brackets_take_points(self) -> None:
        values = names()
        point = values.keys()[5]
        assert values[point] == values.item(**point) == "12"
        assert point in values
        assert (point, "12") in values
        assert (point, "00") not in values
        assert "12" not in values
        elsewhere = Point(5, Extent(["rank"], [6]))
        assert elsewhere not in values
        with pytest.raises(KeyError, match="is not a point of"):
            values[elsewhere]
        with pytest.raises(TypeError, match=r"not subscriptable by int: use get\(rank\)"):
            values[0]  # pyright: ignore[reportArgumentType]

    def test_get_counts_in_the_view(self) -> None:
        row = names().slice(x=1)
        assert (row.get(0), row.shape.ranks()) == ("10", [3, 4, 5])
        for rank in (3, -1):
            with pytest.raises(ValueError, match=rf"index {rank} out of range \(len=3\)"):
                row.get(rank)

    def test_item(self) -> None:
        values = names()
        assert values.item(y=2, x=0) == "02"
        assert values.slice(x=1, y=2).item() == "12"
        with pytest.raises(KeyError, match="Missing coordinate for dimension 'y'"):
            values.item(x=0)
        with pytest.raises(KeyError, match="item has extra dimensions"):
            values.item(x=0, y=0, z=0)
        for y in (3, -1):
            with pytest.raises(IndexError, match="out of range"):
                values.item(x=0, y=y)

    def test_wrong_number_of_values(self) -> None:
        with pytest.raises(ValueError, match="expected 6 ranks, but contains 2 ranks"):
            ValueMesh(GRID, [1, 2])

    def test_what_is_no_shape(self) -> None:
        extent: Any = Extent(["a"], [1])  # as long as its axes are many
        with pytest.raises(
            TypeError, match=r"on a Shape, and Extent \{a: 1\} is none: `.region.as_shape\(\)` makes it"
        ):
            ValueMesh(extent, [1])
        with pytest.raises(TypeError, match="on a Shape, and Extent"):
            ValueMesh.from_indexed(extent, [(5, 1)])
        assert ValueMesh(extent.region.as_shape(), [1]).item(a=0) == 1
        nothing: Any = None
        with pytest.raises(TypeError, match=r"and NoneType None is none, such as Shape.row_major"):
            ValueMesh(nothing, [1])

    def test_from_indexed(self) -> None:
        shape = Shape.row_major({"gpus": 3})
        assert ValueMesh.from_indexed(shape, [(2, "c"), (0, "x"), (1, "b"), (0, "a")]).values() == [
            "a",
            "b",
            "c",
        ]
        with pytest.raises(ValueError, match=r"expected 3 .* contains 2 ranks: no value for rank 1"):
            ValueMesh.from_indexed(shape, [(0, "a"), (2, "c")])
        with pytest.raises(ValueError, match="rank 3 out of range"):
            ValueMesh.from_indexed(shape, [(0, "a"), (1, "b"), (2, "c"), (3, "d")])

    def test_subscript_of_the_class_and_pickle(self) -> None:
        values = ValueMesh[str](GRID.slice(y=1), ["a", "b"])
        copy = pickle.loads(pickle.dumps(values))
        assert (copy.shape, copy.values()) == (values.shape, ["a", "b"])

    def test_values_cannot_be_changed_from_outside(self) -> None:
        given_values = [1, 2]
        values = ValueMesh(Shape.row_major({"x": 2}), given_values)
        given_values[0] = values.values()[1] = 9
        assert values.values() == [1, 2]


class TestMesh:
    @given(st.integers(1, 4), st.integers(1, 4), st.data())
    def test_values_move_with_their_ranks(self, x: int, y: int, data: st.DataObject) -> None:
        reference = np.arange(x * y).reshape(x, y) * 10
        values = ValueMesh(Shape.row_major({"x": x, "y": y}), map(int, reference.ravel()))
        start = data.draw(st.integers(0, y - 1))
        step = data.draw(st.integers(1, 3))
        part = values.slice(y=slice(start, y, step))
        assert part.values() == reference[:, start::step].ravel().tolist()
        row = data.draw(st.integers(0, x - 1))
        assert part.slice(x=row).values() == reference[row, start::step].tolist()
        assert values.flatten("rank").values() == reference.ravel().tolist()
        assert values.split(x=("a", "b"), a=1).slice(a=0).values() == reference.ravel().tolist()

    def test_rename_and_split(self) -> None:
        renamed = names().rename(x="rows", y="cols")
        assert (renamed.sizes, renamed.item(rows=1, cols=0)) == ({"rows": 2, "cols": 3}, "10")
        assert names().flatten("rank").split(rank=("a", "b"), b=2).slice(b=1).values() == ["01", "10", "12"]


class TestDisplay:
    def test_repr_is_monarchs(self) -> None:
        assert repr(ValueMesh(Shape.row_major({"gpus": 2}), [1, 2])) == (
            "ValueMesh({gpus: 2}):\n  (({'gpus': 0/2}, 1), ({'gpus': 1/2}, 2))"
        )

    def test_equal_values_fold(self) -> None:
        assert text_of(ValueMesh(Shape.row_major({"dp": 4}), [6.0] * 4)) == [
            "ValueMesh({dp: 4}):",
            "  0-3: 6.0",
        ]

    def test_a_fold_says_what_its_ranks_share(self) -> None:
        assert text_of(ValueMesh(Shape.row_major({"dp": 2, "tp": 2}), [6.0, 6.0, 6.5, 7.0]))[1:] == [
            "  0-1 (dp=0):     6.0",
            "  2 (dp=1, tp=0): 6.5",
            "  3 (dp=1, tp=1): 7.0",
        ]

    def test_arrays_fold_and_stay_in_column(self) -> None:
        values = ValueMesh(Shape.row_major({"dp": 2}), [np.eye(2), np.eye(2)])
        assert text_of(values)[1:] == ["  0-1: array([[1., 0.],", "              [0., 1.]])"]

    def test_long_and_many_values_are_cut_and_said_so(self) -> None:
        shape = Shape.row_major({"rank": MOST_LINES + 2})
        lines = text_of(ValueMesh(shape, ["a" * rank for rank in range(len(shape))]))
        assert len(lines) == MOST_LINES + 2
        assert lines[-1] == "  ... 2 more different values; items() has all"
        long = text_of(ValueMesh(Shape.unity(), ["a" * 9000]))[1]
        assert long.endswith("a... (7002 characters more)")
        assert len(long) < 2100

    def test_very_many_that_differ_in_their_numbers_alone_are_one_and_the_odd_one_is_another(self) -> None:
        values = ValueMesh(Shape.row_major({"dp": 5, "tp": 4}), [99.0 if i == 7 else i / 4 for i in range(20)])
        assert text_of(values)[1:] == [
            "  0-6,8-19:       0.0…4.75   least: rank 0, most: rank 19",
            "  7 (dp=1, tp=3): 99.0",
            "  ... a…b: from the least to the most; items() has all",
        ]
        assert "<p>... a…b" in values._repr_html_()  # pyright: ignore[reportPrivateUsage]
        assert len(text_of(values.slice(tp=0))) == 6

    def test_html_is_escaped_and_folded(self) -> None:
        html = ValueMesh(GRID, ["<b>"] * 5 + ["&"])._repr_html_()  # pyright: ignore[reportPrivateUsage]
        assert "<td>0-4</td><td></td>" in html
        assert "<td>5</td><td>x=1, y=2</td>" in html
        assert "&#x27;&lt;b&gt;&#x27;" in html
        assert "<b>" not in html

    def test_a_value_is_read_once_however_many_ranks_have_it(self) -> None:
        class Counted:
            reads = 0

            def __repr__(self) -> str:
                Counted.reads += 1
                return "counted"

        text_of(ValueMesh(Shape.row_major({"dp": 8}), [Counted()] * 8))
        assert Counted.reads == 1


def test_no_third_party_is_imported() -> None:
    program = "import sys, meshbook.runtime.values as v; v.ValueMesh(v.Shape.unity(), [1]).item()"
    command = [sys.executable, "-c", f"{program}; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "IPython", "msgspec"} & set(loaded)
