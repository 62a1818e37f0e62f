"""The keys by which worker loops and those who dial them know each other: one pair for all that a user runs.

They lie in a file that only this user can read, in the folder that also knows kept hosts. On hosts that share no home
the file has to be brought there, as an ssh key would.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import zmq

from ..system.registry import state_folder
from ..wire.zmq_door import Keys


def key_file() -> Path:
    """Where the keys are, or will be."""
    return state_folder() / "worker.key"


def own_keys() -> Keys:
    """Those of this user, made where there are none yet.

    Raises `OSError` where they cannot be, `PermissionError` where others can read them, `ValueError` for another file.
    """
    path = key_file()
    if not path.exists():
        _make(path)
    info = path.stat()
    is_mine = info.st_uid == os.getuid()
    # A secret that Kubernetes mounts is root's, and the group's of the pod.
    if info.st_mode & (0o077 if is_mine else 0o007) or not (is_mine or info.st_uid == 0):
        raise PermissionError(f"{path}: others than you can read these keys: chmod 600, or remove the file")
    words = path.read_bytes().split()
    if len(words) != 2 or any(len(word) != 40 for word in words):
        raise ValueError(f"{path} holds no keys of worker loops: remove it, and start them again")
    return Keys(*words)


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_suffix(f".{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as file:
        file.write(b"%s\n%s\n" % zmq.curve_keypair())
    try:
        with contextlib.suppress(FileExistsError):  # another process was first: both go by its keys
            os.link(draft, path)
    finally:
        draft.unlink()
