"""What ranks were sent, against ranks that keep what comes to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel import sent as module
from meshbook.kernel.sent import Sent

RANKS = 4

sends = st.tuples(st.just("send"), st.sampled_from("abcdef"), st.sets(st.integers(0, RANKS - 1), min_size=1))
tears = st.tuples(st.just("tear"), st.sampled_from("abcdef"), st.sets(st.integers(0, RANKS - 1), min_size=1))
renewals = st.tuples(st.just("renew"), st.none(), st.sets(st.integers(0, RANKS - 1)))
shifts = st.tuples(st.just("shift"), st.none(), st.just(set[int]()))


@given(st.lists(st.one_of(sends, tears, renewals, shifts), max_size=40))
def test_a_rank_has_the_text_of_every_key_it_is_sent(steps: list[tuple[str, str | None, set[int]]]) -> None:
    kept, module.KEPT = module.KEPT, 3
    try:
        sent, ranks = Sent(), [dict[int, str]() for _ in range(RANKS)]
        for step, source, chosen in steps:
            if step == "renew":
                sent.renew(chosen)
                for rank in chosen:
                    ranks[rank].clear()
            elif step == "shift":
                sent.reshape({rank: rank - 1 for rank in range(1, RANKS)})
                ranks = [*ranks[1:], {}]
            elif source is not None:
                key, text = sent.key_of(source, sorted(chosen))
                if step == "tear":
                    continue
                sent.note(key, sorted(chosen))
                for rank in chosen:
                    if text is not None:
                        ranks[rank][key] = text
                    assert ranks[rank][key] == source
                if outdated := sent.outdated():
                    for texts in ranks:
                        texts.pop(outdated, None)
                assert all(len(texts) <= 3 for texts in ranks)
    finally:
        module.KEPT = kept


def noted(sent: Sent, source: str, ranks: list[int]) -> tuple[int, str | None]:
    """Sent, and noted."""
    key, text = sent.key_of(source, ranks)
    sent.note(key, ranks)
    return key, text


def test_a_source_travels_once() -> None:
    sent = Sent()
    assert [noted(sent, "x", [0, 1])[1], noted(sent, "x", [0, 1])[1]] == ["x", None]
    assert noted(sent, "x", [1, 2]) == (1, "x"), "rank 2 has not seen it"


def test_a_new_process_is_sent_what_the_old_one_knew() -> None:
    sent = Sent()
    noted(sent, "x", [0, 1])
    sent.renew([1])
    assert [noted(sent, "x", [0])[1], noted(sent, "x", [0, 1])[1]] == [None, "x"]


def test_the_source_that_was_used_least_recently_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    sent = Sent()
    keys = [noted(sent, source, [0])[0] for source in "aba"]
    assert sent.outdated() is None
    noted(sent, "c", [0])
    assert sent.outdated() == keys[1] and sent.outdated() is None
    assert noted(sent, "a", [0]) == (keys[0], None)
    assert noted(sent, "b", [0])[1] == "b"


def test_what_was_not_sent_after_all_is_sent_the_next_time() -> None:
    sent = Sent()
    assert sent.key_of("x", [0]) == sent.key_of("x", [0]) == (1, "x")
