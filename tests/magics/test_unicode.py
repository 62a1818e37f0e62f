"""What ranks say that is not Unicode, as a name of a file may be: shown with escapes, and no harm done."""

from __future__ import annotations

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


ODD = """%%on_mesh
from IPython.display import HTML, display
class Odd:
    def __repr__(self):
        return "odd \\udc80"
"""


def test_it_is_shown_with_escapes(kernel: Kernel) -> None:
    kernel.ok(ODD)
    assert kernel.ok("%%on_mesh\nOdd()").text.startswith("odd \\udc80   ranks 0-3")
    assert "odd \\udc80" in kernel.ok("%%on_mesh\ndisplay(Odd())").text
    assert kernel.ok("%%on_mesh\ndisplay(HTML('<b>\\udc80</b>'))").shown[-1]["text/html"] == "<b>\\udc80</b>"
    assert "OSError: no file odd \\udc80" in kernel.cell("%%on_mesh\nraise OSError('no file odd \\udc80')").text
    kernel.ok("%%on_mesh\nfrom meshbook import log\nlog(**{'loss \\udc80': 1.0})")
    assert kernel.ok("%%on_mesh\nrank").text.startswith("0   rank 0")
