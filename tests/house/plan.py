"""The plan of the house: every file with what its docstring says first. `make docs` writes docs/house.md."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

WINGS = ("magics", "widgets", "kernel", "runtime")
"""From the top down, as imports go."""

HEAD = """\
# The plan of the house

Every file in a line, from what you type down to the sockets. Generated from the docstrings by `make docs`; a test holds
the two together. Imports go one way: magics > widgets > kernel > runtime. For a way through it, read
[a cell's journey](../README.md#a-cells-journey) beside it.
"""


def as_markdown(root: Path = ROOT) -> str:
    """All wings, a section for each folder."""
    sections = [HEAD]
    for wing in WINGS:
        folders = sorted({file.parent for file in (root / wing).rglob("*.py")})
        sections += [_section(folder, root) for folder in folders]
    return "\n".join(sections)


def _section(folder: Path, root: Path) -> str:
    name = folder.relative_to(root).as_posix()
    files = sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")
    rows = [f"| [{file.name}](../{name}/{file.name}) | {_in_cell(first_sentence(file))} |" for file in files]
    return "\n".join(
        [f"## {name}/", "", first_sentence(folder / "__init__.py"), "", "| file | |", "|---|---|", *rows, ""]
    )


@functools.cache
def first_sentence(file: Path) -> str:
    """How the docstring of a file begins, up to its first full stop at a line's end or its first paragraph's."""
    paragraph = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0]
    return re.split(r"(?<=[.:])\n", paragraph)[0].replace("\n", " ").rstrip(":")


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(as_markdown(), end="")
