from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.ndslice import numbers
from meshbook.runtime.shape import Extent, MeshTrait, NDSlice, Point, Region, Selector, Shape, Slice

Ranks: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.int64]]"

LABELS = ("host", "dp", "tp", "pp")
sizes_of_meshes = st.lists(st.integers(1, 5), max_size=4).map(lambda sizes: dict(zip(LABELS, sizes, strict=False)))


def reference(sizes: Mapping[str, int]) -> Ranks:
    """The ranks of a mesh as NumPy sees them."""
    return np.arange(int(np.prod(list(sizes.values()), dtype=np.int64))).reshape(tuple(sizes.values()))


def draw_selectors(data: st.DataObject, sizes: Mapping[str, int]) -> dict[str, Selector]:
    selectors: dict[str, Selector] = {}
    for label, size in sizes.items():
        kind = data.draw(st.sampled_from(["keep", "place", "range"]))
        if kind == "place":
            selectors[label] = data.draw(st.integers(0, size - 1))
        elif kind == "range":
            start = data.draw(st.integers(0, size - 1))
            selectors[label] = slice(start, data.draw(st.integers(start + 1, size + 1)), data.draw(st.integers(1, 3)))
    return selectors


def numpy_slice(ranks: Ranks, sizes: Mapping[str, int], selectors: Mapping[str, Selector]) -> Ranks:
    key = tuple(selectors.get(label, slice(None)) for label in sizes)
    return np.asarray(ranks[key])  # pyright: ignore[reportArgumentType, reportCallIssue]


def assert_same(shape: Shape, ranks: Ranks) -> None:
    assert shape.ranks() == ranks.ravel().tolist()
    assert tuple(shape.ndslice.sizes) == ranks.shape
    assert len(shape) == ranks.size


class TestAgainstNumPy:
    @given(sizes_of_meshes, st.data())
    def test_slice_of_slice(self, sizes: dict[str, int], data: st.DataObject) -> None:
        shape, ranks = Shape.row_major(sizes), reference(sizes)
        assert_same(shape, ranks)
        for _ in range(2):
            selectors = draw_selectors(data, shape.sizes)
            ranks = numpy_slice(ranks, shape.sizes, selectors)
            shape = shape.slice(**selectors)
            assert_same(shape, ranks)

    @given(sizes_of_meshes, st.data())
    def test_places_of_a_slice(self, sizes: dict[str, int], data: st.DataObject) -> None:
        selectors = draw_selectors(data, sizes)
        shape = Shape.row_major(sizes).slice(**selectors)
        ranks = numpy_slice(reference(sizes), sizes, selectors)
        for place, rank in np.ndenumerate(ranks):
            point = shape.point_of(int(rank))
            assert tuple(point.values()) == place
            assert shape.coordinates(int(rank)) == dict(point)
            assert shape.slice(**point).ranks() == [rank]
            assert shape.ranks()[point.rank] == shape.ndslice.nditem(place) == shape.ndslice[point.rank] == rank
            assert shape.ndslice.index(int(rank)) == point.rank
        for rank in set(range(len(reference(sizes).ravel()) + 2)) - set(ranks.ravel().tolist()):
            assert rank not in shape.ndslice
            with pytest.raises(ValueError, match="not in slice"):
                shape.point_of(rank)

    @given(sizes_of_meshes, st.data())
    def test_split(self, sizes: dict[str, int], data: st.DataObject) -> None:
        selectors = draw_selectors(data, sizes)
        shape = Shape.row_major(sizes).slice(**selectors)
        ranks = numpy_slice(reference(sizes), sizes, selectors)
        changes: dict[str, int | tuple[str, ...]] = {}
        wanted: list[int] = []
        for label, size in shape.sizes.items():
            inner = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
            changes |= {label: (f"{label}_outer", f"{label}_inner"), f"{label}_inner": inner}
            wanted += [size // inner, inner]
        assert_same(shape.split(**changes), ranks.reshape(wanted))

    @given(sizes_of_meshes, st.data())
    def test_flatten(self, sizes: dict[str, int], data: st.DataObject) -> None:
        selectors = draw_selectors(data, sizes)
        shape = Shape.row_major(sizes).slice(**selectors)
        flat = numpy_slice(reference(sizes), sizes, selectors).ravel()
        if np.all(np.diff(flat) == 1):
            assert_same(shape.flatten("rank"), flat)
            assert shape.flatten("rank").labels == ["rank"]
        else:
            with pytest.raises(ValueError, match="cannot flatten sparse mesh"):
                shape.flatten("rank")

    @given(sizes_of_meshes, st.data())
    def test_rename(self, sizes: dict[str, int], data: st.DataObject) -> None:
        names = {label: f"my_{label}" for label in sizes if data.draw(st.booleans())}
        renamed = Shape.row_major(sizes).rename(**names)
        assert renamed.labels == [names.get(label, label) for label in sizes]
        assert_same(renamed, reference(sizes))

    @given(sizes_of_meshes, st.data())
    def test_positions_and_pickles(self, sizes: dict[str, int], data: st.DataObject) -> None:
        shape = Shape.row_major(sizes).slice(**draw_selectors(data, sizes))
        ranks = shape.ranks()
        bounds = slice(data.draw(st.integers(-9, 9)), data.draw(st.integers(-9, 9)))
        assert shape.ndslice[bounds] == tuple(ranks[bounds])
        assert [shape.ndslice.get(position) for position in range(len(ranks))] == list(shape.ndslice) == ranks
        for thing in (shape.ndslice, shape, shape.extent, shape.region, *shape.extent.points()):
            copy = pickle.loads(pickle.dumps(thing))
            assert copy == thing
            assert hash(copy) == hash(thing)

    @given(st.lists(st.integers(0, 60)))
    def test_from_list_covers_each_rank_once(self, ranks: list[int]) -> None:
        runs = NDSlice.from_list(ranks)
        assert [rank for run in runs for rank in run] == sorted(ranks)

    @given(st.lists(st.integers(1, 4), max_size=3), st.data())
    def test_no_two_places_share_a_number(self, sizes: list[int], data: st.DataObject) -> None:
        strides = [data.draw(st.integers(0, 9)) for _ in sizes]
        places = [np.array(place) for place in np.ndindex(*sizes)]
        values = [int(place @ np.array(strides, dtype=np.int64)) for place in places]
        try:
            counted = list(NDSlice(offset=0, sizes=sizes, strides=strides))
        except ValueError as error:
            # Grids that interleave without a clash (three steps of 2, two of 3) are refused too.
            assert "must be larger than size of previous space" in str(error)
        else:
            assert counted == values
            assert len(set(values)) == len(values)


class TestNDSlice:
    def test_repr_and_properties(self) -> None:
        ndslice = Slice(offset=0, sizes=[2, 3], strides=[3, 1])
        assert repr(ndslice) == str(ndslice) == "Slice { offset: 0, sizes: [2, 3], strides: [3, 1] }"
        assert (ndslice.offset, ndslice.sizes, ndslice.strides, ndslice.ndim) == (0, [2, 3], [3, 1], 2)
        assert Slice.new_row_major([2, 3]) == ndslice
        assert ndslice != Slice(offset=1, sizes=[2, 3], strides=[3, 1])

    def test_order_follows_the_axes_not_the_strides(self) -> None:
        ndslice = Slice(offset=0, sizes=[2, 2, 2], strides=[4, 32, 1])
        assert list(ndslice) == [0, 1, 32, 33, 4, 5, 36, 37]
        assert ndslice.coordinates(36) == [1, 1, 0]

    def test_no_axes_is_one_number(self) -> None:
        ndslice = Slice(offset=37, sizes=[], strides=[])
        assert (list(ndslice), len(ndslice), ndslice.index(37), ndslice.coordinates(37)) == ([37], 1, 0, [])

    def test_an_axis_of_size_0_has_nothing(self) -> None:
        ndslice = Slice.new_row_major([2, 0])
        assert (list(ndslice), len(ndslice), 0 in ndslice) == ([], 0, False)

    def test_cannot_be_changed(self) -> None:
        ndslice = Slice.new_row_major([2])
        ndslice.sizes.append(9)
        assert ndslice.sizes == [2]
        with pytest.raises(AttributeError):
            ndslice.offset = 3  # pyright: ignore[reportAttributeAccessIssue]

    def test_errors(self) -> None:
        ndslice = Slice(offset=10, sizes=[2, 3], strides=[3, 1])
        with pytest.raises(IndexError, match="index 6 out of range 6"):
            ndslice[6]
        with pytest.raises(TypeError):
            ndslice[-1]
        with pytest.raises(ValueError, match="index 6 out of range 6"):
            ndslice.get(6)
        with pytest.raises(ValueError, match="value 16 not in slice"):
            ndslice.index(16)
        with pytest.raises(ValueError, match="value 6 not in slice"):
            ndslice.coordinates(6)
        with pytest.raises(IndexError, match="index 3 out of range 3"):
            ndslice.nditem([0, 3])
        with pytest.raises(IndexError, match="invalid dims: expected 2, got 1"):
            ndslice.nditem([0])
        with pytest.raises(ValueError, match="invalid dims: expected 2, got 1"):
            Slice(offset=0, sizes=[2, 3], strides=[1])
        with pytest.raises(ValueError, match="nonunique strides"):
            Slice(offset=0, sizes=[2, 3], strides=[1, 1])
        with pytest.raises(OverflowError):
            Slice(offset=-1, sizes=[], strides=[])
        assert "x" not in ndslice

    def test_from_list(self) -> None:
        runs = Slice.from_list([12, 11, 10, 1, 3, 5])
        assert [(run.offset, run.sizes, run.strides) for run in runs] == [(1, [3], [2]), (10, [3], [1])]
        assert Slice.from_list([]) == []

    def test_numbers_are_counted_once(self) -> None:
        first = numbers(Shape.row_major({"dp": 32, "tp": 32}).slice(tp=7).ndslice)
        assert numbers(Shape.row_major({"dp": 32, "tp": 32}).slice(tp=7).ndslice) is first


class TestShape:
    shape = Shape(["label0", "label1"], Slice(offset=0, sizes=[2, 3], strides=[3, 1]))

    def test_reprs(self) -> None:
        inner = "Slice { offset: 0, sizes: [2, 3], strides: [3, 1] }"
        assert str(self.shape) == "{label0=2,label1=3}"
        assert repr(self.shape) == f'Shape {{ labels: ["label0", "label1"], slice: {inner} }}'
        assert str(Shape.unity()) == "{}"
        assert (Shape.unity().ranks(), Shape.unity().labels) == ([0], [])

    def test_at_select_index(self) -> None:
        shape = Shape.row_major({"batch": 2, "height": 3, "width": 4})
        middle = shape.at("height", 2)
        assert (middle.labels, middle.ndslice) == (
            ["batch", "width"],
            Slice(offset=8, sizes=[2, 4], strides=[12, 1]),
        )
        assert shape.index(batch=1, width=3) == shape.slice(batch=1, width=3)
        assert shape.select("width", slice(-2, None)).ndslice == Slice(offset=2, sizes=[2, 3, 2], strides=[12, 4, 1])
        with pytest.raises(TypeError, match="select takes a slice of axis width, got 1: `at` takes one position"):
            shape.select("width", 1)  # type: ignore[arg-type]

    def test_equal_shapes(self) -> None:
        assert Shape.row_major({"a": 2}) == Shape(["a"], Slice.new_row_major([2]))
        assert len({Shape.row_major({"a": 2}), Shape.row_major({"a": 2}), Shape.row_major({"b": 2})}) == 2

    def test_errors(self) -> None:
        with pytest.raises(ValueError, match="invalid labels"):
            self.shape.at("nonexistent", 0)
        with pytest.raises(ValueError, match="out of range 5:6:1 for dimension label0 of size 2"):
            self.shape.at("label0", 5)
        with pytest.raises(OverflowError):
            self.shape.at("label0", -1)
        with pytest.raises(ValueError, match="label slice dimension mismatch: 1 != 2"):
            Shape(["a"], Slice.new_row_major([2, 2]))
        with pytest.raises(ValueError, match="Duplicate dimension name 'a'"):
            Shape(["a", "a"], Slice.new_row_major([2, 2]))
        with pytest.raises(ValueError, match="axis 'dp' has size 0"):
            Shape.row_major({"dp": 0})
        with pytest.raises(ValueError, match=r"value 9 not in slice: the ranks of \{label0=2,label1=3\} are 0-5"):
            self.shape.coordinates(9)

    def test_region(self) -> None:
        region = self.shape.slice(label0=1).region
        assert (region.labels, region.slice(), region.as_shape()) == (
            ["label1"],
            Slice(offset=3, sizes=[3], strides=[1]),
            self.shape.slice(label0=1),
        )
        assert region.point_of_base_rank(4) == Point(1, Extent(["label1"], [3]))
        assert region == Region(["label1"], Slice(offset=3, sizes=[3], strides=[1]))
        with pytest.raises(ValueError, match="value 0 not in slice"):
            region.point_of_base_rank(0)


class TestExtentAndPoint:
    extent = Extent(["hosts", "gpus"], [2, 4])

    def test_extent_is_a_mapping(self) -> None:
        assert dict(**self.extent) == {"hosts": 2, "gpus": 4}
        assert (self.extent.labels, self.extent.sizes, self.extent.nelements) == (
            ["hosts", "gpus"],
            [2, 4],
            8,
        )
        assert ("gpus" in self.extent, "z" in self.extent, self.extent.get("z"), self.extent.get("z", 1)) == (
            True,
            False,
            None,
            1,
        )
        assert self.extent.region.as_shape() == Shape.row_major(self.extent)
        assert (repr(self.extent), repr(Extent(["a b"], [1])), Extent([], []).nelements) == (
            "{hosts: 2, gpus: 4}",
            '{"a b": 1}',
            1,
        )

    def test_point_is_a_mapping(self) -> None:
        point = Point(6, self.extent)
        assert repr(point) == str(point) == "{'hosts': 1/2, 'gpus': 2/4}"
        assert (dict(**point), point.size("gpus"), point.rank, point.extent) == (
            {"hosts": 1, "gpus": 2},
            4,
            6,
            self.extent,
        )
        assert repr(Point(0, Extent([], []))) == "{}"
        assert isinstance(point, Mapping)
        assert point.keys() == self.extent.keys() == ["hosts", "gpus"]

    def test_equality(self) -> None:
        assert Point(1, self.extent) == Point(1, Extent(["hosts", "gpus"], [2, 4]))
        assert Point(1, self.extent) != Point(1, Extent(["gpus", "hosts"], [4, 2]))
        assert self.extent != Extent(["gpus", "hosts"], [4, 2])
        assert self.extent != {"hosts": 2, "gpus": 4}

    def test_errors(self) -> None:
        with pytest.raises(ValueError, match="Dimension 'z' not found"):
            self.extent["z"]
        with pytest.raises(ValueError, match="Dimension 'z' not found"):
            Point(0, self.extent)["z"]
        with pytest.raises(ValueError, match="Dimension 'z' not found"):
            Point(0, self.extent).size("z")
        with pytest.raises(ValueError, match="out of range: total ranks 8; does not contain rank 8"):
            Point(8, self.extent)
        with pytest.raises(OverflowError, match="can't convert negative int"):
            Point(-1, self.extent)
        with pytest.raises(OverflowError, match="can't convert negative int"):
            Extent(["a"], [-1])
        with pytest.raises(TypeError, match="'str' object cannot be interpreted as an integer"):
            Extent(["a"], ["x"])  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match="dimension mismatch: 1 != 2"):
            Extent(["a"], [1, 2])


class TestMeshTrait:
    mesh = Shape.row_major({"dp": 2, "tp": 4})

    def test_a_mesh_of_its_own(self) -> None:
        class Mesh(MeshTrait):
            def __init__(self, shape: Shape) -> None:
                self.shape = shape

            @property
            def _ndslice(self) -> NDSlice:
                return self.shape.ndslice

            @property
            def _labels(self) -> tuple[str, ...]:
                return tuple(self.shape.labels)

            def _new_with_shape(self, shape: Shape) -> Mesh:
                return Mesh(shape)

        mesh = Mesh(self.mesh).slice(tp=slice(2, 4)).rename(dp="host").slice(host=1)
        assert isinstance(mesh, Mesh)
        assert (mesh.shape.ranks(), mesh.sizes, len(mesh)) == ([6, 7], {"tp": 2}, 2)

    def test_sizes(self) -> None:
        assert (self.mesh.size(), self.mesh.size("tp"), self.mesh.size(["dp", "tp"]), self.mesh.size([])) == (
            8,
            4,
            8,
            1,
        )
        assert (self.mesh.sizes, self.mesh.extent, len(self.mesh)) == (
            {"dp": 2, "tp": 4},
            Extent(["dp", "tp"], [2, 4]),
            8,
        )
        with pytest.raises(KeyError, match="does not have dimension 'foo'"):
            self.mesh.size("foo")

    @pytest.mark.parametrize(
        ("selectors", "error", "text"),
        [
            ({"foo": 0}, TypeError, "Shape does not have dimension labeled 'foo'"),
            ({"dp": 2}, IndexError, r"index out of range: dp=2, but axis dp has size 2 \(0..1\)"),
            ({"dp": -1}, IndexError, "index out of range"),
            ({"dp": [0]}, TypeError, "axis dp takes an int or a slice, got list"),
            ({"dp": 0.0}, TypeError, "axis dp takes an int or a slice, got float"),
            ({"tp": slice(2, 2)}, ValueError, "empty range 2:2:1"),
            ({"tp": slice(4, 9)}, ValueError, "out of range 4:4:1 for dimension tp of size 4"),
            ({"tp": slice(None, None, -1)}, ValueError, "must run upwards"),
        ],
    )
    def test_slice_errors(self, selectors: dict[str, Selector], error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            self.mesh.slice(**selectors)

    def test_a_step_that_does_not_divide_the_stride(self) -> None:
        assert self.mesh.slice(tp=slice(0, 4, 3)).ranks() == [0, 3, 4, 7]

    def test_split_infers_one_size(self) -> None:
        split = self.mesh.split(tp=("pp", "tp"), pp=2)
        assert split.sizes == {"dp": 2, "pp": 2, "tp": 2}
        assert split.slice(dp=1, tp=1).ranks() == [5, 7]

    @pytest.mark.parametrize(
        ("changes", "error", "text"),
        [
            ({"tp": "a"}, ValueError, "expected a sequence of dimensions, but got 'a'"),
            ({"tp": 2}, TypeError, "expected new names for 'tp'"),
            ({"tp": (("a", "b"),), "b": 2}, TypeError, "expected new names for 'tp'"),
            ({"xx": ("a", "b")}, ValueError, "'xx' is not an existing dim"),
            ({"tp": ("a", "b")}, ValueError, "Cannot infer size of"),
            ({"tp": ("a", "b"), "b": 3}, ValueError, "Dimension 'tp' of size 4 is not evenly divided by"),
            ({"tp": ("a", "b"), "a": 2, "b": 4}, ValueError, r"with sizes \(2, 4\)"),
            ({"tp": ("a", "b"), "a": -2, "b": -2}, ValueError, "is not evenly divided by"),
            ({"tp": ("dp",)}, ValueError, "Duplicate dimension name 'dp'"),
            ({"tp": ("a", "a"), "a": 2}, ValueError, "Duplicate dimension name 'a'"),
            ({"tp": ("a", "a")}, ValueError, "Duplicate dimension name 'a'"),
            ({"tp": ("a", "b"), "b": 2, "c": 2}, ValueError, r"unused size constraints: \('c',\)"),
        ],
    )
    def test_split_errors(self, changes: dict[str, int | tuple[str, ...]], error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            self.mesh.split(**changes)

    def test_flatten(self) -> None:
        assert Shape.unity().flatten("rank").sizes == {"rank": 1}
        assert self.mesh.slice(dp=slice(1, 2), tp=slice(0, 2)).flatten("rank").ranks() == [4, 5]
        strides = r"ndslice.strides=\[4, 1\] != dense_strides=\[2, 1\]; its ranks 0-1,4-5 have gaps"
        with pytest.raises(ValueError, match=f"cannot flatten sparse mesh: {strides}"):
            self.mesh.slice(tp=slice(0, 2)).flatten("rank")

    def test_rename_errors(self) -> None:
        with pytest.raises(ValueError, match="'foo' is not an existing dim"):
            self.mesh.rename(foo="bar")
        with pytest.raises(ValueError, match="Duplicate dimension name 'tp'"):
            self.mesh.rename(dp="tp")


def test_an_axis_that_index_does_not_find_is_told_with_those_of_the_shape() -> None:
    with pytest.raises(ValueError, match=r'invalid labels `\["c"\]`: the axes are \["a", "b"\]'):
        Shape.row_major({"a": 2, "b": 3}).index(a=1, b=2, c=3)
