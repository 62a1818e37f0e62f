"""Actors that are at work until they are interrupted, for the tests of that. They import nothing of pytest."""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import subprocess
import time
from typing import Any

from meshbook.runtime import Actor, Port, concurrent_endpoint, endpoint
from meshbook.runtime.errors import ActorError
from meshbook.runtime.reports import log, progress


class Busy(Actor):
    def __init__(self, begun: Port[str]) -> None:
        self.begun = begun
        self.done: list[str] = []

    @endpoint
    def spin(self) -> None:
        self.begun.send("spin")
        while True:
            pass

    @endpoint
    def doze(self) -> None:
        self.begun.send("doze")
        while True:
            time.sleep(0.01)

    @endpoint
    def chatter(self) -> None:
        """Is at work in the runtime nearly all of the time."""
        self.begun.send("chatter")
        while True:
            print("x" * 100)

    @endpoint
    def save(self) -> str:
        """Deals with the interrupt itself, which takes it some time."""
        self.begun.send("save")
        try:
            self._work()
        except KeyboardInterrupt:
            deadline = time.monotonic() + 0.1
            while time.monotonic() < deadline:
                pass
            return "saved"
        return "never"

    @endpoint
    def ask(self, other: Any) -> str:
        """Blocks on the answer of another actor."""
        self.begun.send("ask")
        return other.sleep.call_one().get()

    @endpoint
    def ask_twice(self, other: Any) -> str:
        """Waits for the same answer again."""
        future = other.sleep.call_one()
        self.begun.send("ask_twice")
        try:
            future.get()
        except KeyboardInterrupt:
            self.begun.send("again")
            try:
                return future.get(10)
            except ActorError as error:
                return str(error).partition("\n")[0]
        return "never"

    @endpoint
    def hold(self, gate: str) -> str:
        """Works in C, where nothing interrupts it."""
        self.begun.send("hold")
        with open(gate) as lines:
            return lines.read()

    @endpoint
    def run(self, words: list[str]) -> None:
        """Waits for a command, to whose end it comes in any case."""
        process = subprocess.Popen(words)
        self.begun.send("run")
        try:
            process.wait()
        finally:
            process.wait()

    @endpoint
    def system(self, words: list[str]) -> int:
        """The same in one call, which drops signals."""
        self.begun.send("system")
        return os.system(shlex.join(words))

    @endpoint
    def start(self, words: list[str]) -> None:
        self.server = subprocess.Popen(words)

    @endpoint
    def end(self) -> int | None:
        """How the server had ended before it is killed; None if it had not."""
        code = self.server.poll()
        self.server.kill()
        self.server.wait()
        return code

    @endpoint
    def say(self, lines: int) -> None:
        for number in range(lines):
            print(number)

    @endpoint
    def note_there(self, other: Any, times: int) -> None:
        for _ in range(times):
            other.note.call_one("x").get()

    @endpoint
    def note(self, word: str) -> list[str]:
        self.done = [*self.done, word][-9:]
        return self.done

    @endpoint(explicit_response_port=True)
    def spin_for(self, port: Port[str]) -> None:
        self.begun.send("spin_for")
        self._work()

    def _work(self) -> None:
        while True:
            time.monotonic()


class Ends(Actor):
    """Is at work in its constructor, or in `__cleanup__`, until it is interrupted."""

    def __init__(self, begun: Port[str], hook: str) -> None:
        self.begun, self.hook = begun, hook
        if hook == "__init__":
            self._work()

    def _work(self) -> None:
        self.begun.send(self.hook)
        while True:
            time.monotonic()

    @endpoint
    def ping(self) -> str:
        return "pong"

    def __cleanup__(self, exc: Exception | None) -> None:
        if self.hook == "__cleanup__":
            self._work()


class AsyncEnds(Actor):
    """The same with async endpoints: its constructor prints, and its `__cleanup__` awaits."""

    def __init__(self, begun: Port[str], hook: str) -> None:
        self.begun, self.hook = begun, hook
        if hook == "__init__":
            begun.send(hook)
            while True:
                print("x" * 100)

    @endpoint
    async def ping(self) -> str:
        return "pong"

    async def __cleanup__(self, exc: Exception | None) -> None:
        if self.hook == "__cleanup__":
            self.begun.send(self.hook)
            await asyncio.sleep(1000)


class AsyncBusy(Actor):
    def __init__(self, begun: Port[str]) -> None:
        self.begun = begun
        self.done: list[str] = []

    @endpoint
    async def sleep(self) -> str:
        self.begun.send("sleep")
        await asyncio.sleep(1000)
        return "never"

    @endpoint
    async def spin(self) -> None:
        self.begun.send("spin")
        while True:
            await asyncio.sleep(0)

    @endpoint
    async def chatter(self) -> None:
        """Awaits nothing, and prints all the time."""
        self.begun.send("chatter")
        while True:
            print("x" * 100)

    @endpoint
    async def report(self) -> None:
        """Awaits nothing, and logs all the time."""
        self.begun.send("report")
        while True:
            log(loss=1.0)

    @endpoint
    async def advance(self) -> None:
        """Awaits nothing, and tells how far it is."""
        self.begun.send("advance")
        for _ in progress(itertools.count()):
            pass

    @endpoint
    async def run(self, words: list[str]) -> int:
        """How a command ended; who is interrupted waits for that all the same."""
        process = await asyncio.create_subprocess_exec(*words)
        self.begun.send("run")
        try:
            return await process.wait()
        except asyncio.CancelledError:
            return await process.wait()

    @endpoint
    async def ask(self, other: Any) -> str:
        """Blocks its loop, which it should not."""
        self.begun.send("ask")
        return other.doze.call_one().get()

    @endpoint
    async def hold(self, gate: str) -> str:
        self.begun.send("hold")
        with open(gate):
            return "through"

    @endpoint
    async def stubborn(self) -> str:
        """Does not let itself be cancelled."""
        self.begun.send("stubborn")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "saved"
        return "never"

    @concurrent_endpoint
    async def beside(self) -> None:
        self.begun.send("beside")
        await asyncio.sleep(1000)

    @endpoint
    async def say(self, lines: int) -> None:
        for number in range(lines):
            print(number)

    @endpoint
    async def note_there(self, other: Any, times: int) -> None:
        for _ in range(times):
            await other.note.call_one("x")

    @endpoint
    async def note(self, word: str) -> list[str]:
        await asyncio.sleep(0)
        self.done = [*self.done, word][-9:]
        return self.done
