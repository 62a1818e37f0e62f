"""A folder of this machine as it is brought to hosts: which files it has, by what they hold."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import SpawnError
from ..wire.messages import FileMark

LARGEST = 10 << 20
"""Bytes of a file over which it is left out: what is larger is data, not code."""

MOST_BYTES = 256 << 20
MOST_FILES = 20_000
"""What a folder may hold at most: more of it, and it is not the one that was meant."""

IGNORED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
    | {".venv", ".tox", ".eggs", "node_modules"}
)
"""What is not brought, nor is a folder that holds a virtual environment."""

_SETTLED = 2_000_000_000
"""Nanoseconds after which a file has another time when it changes: clocks of file systems are coarse."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a folder held when somebody looked."""

    files: dict[str, FileMark]
    left_out: tuple[str, ...]
    """What was not taken, each with its reason."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What a file was found to hold, and how it looked then."""

    look: tuple[int, int, int]
    mark: FileMark
    is_settled: bool


class Folder:
    """A folder that is looked at again and again: only files that look otherwise are read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, _Known] = {}

    def survey(self) -> Survey:
        """What it holds now. Raises `SpawnError` where that is more than code can be, or cannot be read."""
        files: dict[str, FileMark] = {}
        left_out: list[str] = []
        total = 0
        for path, entry in self._walk(self.root, "", left_out):
            try:
                if (reason := self._why_not(entry)) or not path.isprintable():
                    left_out.append(f"{_told(path)} ({reason or 'its name cannot be told'})")
                    continue
                total += entry.stat().st_size
                files[path] = self._mark(path, entry)
            except FileNotFoundError:  # it went meanwhile
                continue
            except OSError as error:
                left_out.append(f"{_told(path)} ({error.strerror})")
            if len(files) > MOST_FILES or total > MOST_BYTES:
                most = f"over {MOST_FILES} files or {MOST_BYTES >> 20} MB"
                raise SpawnError(f"--sync: {self.root} holds {most}: name the folder of the code")
        self._known = {path: known for path, known in self._known.items() if path in files}
        return Survey(files, tuple(left_out))

    def _walk(self, folder: Path, above: str, left_out: list[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            if folder == self.root:
                raise SpawnError(f"--sync: {folder} cannot be read: {error.strerror}") from error
            left_out.append(f"{_told(above)} ({error.strerror})")
            return
        for entry in entries:
            path = above + entry.name
            if entry.name in IGNORED:  # `.git` is a file in a worktree
                continue
            if entry.is_dir(follow_symlinks=False):
                if not os.path.isfile(f"{entry.path}/pyvenv.cfg"):  # `Path.is_file` raises where it may not look
                    yield from self._walk(Path(entry.path), f"{path}/", left_out)
            elif not entry.name.endswith(".pyc"):
                yield path, entry

    def _why_not(self, entry: os.DirEntry[str]) -> str:
        """Why a file is not brought; empty for one that is."""
        if entry.is_symlink():
            target = Path(os.path.realpath(entry.path))
            if not target.is_relative_to(os.path.realpath(self.root)):
                return "a link out of the folder"
            if target.is_dir():
                return "a link to a folder"
        look = entry.stat()
        if not stat.S_ISREG(look.st_mode):
            return "no plain file"
        return f"{look.st_size / (1 << 20):.0f} MB, over {LARGEST >> 20} MB" if look.st_size > LARGEST else ""

    def _mark(self, path: str, entry: os.DirEntry[str]) -> FileMark:
        seen = entry.stat()
        look = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
        is_executable = bool(seen.st_mode & stat.S_IXUSR)
        known = self._known.get(path)
        if known is not None and known.is_settled and known.look == look:
            return FileMark(known.mark.digest, is_executable)
        now = time.time_ns()
        mark = FileMark(hashlib.sha256(Path(entry.path).read_bytes()).digest(), is_executable)
        self._known[path] = _Known(look, mark, is_settled=now - seen.st_mtime_ns > _SETTLED)
        return mark

    def read(self, path: str, digest: bytes) -> bytes | None:
        """What a file holds; None where that is no longer what it was found to hold."""
        with contextlib.suppress(OSError):
            data = (self.root / path).read_bytes()
            if hashlib.sha256(data).digest() == digest:
                return data
        return None


def _told(path: str) -> str:
    """A path as it can be printed."""
    return path if path.isprintable() else ascii(path)
