"""Warnings name cells."""

from __future__ import annotations

import warnings

import pytest

from meshbook.kernel.ranks.warned import name_cells
from meshbook.kernel.sources.source import file_of, remember


def test_a_cell_by_its_name_and_other_files_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    plain = warnings.formatwarning(UserWarning("careful"), UserWarning, "train.py", 3)
    name_cells()
    file = file_of("cell 5", "x = 1\nlr = warned()\n", 2)
    remember("x = 1\nlr = warned()\n", file, 2)
    told = warnings.formatwarning(UserWarning("careful"), UserWarning, file, 3)
    assert told == "cell 5, line 3: UserWarning: careful\n  lr = warned()\n"
    assert warnings.formatwarning("no", FutureWarning, file, 99) == "cell 5, line 99: FutureWarning: no\n"
    assert (
        warnings.formatwarning("no", FutureWarning, file, 3, "given") == "cell 5, line 3: FutureWarning: no\n  given\n"
    )
    assert warnings.formatwarning(UserWarning("careful"), UserWarning, "train.py", 3) == plain
