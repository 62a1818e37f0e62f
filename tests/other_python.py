"""A second Python for tests: a virtual environment that sees this one's packages, and has one of its own."""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path


def make_bare(folder: Path) -> Path:
    """The Python of a virtual environment with nothing in it."""
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin" / "python"


def make_other(folder: Path) -> Path:
    """One in which `only_there.ANSWER` is 42, and `only_there.Thing` a class."""
    python = make_bare(folder)
    ours = Path(sysconfig.get_paths()["purelib"])
    (theirs,) = folder.glob("lib/python*/site-packages")
    lines = [str(ours), *(path.read_text() for path in ours.glob("__editable__*.pth"))]
    (theirs / "ours.pth").write_text("".join(f"{line}\n" for line in lines))
    (theirs / "only_there.py").write_text("ANSWER = 42\nclass Thing: ...")
    return python
