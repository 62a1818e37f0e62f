"""Selectors read against a mesh: what a word without an index is told to be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from meshbook.magics.selection import selection
from meshbook.magics.terms import SelectorError

ROSTER = SimpleNamespace(dead=list, specs=[SimpleNamespace(host="")] * 8)
MESH = SimpleNamespace(axes={"dp": 2, "tp": 4}, num_ranks=8, roster=ROSTER)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dp=0,tp", "'tp' has no index at column 6: write tp=0, or 'all' for every rank"),
        ("rank", "'rank' has no index at column 1: write rank=0, or 'all' for every rank"),
        ("dq", "no axis 'dq' in this mesh (dp=2, tp=4) at column 1: did you mean 'dp'?"),
        ("foo", "no axis 'foo' in this mesh (dp=2, tp=4) at column 1: there are also rank, host, local_rank"),
        ("actors", "'actors' at column 1 is a mesh: it is chosen with -m actors"),
        ("failed", "'failed' is a state at column 1: write @failed"),
    ],
)
def test_a_word_without_an_index(text: str, expected: str):
    with pytest.raises(SelectorError) as caught:
        selection(text, MESH, meshes={"actors"})
    assert str(caught.value) == expected


def test_an_axis_named_like_a_mesh_is_the_axis():
    assert selection("dp=1", MESH, meshes={"dp"}) == (4, 5, 6, 7)
    with pytest.raises(SelectorError, match="'dp' has no index"):
        selection("dp", MESH, meshes={"dp"})
