"""Birth certificates as they travel."""

from __future__ import annotations

import pytest

from meshbook.runtime.engines.spec import RankSpec, decode_spec, encode_spec

SPEC = RankSpec(1, 2, 1, 2, {"dp": 2}, 7, False, "token", {"HOME": "/home/me"}, "/work", ("/opt", ""))


@pytest.mark.parametrize("text", ["plain", "é ✓", "\udcff", "é\udcff", ""])
def test_any_text_of_the_system_arrives(text: str) -> None:
    env = {"NAME": text, f"N{text}": "1"}
    spec = RankSpec(1, 2, 1, 2, {"dp": 2}, 7, False, "token", env, f"/{text}", (text, "/opt"), folder=text)
    assert decode_spec(encode_spec(spec)) == spec
    assert decode_spec(encode_spec(SPEC)) == SPEC
