"""The zygote of a notebook: what its ranks find imported, and its start, before all else that `%load_ext` does."""

from __future__ import annotations

from contextlib import suppress

from ..runtime import session as sessions
from ..runtime.errors import SpawnError

_MODULES = ["meshbook.kernel.ranks.agent", "meshbook.kernel.ranks.cell:warm", "meshbook.kernel.ranks.cell:catch_up~"]


def prepare() -> None:
    """Zygotes that are started from now on import what ranks run cells with."""
    if _MODULES[0] not in sessions.ZYGOTE_MODULES:
        sessions.ZYGOTE_MODULES += _MODULES


def warm() -> None:
    """Start one, which imports while this process does, and while the user types. Not on a rank, which is forked."""
    prepare()
    if not sessions.has_meshes():
        with suppress(FileNotFoundError, SpawnError):  # the working directory was removed, or such: `%mesh up` says so
            sessions.session().engine("local").warm()
