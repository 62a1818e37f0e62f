"""Which processes this one has started, on disk: what is left of them when it was gone too suddenly can be found.

One small file a controlling process, in a folder that only its user can read. It names each process by its pid and the
time when it began, which together mean no other until the next boot. The lifeline of the ranks leaves nothing behind
(`ranks.lifeline`); this is for the day when it fails. `leftovers` reads what is written here.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .forks import let_go_in_child
from .proc import stat_of


class Entry(msgspec.Struct, frozen=True):
    """A process, named for good."""

    pid: int
    start: int
    """When it began, in clock ticks since boot."""
    what: str
    """Such as `rank 3`."""


class Register(msgspec.Struct, frozen=True):
    """What one controlling process has started."""

    host: str
    boot: str
    """Which boot of the host its pids belong to."""
    space: str
    """Which pid namespace they belong to: that of a container, or of the host."""
    controller: Entry
    processes: list[Entry]


def state_folder() -> Path:
    """Where registers are kept: `$MESHBOOK_STATE`, or else `meshbook` in the XDG folder for state."""
    if own := os.environ.get("MESHBOOK_STATE"):
        return Path(own)
    return Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")) / "meshbook"


def this_place() -> tuple[str, str, str]:
    """Host, boot and pid namespace of this process, as registers name them."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return os.uname().nodename, boot, os.readlink("/proc/self/ns/pid")


def put_privately(path: Path, data: bytes) -> None:
    """Write a file that only this user can read, in one go: another program may read it now."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
    draft.replace(path)


class Registry:
    """The register of this process. There is a file as long as there is something to note."""

    def __init__(self) -> None:
        self._noted: dict[int, list[Entry]] = {}
        self._path: Path | None = None
        self._lock = threading.Lock()  # meshes end on the main thread, ranks are born on the loop's
        let_go_in_child(self)

    def note(self, owner: object, processes: Mapping[int, str]) -> None:
        """These processes, by pid, belong to `owner` from now on, and no others. One write, however many they are."""
        entries = [
            Entry(pid, stat.start, what) for pid, what in processes.items() if (stat := stat_of(pid)) is not None
        ]
        with self._lock:
            if entries:
                self._noted[id(owner)] = entries
            elif self._noted.pop(id(owner), None) is None:
                return
            self._keep()

    def drop(self, owner: object) -> None:
        """Nothing of `owner` is left."""
        self.note(owner, {})

    def let_go(self) -> None:
        """In a forked child: what is noted is its parent's."""
        self._noted, self._path, self._lock = {}, None, threading.Lock()

    def _keep(self) -> None:
        # A home that cannot be written to must not keep a mesh from coming up or going down.
        with contextlib.suppress(OSError):
            if self._noted:
                self._write()
            elif self._path is not None:
                self._path.unlink(missing_ok=True)
                self._path = None

    def _write(self) -> None:
        own = stat_of(os.getpid())
        if own is None:
            return
        if self._path is None:
            self._path = state_folder() / f"{os.getpid()}-{own.start}.json"
        controller = Entry(os.getpid(), own.start, "controller")
        register = Register(*this_place(), controller, [entry for entries in self._noted.values() for entry in entries])
        put_privately(self._path, msgspec.json.encode(register))


registry = Registry()
"""That of this process."""
