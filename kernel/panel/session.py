"""One session of a debugger that covers the notebook's own process and the ranks of its meshes.

The client speaks with it as with one debugger. What concerns the notebook is passed on to ipykernel's as it is; what
concerns a rank goes to that rank's, in its numbers. JupyterLab shows one thread: the frames of the rank that is shown
stand first in the list of frames, those of the others that are stopped below, and a click on one of these shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ..debug.framing import Message
from .adapter import Adapter, AdapterLost
from .bodies import (
    addressee,
    answer,
    arguments_of,
    body_of,
    completed,
    event,
    frames_of,
    path_in,
    seen,
    to_copy,
    to_see,
    translated,
)
from .debuggee import Debuggee, Who
from .floor import Floor, Hide, Told
from .numbers import NOTEBOOK, Numbers

SOON = 0.3
"""Seconds in which a step has usually come to its next stop."""

_GATHERED = 0.1
"""Seconds in which the news of others that stop are gathered: the client asks for all frames anew each time."""

_WAIT = 3.0
"""Seconds that a rank may take to answer; evaluating runs the user's code."""

_WAIT_FOR_CODE = 60.0

_RUNS_CODE = ("evaluate", "setExpression", "setVariable")
_STEPS = ("next", "stepIn", "stepOut")
_FOR_ALL = ("setBreakpoints", "setFunctionBreakpoints", "setExceptionBreakpoints")

Own = Callable[[Message], Awaitable[Message]]
"""Passes a request on to the notebook's own debugger."""


class Session:
    """Requests of the client go in at `request`, events for it come out through `publish`; all on one event loop."""

    def __init__(self, own: Own, publish: Callable[[Message], object]) -> None:
        self._own, self._publish = own, publish
        self._numbers = Numbers()
        self._floor = Floor()
        self._debuggees: dict[int, Debuggee] = {}
        self._own_stop: Message = {}
        self._asked: dict[tuple[str, str], Message] = {}
        self._last = NOTEBOOK
        self._num_steps = 0
        self._is_gathering = False
        self.is_on = False
        """Has a client switched it on?"""

    async def add(self, path: str, who: Who) -> int:
        """Debug the rank that listens there; its number. Raises `OSError`, `AdapterLost`, `TimeoutError`."""
        self._last = number = self._last + 1
        adapter = Adapter(lambda message: self._on_event(number, message), lambda: self._drop(number))
        await adapter.connect(path)
        self._debuggees[number] = Debuggee(number, who, adapter)

        def asked() -> list[tuple[str, Message]]:
            return [(command, arguments) for (command, _), arguments in self._asked.items()]

        try:
            await asyncio.wait_for(adapter.attach(asked), _WAIT)
        except (AdapterLost, TimeoutError):
            self._drop(number)
            await adapter.close()
            raise
        return number

    async def remove(self, numbers: Sequence[int]) -> None:
        """Debug these no longer; what is stopped goes on."""
        gone = [self._debuggees[number] for number in numbers if number in self._debuggees]
        await asyncio.gather(*(each.adapter.close() for each in gone))
        for each in gone:
            self._drop(each.number)

    async def leave(self) -> None:
        """Switch it off on all ranks."""
        self.is_on = False
        self._asked.clear()
        await self.remove(list(self._debuggees))

    def _drop(self, number: int) -> None:
        gone = self._debuggees.get(number)
        if gone is not None:
            gone.who.hold(False)
            self._tell(self._floor.left(number))
            del self._debuggees[number]
            self._numbers.forget(number, ("thread", "frame", "variables"))

    async def request(self, request: Message) -> Message:
        """Answer a request."""
        match request["command"]:
            case "initialize":
                told = await self._own(request)
                self.is_on = bool(told) and told.get("success", True)
                return told
            case "disconnect":
                await self.leave()
                return await self._own(request)
            case _:
                told = await self._answered_or_refused(request)
                # ipykernel says nothing at all where it is off, and the panel reads bodies all the same.
                return told or answer(request, trouble="the debugger is off")

    async def _answered_or_refused(self, request: Message) -> Message:
        try:
            if request["command"] in _FOR_ALL:
                return await self._for_all(request)
            return await (self._answered(request) if self._debuggees else self._own(request))
        except (LookupError, AdapterLost) as reason:
            return answer(request, trouble=str(reason))
        except TimeoutError:
            return answer(request, trouble="the rank does not answer its debugger")

    async def _answered(self, request: Message) -> Message:
        match request["command"]:
            case "debugInfo":
                return self._with_stopped(await self._own(request))
            case "threads":
                return await self._threads(request)
            case "stackTrace":
                return await self._stack(request)
            case "continue" | "next" | "stepIn" | "stepOut":
                return await self._go(request)
            case "pause":
                return await self._pause(request)
            case "richInspectVariables":
                return await self._rich(request)
            case "copyToGlobals":
                return await self._copy(request)
            case _:
                return await self._passed(request)

    async def _passed(self, request: Message) -> Message:
        """Pass a request on to whose numbers are in it."""
        whose, arguments = addressee(arguments_of(request), self._numbers)
        if request["command"] == "scopes":
            self._tell(self._floor.looked(whose))
        if whose == NOTEBOOK:
            return completed(await self._own(request))
        told = await self._ask(whose, request["command"], arguments)
        if not told.get("success"):
            return answer(request, trouble=told.get("message") or "refused")
        return answer(request, translated(told.get("body"), lambda each: self._numbers.given(whose, "variables", each)))

    async def _for_all(self, request: Message) -> Message:
        command, arguments = request["command"], arguments_of(request)
        self._asked[command, path_in(arguments)] = arguments
        asked = asyncio.gather(
            *(self._ask(number, command, arguments) for number in self._debuggees),
            return_exceptions=True,  # a rank that is gone or stuck needs none
        )
        told = await self._own(request)
        await asked
        return told

    async def _ask(self, whose: int, command: str, arguments: Message) -> Message:
        wait = _WAIT_FOR_CODE if command in _RUNS_CODE else _WAIT
        return await asyncio.wait_for(self._debuggees[whose].adapter.ask(command, arguments), wait)

    async def _threads(self, request: Message) -> Message:
        told = await self._own(request)
        ranks = [{"id": self._thread_of(each), "name": each.who.title} for each in self._debuggees.values()]
        own = body_of(told).get("threads", [])
        return answer(request, {"threads": [*own, *ranks]})

    def _with_stopped(self, told: Message) -> Message:
        shown = self._debuggees.get(self._floor.shown or NOTEBOOK)
        if shown is not None and told.get("body"):
            told["body"]["stoppedThreads"] = [self._thread_of(shown)]
        return told

    async def _stack(self, request: Message) -> Message:
        whose, arguments = addressee(arguments_of(request), self._numbers)
        held = self._floor.held
        if not held - {NOTEBOOK} and whose == NOTEBOOK:
            return await self._own(request)
        first = whose if whose in held else self._floor.shown
        others = sorted(held - {first})
        frames: list[Message] = []
        for number in [each for each in (first, *others) if each is not None]:
            found = await self._frames(number, request, arguments)
            frames += found if number == first else found[:1]
        return answer(request, {"stackFrames": frames, "totalFrames": len(frames)})

    async def _frames(self, number: int, request: Message, arguments: Message) -> list[Message]:
        if number == NOTEBOOK:
            thread = self._own_stop.get("threadId", arguments.get("threadId"))
            told = await self._own({**request, "arguments": {**arguments, "threadId": thread}})
            return frames_of(body_of(told), "notebook", lambda each: each)
        held = self._debuggees[number]
        if not held.frames:
            told = await self._ask(number, "stackTrace", {"threadId": held.stopped.get("threadId", 1)})
            held.frames = body_of(told).get("stackFrames", [])
        body: Message = {"stackFrames": held.frames}
        return frames_of(body, held.who.label, lambda each: self._numbers.given(number, "frame", each))

    async def _go(self, request: Message) -> Message:
        """Let the one go on that is meant, or that is shown: JupyterLab says 1 when it means that."""
        whose, arguments = addressee(arguments_of(request), self._numbers)
        number = whose if whose in self._floor.held and whose != NOTEBOOK else self._floor.shown
        if number is None and request["command"] == "continue":
            number = min(self._floor.held, default=None)  # while another steps, the list of frames begins with this one
        if number is None:  # a second click: ipykernel's debugger, which is not stopped, would never answer
            return answer(request, {"allThreadsContinued": True})
        if number == NOTEBOOK:
            self._command(NOTEBOOK, request["command"])
            return await self._own(request)
        self._command(number, request["command"])
        self._went(number)  # before its debugger says so: who clicks twice means two ranks
        thread = self._debuggees[number].stopped.get("threadId", 1)
        told = await self._ask(number, request["command"], {**arguments, "threadId": thread})
        return answer(request, told.get("body"))

    def _command(self, number: int, command: str) -> None:
        is_step = command in _STEPS
        self._floor.commanded(number, is_step=is_step)
        self._num_steps += 1
        if is_step:
            asyncio.get_running_loop().call_later(SOON, self._on_waited, self._num_steps)

    def _on_waited(self, step: int) -> None:
        if step == self._num_steps:
            self._tell(self._floor.waited())

    async def _pause(self, request: Message) -> Message:
        """Pause the ranks that work; where none does, the notebook."""
        busy = [each for each in self._debuggees.values() if each.number not in self._floor.held and each.who.is_busy()]
        if not busy:
            return await self._own(request)
        await asyncio.gather(*(self._ask(each.number, "pause", {"threadId": 1}) for each in busy))
        return answer(request)

    async def _rich(self, request: Message) -> Message:
        """What a variable of a rank looks like, as the rank's own IPython shows it."""
        whose, arguments = addressee(arguments_of(request), self._numbers)
        asked = to_see(arguments)
        if whose == NOTEBOOK or asked is None:
            return await self._own(request)
        return answer(request, seen(await self._ask(whose, "evaluate", asked)))

    async def _copy(self, request: Message) -> Message:
        """A variable of a frame of a rank made one of its namespace."""
        whose, arguments = addressee(arguments_of(request), self._numbers)
        asked = to_copy(arguments)
        if whose == NOTEBOOK or asked is None:
            return await self._own(request)
        told = await self._ask(whose, "setExpression", asked)
        return answer(request, told.get("body"))

    def own_event(self, message: Message) -> None:
        """The notebook's own debugger has told something."""
        kind = message["event"]
        if kind == "stopped" and self.is_on:
            self._own_stop = message["body"]
            self._tell(self._floor.stopped(NOTEBOOK))
        elif kind == "continued" and NOTEBOOK in self._floor.held:
            self._tell(self._floor.went(NOTEBOOK))
        else:
            self._publish(message)

    def _on_event(self, number: int, message: Message) -> None:
        whose = self._debuggees.get(number)
        if whose is None:
            return
        if message["event"] == "stopped":
            whose.stopped, whose.frames = message["body"], []
            whose.who.hold(True)
            self._tell(self._floor.stopped(number))
        elif message["event"] == "continued":
            self._went(number)

    def _went(self, number: int) -> None:
        whose = self._debuggees[number]
        whose.frames = []
        whose.who.hold(False)
        self._tell(self._floor.went(number))
        self._numbers.forget(number, ("frame", "variables"))

    def _tell(self, told: Told) -> None:
        """Let the client know; what has only changed below what it shows, a moment later."""
        for each in told if self.is_on else ():  # who has switched it off asks for no frames any more
            if isinstance(each, Hide):
                self._publish(
                    event("continued", {"threadId": self._thread(each.adapter), "allThreadsContinued": False})
                )
            elif each.is_new:
                self._publish(event("stopped", self._stop_of(each.adapter)))
            elif not self._is_gathering:
                self._is_gathering = True
                asyncio.get_running_loop().call_later(_GATHERED, self._show_again)

    def _show_again(self) -> None:
        self._is_gathering = False
        if self._floor.shown is not None and self.is_on:
            self._publish(event("stopped", self._stop_of(self._floor.shown)))

    def _stop_of(self, number: int) -> Message:
        said = self._own_stop if number == NOTEBOOK else self._debuggees[number].stopped
        return {**said, "threadId": self._thread(number), "allThreadsStopped": number == NOTEBOOK}

    def _thread(self, number: int) -> int:
        return self._own_stop.get("threadId", 1) if number == NOTEBOOK else self._thread_of(self._debuggees[number])

    def _thread_of(self, debuggee: Debuggee) -> int:
        return self._numbers.given(debuggee.number, "thread", debuggee.stopped.get("threadId", 1))
