"""Messages of the Debug Adapter Protocol rewritten between a client and the debugger of a rank. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, cast

from ..debug.framing import Message
from .numbers import NOTEBOOK, Kind, Numbers

_ARGUMENTS: tuple[tuple[str, Kind], ...] = (
    ("frameId", "frame"),
    ("srcFrameId", "frame"),
    ("variablesReference", "variables"),
    ("threadId", "thread"),
)
"""What in a request says whose it is, the surest first."""

NOTHING: Message = {"stackFrames": [], "scopes": [], "variables": [], "threads": [], "breakpoints": [], "result": ""}
"""The body of an answer that says no: JupyterLab's panel reads bodies without a look at whether all went well."""


def arguments_of(request: Message) -> dict[str, Any]:
    """What a request is about."""
    return cast("dict[str, Any]", request.get("arguments") or {})


def body_of(told: Message) -> dict[str, Any]:
    """What an answer says."""
    return cast("dict[str, Any]", told.get("body") or {})


def addressee(arguments: Mapping[str, Any], numbers: Numbers) -> tuple[int, dict[str, Any]]:
    """Whose debugger a request is for, and its arguments in that one's numbers.

    Raises `LookupError` for what means nothing any more.

    >>> addressee({"frameId": 3, "expression": "x"}, Numbers())
    (0, {'frameId': 3, 'expression': 'x'})
    """
    whose, own = NOTEBOOK, dict(arguments)
    for name, kind in _ARGUMENTS:
        if isinstance(arguments.get(name), int):
            adapter, own[name] = numbers.meant(kind, arguments[name])
            whose = whose or adapter
    return whose, own


def translated(body: Any, give: Callable[[int], int]) -> Any:
    """The body of an answer with the client's references to variables, wherever they stand.

    >>> translated({"result": "[1]", "variablesReference": 4}, lambda number: number + 100)
    {'result': '[1]', 'variablesReference': 104}
    """
    if isinstance(body, dict):
        known = cast("dict[str, Any]", body)
        return {
            name: give(value) if name == "variablesReference" else translated(value, give)
            for name, value in known.items()
        }
    return [translated(each, give) for each in cast("list[Any]", body)] if isinstance(body, list) else body


def frames_of(body: Mapping[str, Any], label: str, give: Callable[[int], int]) -> list[Message]:
    """The frames that a debugger tells, for a list that has those of others too.

    >>> frames_of({"stackFrames": [{"id": 2, "name": "f", "line": 4}]}, "rank 1", lambda number: number + 100)
    [{'id': 102, 'name': 'rank 1 · f', 'line': 4}]
    """
    return [
        {**frame, "id": give(frame["id"]), "name": f"{label} · {frame['name']}" if label else frame["name"]}
        for frame in body.get("stackFrames", [])
    ]


def answer(request: Message, body: Any = None, trouble: str = "") -> Message:
    """An answer to a request; with `trouble`, one that says no.

    >>> answer({"seq": 3, "command": "next"})["success"], answer({"seq": 4, "command": "next"}, trouble="x")["success"]
    (True, False)
    """
    said = {"type": "response", "seq": request["seq"], "request_seq": request["seq"], "command": request["command"]}
    if trouble:
        return {**said, "success": False, "message": trouble, "body": {**NOTHING, "error": {"format": trouble}}}
    return {**said, "success": True, "body": {} if body is None else body}


def completed(told: Message) -> Message:
    """An answer of the kernel's own debugger; one that says no, with what the panel reads all the same.

    It asks for variables of a frame that has gone on meanwhile.

    >>> completed({"success": False, "body": {"error": {}}})["body"]["variables"], completed({"success": True})
    ([], {'success': True})
    """
    return told if told.get("success", True) else {**told, "body": {**NOTHING, **body_of(told)}}


def event(name: str, body: Message) -> Message:
    """An event for the client."""
    return {"type": "event", "seq": 0, "event": name, "body": body}


def path_in(arguments: Message) -> str:
    """The file that a request is about; empty where it is about none."""
    source: Message | None = arguments.get("source")
    return source.get("path", "") if source else ""


def to_see(arguments: Message) -> Message | None:
    """What to evaluate to see a variable as a rank's own IPython shows it; None where it is no name of a frame.

    >>> to_see({"variableName": "x", "frameId": 4})["expression"]
    'get_ipython().display_formatter.format(x)'
    """
    name = arguments.get("variableName", "")
    if not name.isidentifier() or "frameId" not in arguments:
        return None
    expression = f"get_ipython().display_formatter.format({name})"
    return {"expression": expression, "frameId": arguments["frameId"], "context": "clipboard"}


def seen(told: Message) -> Message:
    """The mime bundle in what came back of that, with what belongs to it."""
    if not told.get("success"):
        return {"data": {}, "metadata": {}}
    data, metadata = ast.literal_eval(told["body"]["result"])
    return {"data": data, "metadata": {kind: metadata[kind] for kind in metadata if kind in data}}


def to_copy(arguments: Message) -> Message | None:
    """What makes a variable of a frame one of the namespace; None where these are no names.

    >>> to_copy({"srcVariableName": "x", "dstVariableName": "y", "srcFrameId": 4})["expression"]
    "globals()['y']"
    """
    source, name = arguments.get("srcVariableName", ""), arguments.get("dstVariableName", "")
    if not (source.isidentifier() and name.isidentifier()):
        return None
    return {"expression": f"globals()['{name}']", "value": source, "frameId": arguments["srcFrameId"]}
