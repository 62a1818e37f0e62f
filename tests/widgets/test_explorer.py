"""The interactive table: what it tells its script, and what is left of it without one."""

from __future__ import annotations

import json
import math
import pickle
from array import array
from typing import Any

import msgspec

from meshbook.kernel.outcome import Failure, Outcome, Value
from meshbook.kernel.values.results import MeshResult
from meshbook.widgets.explorer import ResultTable, columns_of, facts_of
from meshbook.widgets.table import result_html

FAILED = Outcome(failure=Failure("ValueError", "\x1b[1mboom <b>", (), "the traceback"))


def seen(number: float) -> Outcome:
    return Outcome(Value("float", repr(number), pickled=pickle.dumps(number)))


def result(*outcomes: Outcome) -> MeshResult:
    encoded = {rank: msgspec.msgpack.encode(outcome) for rank, outcome in enumerate(outcomes)}
    return MeshResult({"dp": 2, "tp": 2}, range(4), encoded, {0: 0.5}, {}, pickle.loads, result_html, "r", ResultTable)


class Told(ResultTable):
    """Keeps what it sends."""

    def __init__(self, result: MeshResult) -> None:
        self.sent: list[tuple[dict[str, Any], list[bytes]]] = []
        super().__init__(result)

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self.sent.append((content, buffers))


def test_equal_ranks_travel_as_one_group_and_their_numbers_as_columns() -> None:
    r = result(seen(0.5), seen(0.5), seen(math.nan), FAILED)
    groups, numbers, seconds = columns_of(r)
    assert array("I", groups).tolist() == [0, 0, 1, 2]
    assert array("d", numbers).tolist()[:2] == [0.5, 0.5] and math.isnan(array("d", numbers)[2])
    assert array("d", seconds)[0] == 0.5 and math.isnan(array("d", seconds)[1])
    facts = facts_of(r)
    assert facts["axes"] == [("dp", 2), ("tp", 2)] and facts["ranks"] == [0, 1, 2, 3]
    assert [(g["text"], g["state"], g["is_number"]) for g in facts["groups"]] == [
        ("0.5", "ok", True),
        ("nan", "ok", True),
        ("ValueError: boom <b>", "failed", False),
    ]
    json.dumps(facts, allow_nan=False)


def test_a_view_that_says_hello_gets_the_rows_and_one_that_asks_a_page() -> None:
    table = Told(result(seen(1), seen(2), seen(3), FAILED))
    table.on_message({"kind": "hello"}, [])
    table.on_message({"kind": "open", "id": 5, "rank": 3}, [])
    table.on_message({"kind": "open", "id": 6, "rank": 99}, [])
    (rows, buffers), (page, _) = table.sent
    assert rows["kind"] == "rows" and len(buffers) == 3
    assert (page["kind"], page["id"], page["rank"]) == ("page", 5, 3)
    assert "ValueError: boom &lt;b&gt;" in page["html"] and "the traceback" in page["html"]


def test_its_twin_has_a_row_for_every_rank_and_is_what_stays() -> None:
    table = result(seen(1), seen(1), seen(1), seen(2)).table()
    assert isinstance(table, ResultTable)
    bundle, _ = table._repr_mimebundle_()
    assert bundle["text/html"].count("<tr") == 5 and bundle["text/plain"].count("rank ") == 4
    assert "application/vnd.jupyter.widget-view+json" in bundle
    table.on_message({"kind": "close"}, [])
    assert set(table._repr_mimebundle_()[0]) == {"text/html", "text/plain"}


def test_without_a_notebook_a_table_is_a_row_for_every_rank() -> None:
    encoded = {0: msgspec.msgpack.encode(seen(1)), 1: msgspec.msgpack.encode(seen(1))}
    plain = MeshResult({"dp": 2}, range(2), encoded, {}, {}, pickle.loads)
    assert repr(plain.table()).splitlines() == ["1   rank 0", "1   rank 1"]
