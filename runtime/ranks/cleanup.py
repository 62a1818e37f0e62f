"""How an actor ends: the meshes that it owns stop, then its `__cleanup__` runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..actor import Actor
from ..errors import MeshbookError
from ..scope import Instance

if TYPE_CHECKING:
    from .resident import Resident

PATIENCE = 3.0
"""Seconds that an actor which ends waits for each mesh it owns, and that who ends it waits for what it works on."""


HEARING = 1.0
"""Seconds in which a rank that ends reads what has come for its actors."""


def stop_owned(resident: Resident) -> None:
    """Stop the meshes that a sync actor owns; nobody is answered through a port of its own any more."""
    why = why_over(resident)
    for mesh in owned_by(resident.instance):
        with already_gone():
            mesh.stop(why).get(PATIENCE)
    resident.close_ports()


def cleaner(resident: Resident) -> Callable[[], Any]:
    """What runs the actor's `__cleanup__`, if it has one that has not run yet."""
    hook = getattr(resident.actor, "__cleanup__", None)
    if hook is None or resident.is_clean:
        return _nothing
    resident.is_clean = True
    failure = resident.failure
    reason = RuntimeError(f"{failure.type_name}: {failure.message}\n{failure.traceback}") if failure else None
    return partial(hook, reason)


def owned_by(instance: Instance) -> list[Any]:
    """The meshes that an actor has made and that end with it, the last first: actors before their processes."""
    owned = list(reversed(instance.owned))
    instance.owned.clear()
    return owned


def why_over(resident: Resident) -> str:
    """Why those meshes stop, as who calls them is told."""
    failure = resident.failure
    if failure is None:
        return f"its owner {resident.instance} has stopped"
    what = failure.message.strip().partition("\n")[0]
    return f"its owner {resident.instance} has failed: {failure.type_name}: {what}"


def already_gone() -> contextlib.suppress:
    """What is dead already, or its process, needs no stop; what does not listen dies with its process."""
    return contextlib.suppress(MeshbookError, TimeoutError, RuntimeError)


def gone(resident: Resident, error: BaseException | None) -> None:
    """`__cleanup__` has run, or failed so: nobody is left to hear of that but the log."""
    if error is not None:
        Actor.logger.error("%s: __cleanup__ failed: %r", resident.instance, error)
    resident.let_go()


def _nothing() -> None: ...
