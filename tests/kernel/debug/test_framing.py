"""Messages of the Debug Adapter Protocol arrive whole, however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.debug.framing import Framer, framed

MESSAGES = st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3), max_size=5)


@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1))
def test_messages_come_out_as_they_went_in(messages: list[dict[str, int | str]], cuts: list[int]) -> None:
    data = b"".join(map(framed, messages))
    framer, came = Framer(), []
    while data:
        for cut in cuts:
            came += framer.feed(data[:cut])
            data = data[cut:]
    assert came == messages


def test_other_headers_are_passed_over_and_what_has_no_length_is_refused() -> None:
    assert Framer().feed(b"Content-Type: x\r\ncontent-length: 2\r\n\r\n{}") == [{}]
    with pytest.raises(ValueError, match="without a length"):
        Framer().feed(b"GET / HTTP/1.1\r\n\r\n")
