"""Cells of the notebook in which this program runs, by the names that their reader knows them by."""

from __future__ import annotations

import linecache
import re
import sys
from typing import NamedTuple


def cell_of(file: str) -> str:
    """The name, such as `cell 5`, of a cell that IPython runs under this file name; empty for any other file.

    Example:
        >>> cell_of("train.py")
        ''
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    label = shell.compile.format_code_name(file) if shell is not None else None
    return f"cell {label[1].removeprefix('In[').removesuffix(']')}" if label is not None else ""


class Line(NamedTuple):
    """A line of the program.

    Example:
        >>> str(Line("train.py", 7, "step"))
        'train.py, line 7, in step'
    """

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        cell = cell_of(self.file)
        inside = "" if cell and self.function == "<module>" else f", in {self.function}"
        return f"{cell or self.file}, line {self.number}{inside}"

    @property
    def text(self) -> str:
        """What stands there; empty where that is not known."""
        return linecache.getline(self.file, self.number).strip()


_BAR = r"^((?: *\| )?)"
"""What a line in the traceback of an exception group begins with."""

_FRAME = re.compile(_BAR + r'  File "([^"\n]+)", line (\d+), in (.+)\n(?!\1    )', re.MULTILINE)
_NAMED = re.compile(_BAR + r'  File "([^"\n]+)"(, line \d+)', re.MULTILINE)


def readable(traceback: str) -> str:
    """A traceback that came from a rank, with the cells of this notebook by their names, and their lines.

    Functions of a notebook go to ranks by value: these know the file names, and not what they stand for.
    """
    traceback = _FRAME.sub(_with_text, traceback)
    return _NAMED.sub(_with_name, traceback)


def _with_text(frame: re.Match[str]) -> str:
    text = Line(frame[2], int(frame[3]), frame[4]).text if cell_of(frame[2]) else ""
    return f"{frame[0]}{frame[1]}    {text}\n" if text else frame[0]


def _with_name(frame: re.Match[str]) -> str:
    cell = cell_of(frame[2])
    return f"{frame[1]}  {cell}{frame[3]}" if cell else frame[0]
