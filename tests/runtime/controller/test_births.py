"""What the controller keeps of actors, to make them again."""

from __future__ import annotations

import pytest

from meshbook.runtime.adverbs import view_of
from meshbook.runtime.controller.births import Births
from meshbook.runtime.orders import Birth
from meshbook.runtime.shape import Shape
from meshbook.runtime.wire import codec

np = pytest.importorskip("numpy")


def test_arguments_are_those_of_the_spawn_also_where_the_caller_changes_them_afterwards() -> None:
    weights = np.zeros(10_000)
    births = Births()
    births.note(Birth((0, 1), 7, "model", view_of(Shape.row_major({"r": 2})), codec.encode(weights)))
    weights[:] = 1
    ((birth, ranks),) = births.again_on([1])
    assert ranks == [1]
    assert not codec.decode(birth.payload.head, birth.payload.buffers).any()
