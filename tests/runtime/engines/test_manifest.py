"""What a copy of a folder is to do to hold what it should: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.engines.manifest import difference, lacking, moved_path, refuse_outside
from meshbook.runtime.wire.messages import FileMark

PATHS = st.sampled_from(["a", "b.py", "pkg/a.py", "pkg/b.py", "pkg/sub/a.py"])
MARKS = st.builds(FileMark, st.sampled_from([b"1", b"2", b"3"]), st.booleans())
MANIFESTS = st.dictionaries(PATHS, MARKS)


@given(MANIFESTS, MANIFESTS)
def test_a_difference_makes_one_of_the_other_and_touches_nothing_else(
    have: dict[str, FileMark], want: dict[str, FileMark]
):
    change = difference(have, want)
    kept = {path: mark for path, mark in have.items() if path not in change.drop}
    assert kept | {path: want[path] for path in change.put} == want
    assert not any(have.get(path) == want[path] for path in change.put)
    assert bool(change) == (have != want)


@given(MANIFESTS, st.sets(st.sampled_from([b"1", b"2", b"3"])))
def test_each_content_that_is_missing_is_asked_for_once(want: dict[str, FileMark], known: set[bytes]):
    missing = lacking(want, known)
    assert set(missing) == {mark.digest for mark in want.values()} - known
    assert len(set(missing)) == len(missing)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\0b"])
def test_a_path_that_could_lead_out_is_refused(path: str):
    with pytest.raises(ValueError, match="leads out of its folder"):
        refuse_outside(["fine.py", path])


def test_names_that_only_look_so_are_fine():
    with pytest.raises(ValueError, match=r"^'\.\.' leads out"):
        refuse_outside(["..a", "a..", "a/..b/c", ".hidden", ".."])  # it says which is the first that does


def test_the_copy_comes_first_and_a_neighbour_of_the_folder_stays():
    assert moved_path(["/p/lib", "/p2", "", "/p"], "/p", "/t/p") == ("/t/p", "/t/p/lib", "/p2", "")
