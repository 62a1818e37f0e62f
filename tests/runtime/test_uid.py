"""Identifiers as Monarch writes them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime import ProcId, Uid

labels = st.from_regex(r"[a-z]([a-z0-9_-]{0,20}[a-z0-9])?", fullmatch=True)
values = st.integers(min_value=0, max_value=2**64 - 1)


@given(st.none() | labels, values)
def test_what_is_written_is_read_as_the_same(label: str | None, value: int) -> None:
    uid = Uid.instance_from_value(value, label)
    read = Uid.from_string(str(uid))
    assert (read.label, read.instance_value, read) == (label, value, uid)


@given(labels)
def test_a_label_alone_is_a_singleton(label: str) -> None:
    uid = Uid.from_string(label)
    assert (uid.is_singleton, uid.is_instance, uid.label, uid.instance_value) == (True, False, label, None)


@pytest.mark.parametrize(("value", "written"), [(0, "<1>"), (5, "<6>"), (2**64 - 1, "<JPwcyDCgEup>")])
def test_numbers_are_written_in_base_58(value: int, written: str) -> None:
    assert str(Uid.instance_from_value(value)) == written


def test_instances_are_known_by_their_number_singletons_by_their_label() -> None:
    assert Uid.from_string("a<2>") == Uid.from_string("b<2>")
    assert len({Uid.from_string("a<2>"), Uid.from_string("b<2>"), Uid.from_string("a"), Uid.from_string("b")}) == 3
    assert Uid.from_string("a") != "a"
    assert Uid.anonymous() != Uid.anonymous()
    assert Uid.instance("x").label == "x"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "found end of input"),
        ("Foo", "must start with a lowercase letter"),
        ("a_", "must end with a lowercase letter or digit"),
        ("fooBar9", "contains invalid character 'B'"),
        ("a" * 64, "exceeds 63 characters"),
        ("foo<x", "is neither a label nor label<number>"),
        ("foo<>", "expected uid text"),
        ("foo<0>", "invalid base58 uid: 0"),
        ("foo<JPwcyDCgEuq>", "invalid base58 uid"),
    ],
)
@pytest.mark.parametrize("kind", [Uid, ProcId])
def test_what_is_no_identifier_is_refused(kind: Any, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=rf"invalid .*{why}"):
        kind.from_string(text)


@pytest.mark.parametrize(("value", "why"), [(-1, "negative int"), (2**64, "too big")])
def test_a_number_has_64_bits(value: int, why: str) -> None:
    with pytest.raises(OverflowError, match=why):
        Uid.instance_from_value(value)


def test_a_label_is_checked_where_one_is_given() -> None:
    with pytest.raises(ValueError, match="invalid uid label: label must not be empty"):
        Uid.instance("")


def test_a_process_has_an_identifier_and_travels() -> None:
    proc = ProcId.from_string("trainer<3fg>")
    assert (proc.label, proc.uid, str(proc)) == ("trainer", Uid.from_string("trainer<3fg>"), "trainer<3fg>")
    assert pickle.loads(pickle.dumps(proc)) == proc
