"""Markdown and LaTeX as the values of a cell: what a front-end is given to render."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import msgspec
import pytest

from meshbook.kernel.outcome import Failure, Outcome, Value
from meshbook.kernel.values.results import MeshResult

HI = {"text/markdown": "**hi** $x^2$"}


def result(*outcomes: Outcome) -> MeshResult:
    encoded = {rank: msgspec.msgpack.encode(outcome) for rank, outcome in enumerate(outcomes)}
    seconds = dict.fromkeys(encoded, 0.5)
    return MeshResult({"dp": len(outcomes)}, list(encoded), encoded, seconds, {}, pickle.loads, lambda _: "<table>")


def bundle(shown: MeshResult) -> Mapping[str, str]:
    return shown._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]


def valued(mime: dict[str, str]) -> Outcome:
    return Outcome(Value("Prose", "<Prose object>", mime))


def test_ranks_that_agree_are_one() -> None:
    shown = bundle(result(valued(HI), valued(HI)))
    assert shown["text/markdown"] == "`ranks 0-1 · 0.50 s`\n\n**hi** $x^2$"
    assert "text/html" in bundle(result(valued(HI), valued(HI)).by_rank()), "a table was asked for"
    assert "<Prose object>" in shown["text/plain"] and "text/html" not in shown


def test_of_others_each_stands_under_its_ranks() -> None:
    shown = bundle(result(valued({"text/latex": "$a$"}), valued({"text/latex": "$b$"})))["text/markdown"]
    assert shown == "`rank 0 · 0.50 s`\n\n$a$\n\n`rank 1 · 0.50 s`\n\n$b$"


@pytest.mark.parametrize(
    "other",
    [
        valued({**HI, "text/html": "<b>hi</b>"}),
        valued({"application/json": "{}"}),
        valued({}),
        valued({"text/markdown": "x" * (1 << 20)}),
        Outcome(failure=Failure("ValueError", "boom", (), "")),
    ],
)
def test_all_else_is_a_table(other: Outcome) -> None:
    shown = bundle(result(valued(HI), other))
    assert "text/markdown" not in shown and shown["text/html"] == "<table>"
