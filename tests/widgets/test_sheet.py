"""Tables of `%mesh who` and `%mesh diff` as HTML."""

from __future__ import annotations

from meshbook.kernel.values.difference import Comparison, LeafDiff, LeafGroup
from meshbook.kernel.values.inventory import Inventory
from meshbook.kernel.values.kept import Summary
from meshbook.kernel.values.leaves import Leaf
from meshbook.kernel.values.measure import Tolerance
from meshbook.kernel.values.names import Held
from meshbook.widgets.difference import DiffView
from meshbook.widgets.inventory import InventoryView
from meshbook.widgets.sheet import SheetRow, sheet_html


def test_rows_that_stand_out_say_why_and_all_is_escaped() -> None:
    page = sheet_html(
        "a <b>", "c <d>", ["<e>"], [SheetRow(["<f>", "<g>"]), SheetRow(["h", "i"], "≠", "<odd>")], ["<j>"]
    )
    for letter in "bdefgj":
        assert (f"<{letter}>" in page, f"&lt;{letter}&gt;" in page) == (False, True)
    assert page.count('class="mb-odd"') == 1 and 'title="&lt;odd&gt;"' in page
    assert "<table" not in sheet_html("a", "nothing", ["x"], [])


def test_in_a_narrow_page_long_texts_are_broken_and_short_ones_are_not() -> None:
    ranks = ",".join(map(str, range(0, 30, 2)))
    page = sheet_html("a", "", ["ranks", "state", "said"], [SheetRow([ranks, "works at cell 12 line 4", "x" * 30])])
    assert "<td>works at cell 12 line 4</td>" in page and f'<td class="mb-long">{"x" * 30}</td>' in page
    assert 'class="mb-long">0,<wbr>2,<wbr>4' in page


def test_an_inventory() -> None:
    inventory = Inventory({0: [Held("x", "value", "int", value="1")], 1: []}, silent=[2])
    page = InventoryView(inventory)._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert page.count('class="mb-odd"') == 2 and "missing" in page and "no answer from rank 2" in page
    empty = InventoryView(Inventory({0: []}))._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "no names yet" in empty
    assert InventoryView(inventory).data() == inventory.data()


def test_a_comparison() -> None:
    leaves = [Leaf("str", bytes([place]), text=f"'<{place}>'") for place in range(2)]
    summaries = {rank: Summary("str", bytes([rank]), 1, 3) for rank in range(2)}
    diff = LeafDiff("", tuple(LeafGroup((rank,), leaf) for rank, leaf in enumerate(leaves)))
    view = DiffView(Comparison((0, 1), summaries, [diff], Tolerance()))
    bundle = view._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]
    assert bundle["text/plain"] == repr(view) == "ranks 0-1 all differ   str\n≠ rank 1  '<1>' instead of '<0>'"
    assert "&#x27;&lt;1&gt;&#x27; instead of" in bundle["text/html"] and "ranks 0-1 all differ" in bundle["text/html"]
