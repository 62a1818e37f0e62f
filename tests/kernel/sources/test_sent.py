"""What ranks were sent, against ranks that keep what comes to them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshbook.kernel.sources import sent as module
from meshbook.kernel.sources.sent import Sent

RANKS = 4

sends = st.tuples(st.just("send"), st.sampled_from("abcdef"), st.sets(st.integers(0, RANKS - 1), min_size=1))
tears = st.tuples(st.just("tear"), st.sampled_from("abcdef"), st.sets(st.integers(0, RANKS - 1), min_size=1))
renewals = st.tuples(st.just("renew"), st.none(), st.sets(st.integers(0, RANKS - 1)))


@given(st.lists(st.one_of(sends, tears, renewals), max_size=40))
@example([("tear" if at in (3, 6) else "send", source, {0}) for at, source in enumerate("cfadbeac")])
def test_a_rank_has_the_text_of_every_key_it_is_sent(steps: list[tuple[str, str | None, set[int]]]) -> None:
    kept, module.KEPT = module.KEPT, 3
    try:
        sent, ranks, keys = Sent(), [dict[int, str]() for _ in range(RANKS)], [set[int]() for _ in range(RANKS)]
        for step, source, chosen in steps:
            if step == "renew":
                for rank in chosen:
                    ranks[rank], keys[rank] = {}, set()
            elif source is not None:
                key, text = sent.key_of(source, [keys[rank] for rank in chosen])
                if step == "tear":
                    continue
                sent.note(key, [keys[rank] for rank in chosen])
                for rank in chosen:
                    if text is not None:
                        ranks[rank][key] = text
                    assert ranks[rank][key] == source
                for outdated in sent.outdated(keys):
                    for texts in ranks:
                        texts.pop(outdated, None)
                assert all(len(texts) <= 3 for texts in ranks)
    finally:
        module.KEPT = kept


Keys = set[int]


def noted(sent: Sent, source: str, *ranks: Keys) -> tuple[int, str | None]:
    """Sent, and noted."""
    key, text = sent.key_of(source, ranks)
    sent.note(key, ranks)
    return key, text


def test_a_source_travels_once() -> None:
    sent, one, two, three = Sent(), Keys(), Keys(), Keys()
    assert [noted(sent, "x", one, two)[1], noted(sent, "x", one, two)[1]] == ["x", None]
    assert noted(sent, "x", two, three) == (1, "x"), "the third has not seen it"


def test_the_source_that_was_used_least_recently_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    sent, rank = Sent(), Keys()
    keys = [noted(sent, source, rank)[0] for source in "aba"]
    assert sent.outdated([rank]) == []
    noted(sent, "c", rank)
    assert sent.outdated([rank]) == [keys[1]] and sent.outdated([rank]) == []
    assert noted(sent, "a", rank) == (keys[0], None)
    assert noted(sent, "b", rank)[1] == "b"


def test_what_was_not_sent_after_all_is_sent_the_next_time() -> None:
    sent, rank = Sent(), Keys()
    assert sent.key_of("x", [rank]) == sent.key_of("x", [rank]) == (1, "x")
