"""What a copy of a folder holds, what it is to hold, and what is to be done about the difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ..wire.messages import FileMark

Manifest = Mapping[str, FileMark]
"""Files by their path in the folder, with `/` between its parts."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What makes one manifest of another: first `drop`, then `put`."""

    put: tuple[str, ...]
    drop: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.put or self.drop)


def difference(have: Manifest, want: Manifest) -> Difference:
    """What a copy that holds `have` must do to hold `want`.

    Example:
        >>> one, two = FileMark(b"1"), FileMark(b"2")
        >>> difference({"a.py": one, "b.py": one}, {"b.py": two, "c/d.py": one})
        Difference(put=('b.py', 'c/d.py'), drop=('a.py',))
    """
    put = tuple(path for path, mark in want.items() if have.get(path) != mark)
    return Difference(put, tuple(path for path in have if path not in want))


def lacking(want: Manifest, known: Iterable[bytes]) -> tuple[bytes, ...]:
    """The contents of `want` that are not among those known, each once, in order."""
    here = set(known)
    return tuple(dict.fromkeys(mark.digest for mark in want.values() if mark.digest not in here))


def refuse_outside(paths: Iterable[str]) -> None:
    """Raise `ValueError` for a path that could lead out of the folder that it is said to be in.

    Example:
        >>> refuse_outside(["a.py", "pkg/b.py"])
        >>> refuse_outside(["pkg/../../b.py"])
        Traceback (most recent call last):
        ValueError: 'pkg/../../b.py' leads out of its folder
    """
    for path in paths:
        if not path or path.startswith("/") or "\0" in path or {"", ".", ".."} & set(path.split("/")):
            raise ValueError(f"{path!r} leads out of its folder")


def moved(path: str, here: str, there: str) -> str:
    """A path as it is when the folder `here` has become `there`; others stay.

    Example:
        >>> moved("/home/me/project/src", "/home/me/project", "/tmp/copy"), moved("/opt", "/home", "/tmp/copy")
        ('/tmp/copy/src', '/opt')
    """
    place = PurePosixPath(path)
    return str(PurePosixPath(there) / place.relative_to(here)) if place.is_relative_to(here) else path


def moved_path(path: Sequence[str], here: str, there: str) -> tuple[str, ...]:
    """A `sys.path` whose folder `here` has become `there`, and is what modules are looked for in first.

    Example:
        >>> moved_path(["", "/opt", "/home/me", "/home/me/lib"], "/home/me", "/tmp/copy")
        ('/tmp/copy', '', '/opt', '/tmp/copy/lib')
    """
    found = [there, *(moved(each, here, there) if each else each for each in path)]
    return tuple(dict.fromkeys(found))
