"""Who brings folders of this machine to hosts: asks each what it lacks, and sends that."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import SpawnError
from ..wire.codec import Encoded
from ..wire.messages import FileMark, Mirror, Store
from .folder import Folder, Survey
from .manifest import difference
from .remote_host import RemoteHost

_TRIES = 5
"""How often a folder may change while it is brought."""

_ANSWER_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was brought from a folder to hosts."""

    folder: Path
    num_hosts: int
    num_files: int
    """That the folder holds."""
    changed: tuple[str, ...]
    """What came or was replaced on some host."""
    removed: tuple[str, ...]
    left_out: tuple[str, ...]


class Courier:
    """Knows which folders are brought to the hosts of an engine, and which host has which state of them."""

    def __init__(self) -> None:
        self._folders: dict[str, Folder] = {}
        self._brought: dict[tuple[str, RemoteHost], Mapping[str, FileMark]] = {}
        self._unsure: set[tuple[str, RemoteHost]] = set()  # what was asked of them did not come to its end
        self._working = threading.Lock()  # meshes may be brought up on several threads

    def bring(self, root: Path, hosts: Sequence[RemoteHost]) -> Delivery:
        """Let these hosts have a copy of a folder as it is now, and those that come in their places.

        A host that is lost is passed over. Raises `SpawnError` where one has no room, or the folder cannot be read.
        """
        with self._working:
            self._brought = {key: seen for key, seen in self._brought.items() if not key[1].trouble}
            self._unsure = {key for key in self._unsure if not key[1].trouble}
            folder = self._folders.setdefault(str(root), Folder(root))
            for _ in range(_TRIES):
                survey = folder.survey()
                before = {host: self._brought.get((str(root), host), {}) for host in hosts}
                if self._all_have(folder, survey, hosts):
                    return _delivery(folder, survey, list(before.values()))
            raise SpawnError(f"--sync: {root} changes all the time: it was not brought to the hosts")

    def catch_up(self, root: str, host: RemoteHost) -> None:
        """Bring a folder anew where this host has come in the place of a lost one: all are to have the same."""
        if root in self._folders and (root, host) not in self._brought:
            others = [other for its, other in list(self._brought) if its == root]
            self.bring(Path(root), [*(other for other in others if not other.trouble), host])

    def _all_have(self, folder: Folder, survey: Survey, hosts: Sequence[RemoteHost]) -> bool:
        """Bring what is missing; False where the folder has changed meanwhile."""
        root = str(folder.root)
        stale = [
            host for host in hosts if (root, host) in self._unsure or self._brought.get((root, host)) != survey.files
        ]
        self._unsure.update((root, host) for host in stale)
        lacks = self._ask(folder, survey, stale)
        by_digest = {mark.digest: path for path, mark in survey.files.items()}
        for digest in dict.fromkeys(each for missing in lacks.values() for each in missing):
            data = folder.read(by_digest[digest], digest)
            if data is None:
                return False
            for host in [host for host, missing in lacks.items() if digest in missing]:
                host.post(Store(digest), Encoded(data, []))
        if any(self._ask(folder, survey, [host for host, missing in lacks.items() if missing]).values()):
            raise SpawnError(f"--sync: a host has lost files of {folder.root} that it was sent")
        self._brought.update({(root, host): survey.files for host in stale if not host.trouble})
        self._unsure.difference_update((root, host) for host in stale)
        return True

    def _ask(self, folder: Folder, survey: Survey, hosts: Sequence[RemoteHost]) -> dict[RemoteHost, frozenset[bytes]]:
        """What each host lacks; one that lacks nothing has the folder as it was surveyed."""
        root = str(folder.root)
        asked = {host: host.ask(lambda seq: Mirror(seq, root, survey.files)) for host in hosts}
        lacks: dict[RemoteHost, frozenset[bytes]] = {}
        for host, pending in asked.items():
            try:
                lacks[host] = frozenset(pending.wait(_ANSWER_SECONDS).lacks)
            except SpawnError as error:
                if host.trouble:  # which its ranks tell by themselves
                    continue
                raise SpawnError(f"{root} was not brought to host {host.name}: {error}") from error
        return lacks


def _delivery(folder: Folder, survey: Survey, before: Sequence[Mapping[str, FileMark]]) -> Delivery:
    changes = [difference(have, survey.files) for have in before]
    return Delivery(
        folder.root,
        len(before),
        len(survey.files),
        tuple(dict.fromkeys(path for change in changes for path in change.put)),
        tuple(dict.fromkeys(path for change in changes for path in change.drop)),
        survey.left_out,
    )
