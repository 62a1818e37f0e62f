"""What an actor makes of the failure of a mesh that it owns: it is asked, and fails too unless it has dealt with it."""

from __future__ import annotations

import asyncio
from typing import Any

from .ranks.failure import RemoteFailure, describe
from .ranks.resident import Resident
from .ranks.turns import fatal
from .ranks.unlooped import without_loop
from .supervision import MeshFailure


def ask(owner: Resident, failure: MeshFailure) -> Any:
    """Ask the owner of a mesh that has failed; a coroutine where its hook is one."""
    hook = getattr(owner.actor, "__supervise__", None)
    if owner.failure is not None:
        return None
    try:
        verdict = without_loop(hook)(failure) if hook is not None else False
    except BaseException as error:  # noqa: BLE001 - the rim: a hook that raises fails its actor, with both stories
        return _fail_for(owner, failure, error)
    return _await_verdict(owner, verdict, failure) if hasattr(verdict, "__await__") else _judge(owner, verdict, failure)


async def _await_verdict(owner: Resident, verdict: Any, failure: MeshFailure) -> None:
    try:
        verdict = await verdict
    except asyncio.CancelledError:  # the actor ends
        raise
    except BaseException as error:  # noqa: BLE001 - as above
        _fail_for(owner, failure, error)
    else:
        _judge(owner, verdict, failure)


def _judge(owner: Resident, verdict: object, failure: MeshFailure) -> None:
    if not verdict:
        why = "This actor failed because it did not handle a supervision event from its child."
        owner.die(fatal(RemoteFailure("MeshFailure", f"{failure.report().rstrip()}\n{why}", ""), owner))


def _fail_for(owner: Resident, failure: MeshFailure, error: BaseException) -> None:
    story = describe(error)
    message = (
        f"{story.message}\nThis error occurred while handling a supervision event from its child:\n{failure.report()}"
    )
    owner.die(fatal(RemoteFailure(story.type_name, message, story.traceback), owner))
