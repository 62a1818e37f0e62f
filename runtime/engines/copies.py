"""Copies of the controller's folders on a host, kept by its agent in a folder of its own that goes when it does.

What ranks themselves write into a copy stays: only files that were brought are replaced and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.util import cache_from_source
from pathlib import Path

from msgspec.structs import replace

from ..wire.messages import FileMark
from .manifest import Manifest, difference, lacking, moved, moved_path, refuse_outside
from .spec import RankSpec

_PREFIX = "meshbook-copies-"
_LOCK = "lock"


class Copies:
    """The copies on this host, by the folder of the controller's that they are of."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._lock = -1
        self._copies: dict[str, _Copy] = {}
        self._trouble = ""  # of what came and could not be kept

    def mirror(self, folder: str, files: Mapping[str, FileMark]) -> tuple[bytes, ...]:
        """Let the copy of a folder hold these files; or what is missing for that, and nothing was done.

        Raises `ValueError` for a path that leads out of it, `OSError` where the disk does not do.
        """
        refuse_outside(files)
        trouble, self._trouble = self._trouble, ""
        if trouble:
            raise OSError(trouble)
        if folder not in self._copies:
            self._copies[folder] = _Copy(self._own() / str(len(self._copies)) / Path(folder).name, self._incoming())
        return self._copies[folder].mirror(files)

    def store(self, digest: bytes, data: bytes | bytearray | memoryview) -> None:
        """Keep what a file is to hold until it is asked for."""
        try:
            draft = self._incoming() / "draft"
            draft.write_bytes(data)
            draft.replace(draft.with_name(digest.hex()))
        except OSError as error:  # told when the files are asked for: nobody waits for an answer now
            self._trouble = f"a file could not be kept in {tempfile.gettempdir()}: {error.strerror}"

    def placed(self, spec: RankSpec) -> RankSpec:
        """A rank's spec with the copy of its folder in the place of the folder."""
        if spec.folder not in self._copies:
            return spec
        there = str(self._copies[spec.folder].root)
        cwd = moved(spec.cwd, spec.folder, there)
        return replace(
            spec,
            cwd=cwd if os.path.isdir(cwd) else there,
            path=moved_path(spec.path, spec.folder, there),
        )

    def _own(self) -> Path:
        """The folder of this agent. One whose agent was killed is removed by the next agent of this user here."""
        if self._root is None:
            _remove_deserted()
            # Without links on the way to it: what lies behind one in a copy is not ours to touch.
            root = Path(os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getuid()}-")))
            self._lock = os.open(root / "unlocked", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            (root / "unlocked").rename(root / _LOCK)  # before, others would find it free
            self._root = root
        return self._root

    def _incoming(self) -> Path:
        folder = self._own() / "incoming"
        folder.mkdir(exist_ok=True)
        return folder

    def close(self) -> None:
        """Remove all of it."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            os.close(self._lock)
            self._root, self._copies = None, {}


class _Copy:
    """The copy of one folder at `root`; what its files are to hold lies in `incoming`, by digest."""

    def __init__(self, root: Path, incoming: Path) -> None:
        root.mkdir(parents=True)
        self.root = root
        self._incoming = incoming
        self._have: dict[str, tuple[FileMark, tuple[int, int, int]]] = {}  # with how each looked when it was written

    def mirror(self, want: Manifest) -> tuple[bytes, ...]:
        have = self._untouched()
        arrived = {bytes.fromhex(path.name) for path in self._incoming.iterdir() if path.name != "draft"}
        missing = lacking(want, arrived | {mark.digest for mark in have.values()})
        if missing:
            return missing
        change = difference(have, want)
        needed = {want[path].digest for path in change.put}
        for path, mark in have.items():  # what was moved comes from where it was
            if mark.digest in needed and mark.digest not in arrived:
                shutil.copyfile(self.root / path, self._incoming / mark.digest.hex())
                arrived.add(mark.digest)
        for path in [path for path in self._have if path not in want]:
            self._drop(path)
        for path in change.put:
            self._put(path, want[path])
        for path in self._incoming.iterdir():
            path.unlink()
        return ()

    def _untouched(self) -> dict[str, FileMark]:
        """What it holds of what was brought, without what ranks have changed or removed."""
        return {path: mark for path, (mark, look) in self._have.items() if _look(self.root / path) == look}

    def _put(self, path: str, mark: FileMark) -> None:
        target = self.root / path
        self._make_room(target.parent)
        if target.is_dir() and not target.is_symlink():
            raise OSError(f"{path} is a folder there, in which ranks have written")
        draft = self._incoming / "draft"  # not beside it: ranks can put a link in its way there
        shutil.copyfile(self._incoming / mark.digest.hex(), draft)
        draft.chmod(0o755 if mark.is_executable else 0o644)
        _forget_bytecode(target)
        draft.replace(target)
        look = _look(target)
        assert look is not None
        self._have[path] = mark, look

    def _make_room(self, folder: Path) -> None:
        """Make the folders above a file; a link that a rank has put there would lead elsewhere."""
        for place in [*reversed(folder.relative_to(self.root).parents), folder.relative_to(self.root)]:
            if (self.root / place).is_symlink() or (self.root / place).is_file():
                (self.root / place).unlink()
            (self.root / place).mkdir(exist_ok=True)

    def _drop(self, path: str) -> None:
        target = self.root / path
        del self._have[path]
        if os.path.realpath(target.parent) != str(target.parent):  # through a link that a rank has put there
            return
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
            target.unlink()
        _forget_bytecode(target)
        for folder in target.relative_to(self.root).parents[:-1]:
            try:
                (self.root / folder).rmdir()
            except OSError:  # something is still in it
                return


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        seen = path.lstat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _forget_bytecode(source: Path) -> None:
    """Python goes by seconds and size, which two edits in a row may leave; and a package of bytecode alone is one."""
    if source.suffix == ".py":
        cached = Path(cache_from_source(str(source)))
        with contextlib.suppress(OSError):
            cached.unlink()
        with contextlib.suppress(OSError):  # others are in it
            cached.parent.rmdir()


def _remove_deserted() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{os.getuid()}-*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.getuid():
                continue
            fd = os.open(folder / _LOCK, os.O_RDWR)  # not yet there where an agent has just begun
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(fd)
