"""The Python that ranks of this machine run in: the controller's own, or another one, with packages of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ..errors import SpawnError
from .spec import RankSpec
from .versions import Versions, mismatch, own_versions

_PROGRAM = """
import json, platform, sys
from importlib import metadata
def version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
path, trouble = [each for each in sys.path if each], ""
sys.path[:] = path
try:
    import meshbook.runtime.ranks.worker
except Exception as error:
    trouble = f"{type(error).__name__}: {error}"
print(json.dumps([path, trouble, version("meshbook"), platform.python_version(), version("torch")]))
"""
"""What another Python is asked: with no help of ours, since it may be an old one, or lack everything."""

_PATIENCE = 60.0
"""Seconds for an answer: the first import from a folder of the network may take some."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python, the controller's own if nothing is said, and what is another `sys.path` there."""

    executable: str = field(default_factory=lambda: sys.executable)
    not_there: frozenset[str] = frozenset()
    """What the controller's interpreter begins with, which belongs to it alone."""
    path: tuple[str, ...] = ()
    """What this one begins with instead."""

    def path_for(self, path: Sequence[str]) -> tuple[str, ...]:
        """The controller's `sys.path` as a rank in this Python has it: the program's folders, then its own packages.

        Example:
            >>> other = Interpreter("/b/bin/python", frozenset({"/a/site-packages"}), ("/b/site-packages",))
            >>> other.path_for(["", "/home/me/project", "/a/site-packages"])
            ('', '/home/me/project', '/b/site-packages')
            >>> Interpreter().path_for(["", "/a/site-packages"])
            ('', '/a/site-packages')
        """
        return (*(each for each in path if each not in self.not_there), *self.path)

    def spec_for(self, spec: RankSpec) -> RankSpec:
        """The same rank in this Python, where commands (`!pip`, a compiler) are first those beside it."""
        if not self.path:
            return spec
        folders = [os.path.dirname(self.executable), spec.env.get("PATH", os.defpath)]
        return replace(spec, path=self.path_for(spec.path), env=spec.env | {"PATH": os.pathsep.join(folders)})


def find(python: str) -> str:
    """The full path of a Python that is named by its path, or as on the command line.

    Links stay as they are: that of a virtual environment leads to the Python it was made with, which is another one.

    Raises `ValueError` where there is none.
    """
    named = os.path.expanduser(python)
    if found := shutil.which(named):
        return os.path.abspath(found)
    inside = os.path.join(named, "bin", "python")
    hint = f"that is a folder; in it is {inside}" if os.path.exists(inside) else "name one as /opt/venv/bin/python"
    raise ValueError(f"no Python {python!r} can be run here: {hint}")


def ask(executable: str) -> Interpreter:
    """What ranks in this Python need to know of it.

    Raises `SpawnError` where it cannot be theirs: it lacks meshbook, or has another version, or is another Python.
    """
    path, trouble, *versions = _answer(executable)
    if trouble:
        raise SpawnError(f"{executable} cannot run ranks: {trouble}; install meshbook there, with what it needs")
    own = own_versions()
    theirs = Versions(*versions)
    if why := mismatch(theirs._replace(torch=own.torch), own):  # ranks may have torch where the notebook has none
        raise SpawnError(f"{executable} cannot run ranks: {why}")
    here, *_ = _answer(sys.executable)
    return Interpreter(executable, frozenset(here), tuple(path))


def _answer(executable: str) -> Any:
    try:
        told = subprocess.run(
            [executable, "-c", _PROGRAM],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
            cwd=os.sep,  # a folder of the notebook's is not to be taken for a package
            start_new_session=True,  # Jupyter's interrupt signals the kernel's whole process group
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpawnError(f"{executable} cannot run ranks: {error}") from None
    try:
        return json.loads(told.stdout.splitlines()[-1])
    except (IndexError, ValueError):  # no such line
        words = told.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {told.returncode}"]
        raise SpawnError(f"{executable} cannot run ranks: it does not answer as a Python does ({words[0]})") from None
