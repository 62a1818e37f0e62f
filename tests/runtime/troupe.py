"""Actors for the tests of the actor library. Ranks import this file by name, so it imports nothing of pytest."""

from __future__ import annotations

import asyncio
import ctypes
import operator
import os
import signal
import sys
import threading
from typing import Any

from meshbook.runtime import (
    Accumulator,
    Actor,
    Channel,
    Port,
    concurrent_endpoint,
    context,
    current_actor_name,
    current_rank,
    current_size,
    endpoint,
    get_or_spawn_controller,
    send,
    this_proc,
)


class Counter(Actor):
    kind = "counter"

    def __init__(self, value: int = 0) -> None:
        self.value = value

    @endpoint
    def add(self, n: int = 1) -> int:
        self.value += n
        return self.value

    @endpoint
    def rank(self) -> int:
        return current_rank().rank

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def fail(self, text: str, rank: int = -1) -> str:
        if rank in (-1, current_rank().rank):
            raise ValueError(text)
        return "fine"

    @endpoint(instrument=False)
    def forget(self) -> None:
        self.value = 0

    def plain(self, x: int) -> int:
        """No endpoint."""
        return self.value + x

    @staticmethod
    def twice(x: int) -> int:
        return 2 * x

    @classmethod
    def labelled(cls, x: str) -> str:
        return f"{cls.kind} {x}"

    def plain_port(self, port: Port[int], x: int) -> None:
        port.send(x)


class Child(Counter):
    """Inherits endpoints, overrides one and hides one."""

    @endpoint
    def add(self, n: int = 1) -> int:
        self.value += 10 * n
        return self.value

    def forget(self) -> str:  # type: ignore[override]
        return "hidden"

    @endpoint
    def own(self) -> str:
        return "own"


class Poet(Actor):
    """An async actor."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.released = asyncio.Event()

    @endpoint
    async def write(self, line: str) -> list[str]:
        self.log.append(f"{line} begins")
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        self.log.append(f"{line} ends")
        return self.log

    @concurrent_endpoint
    async def wait(self, name: str) -> str:
        """Overlaps with what comes after it: it waits for that."""
        self.log.append(name)
        await self.released.wait()
        return name

    @concurrent_endpoint
    async def boom(self) -> None:
        raise ValueError("boom, concurrently")

    @concurrent_endpoint(explicit_response_port=True)
    async def tell(self, port: Port[int], times: int) -> None:
        for number in range(times):
            port.send(number)

    @endpoint
    async def cancel(self) -> None:
        """Waits for something that was cancelled."""
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    @concurrent_endpoint
    async def cancel_concurrently(self) -> None:
        raise asyncio.CancelledError("enough")

    @endpoint
    async def release(self) -> list[str]:
        self.released.set()
        return list(self.log)

    @endpoint
    async def ask(self, mesh: Any) -> list[int]:
        return (await mesh.add.call(1)).values()

    @endpoint
    async def ask_myself(self, me: Any) -> Any:
        return await me.release.call_one()

    @concurrent_endpoint
    async def ask_my_other_self(self, me: Any) -> list[str]:
        return await me.release.call_one()


class Gate(Actor):
    """Keeps its thread until it is told to go on."""

    @endpoint
    def hold(self, started: Port[Port[str]]) -> str:
        port, receiver = Channel[str].open()
        started.send(port)
        return receiver.recv().get(20)

    @endpoint
    def thread(self) -> int:
        return threading.get_ident()


class Diary(Actor):
    """Where it was, at each moment of its life."""

    def __init__(self, port: Port[Any] | None = None) -> None:
        self.born = self.here()
        self.port = port
        self.local = threading.local()
        self.local.mark = "made"

    def here(self) -> dict[str, Any]:
        instance = context().actor_instance
        return {
            "rank": dict(current_rank()),
            "index": current_rank().rank,
            "size": current_size(),
            "message_rank": dict(context().message_rank),
            "own": dict(instance.rank),
            "name": instance.name,
            "class": instance.class_name,
            "repr": repr(instance),
            "id": instance.actor_id,
            "current": current_actor_name(),
            "creator": instance.creator and instance.creator.name,
            "procs": instance.proc_mesh.sizes,
            "proc": instance.proc.sizes,
        }

    @endpoint
    def birth(self) -> dict[str, Any]:
        return self.born

    @endpoint
    def now(self) -> dict[str, Any]:
        return self.here()

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def mark(self) -> tuple[str, int]:
        """What the constructor left in a thread-local."""
        return self.local.mark, threading.get_ident()

    @endpoint
    def spawn_here(self) -> tuple[int, dict[str, int], int]:
        inner = this_proc().spawn("inner", Diary)
        try:
            pid = inner.pid.call_one().get(10)
            return pid, this_proc().sizes, os.getpid()
        finally:
            inner.stop().get(10)

    def __cleanup__(self, exc: Exception | None) -> None:
        if self.port is not None:
            self.port.send((self.here()["own"], threading.get_ident()))


class Courier(Actor):
    """Calls other actors."""

    def __init__(self, mesh: Any = None) -> None:
        self.mesh = mesh

    @endpoint
    def total(self, mesh: Any = None, n: int = 1) -> int:
        mesh = self.mesh if mesh is None else mesh
        return sum(mesh.add.call(n).get(10).values())

    @endpoint
    def each(self, meshes: dict[str, list[Any]]) -> list[int]:
        return [mesh.add.call_one(0).get(10) for mesh in meshes["all"]]

    @endpoint
    def many(self, one: Any, count: int) -> list[int]:
        futures = [one.add.call_one(1) for _ in range(count)]
        return [future.get(10) for future in futures]

    @endpoint
    def throw(self, mesh: Any) -> str:
        try:
            mesh.fail.call("from afar").get(10)
        except ValueError as error:
            return str(error)
        return "nothing was raised"

    @endpoint
    def echo_of(self, mesh: Any, value: Any) -> Any:
        return mesh.echo.call(value).get(20).values()[-1]

    @endpoint
    def pass_on(self, mesh: Any) -> Any:
        return {"mesh": mesh, "slice": [mesh.slice(r=1)], "point": current_rank()}

    @endpoint
    def use_procs(self, procs: Any) -> list[int]:
        made = procs.spawn("of a courier", Counter, 7)
        try:
            return made.add.call(1).get(10).values()
        finally:
            made.stop().get(10)

    @endpoint
    def myself(self, me: Any, how: str) -> Any:
        return getattr(me.total, how)().get(10)

    @endpoint
    def controller(self, name: str, start: int) -> int:
        return get_or_spawn_controller(name, Counter, start).get(10).add.call_one(1).get(10)

    @endpoint
    def fold(self, mesh: Any) -> int:
        return Accumulator(mesh.rank, 0, operator.add).accumulate().get(10)

    @endpoint
    def send_to_port(self, mesh: Any) -> list[int]:
        port, receiver = Channel[int].open()
        send(mesh.rank, (), {}, port)
        return sorted(receiver.recv().get(10) for _ in range(len(mesh)))


class Halved(Exception):
    """Has a meaning of its own for a name that a call gives to its errors."""

    @property
    def partial(self) -> str:
        return "half"


class Teller(Actor):
    """Answers through ports."""

    @endpoint(explicit_response_port=True)
    def double(self, port: Port[int], x: int) -> None:
        port.send(2 * x)

    @endpoint(explicit_response_port=True)
    def twice(self, port: Port[int]) -> None:
        port.send(1)
        port.send(2)

    @endpoint
    def last_words(self, port: Port[int], count: int) -> None:
        """Say so much, and end the process."""
        for number in range(count):
            port.send(number)
        os._exit(3)

    @endpoint(explicit_response_port=True)
    def regret(self, port: Port[int], what: Any = None) -> None:
        port.exception(what or KeyError("regret"))

    @endpoint(explicit_response_port=True)
    def raises(self, port: Port[int]) -> None:
        raise ValueError("no answer")

    @endpoint(explicit_response_port=True)
    def later(self, port: Port[int]) -> None:
        self.kept = port

    @endpoint
    def now(self) -> None:
        self.kept.send(7)

    @endpoint(explicit_response_port=True)
    def pass_on(self, port: Port[Any], other: Any, what: str) -> None:
        """Somebody else answers."""
        assert isinstance(port, Port)
        other.answer_for_me.broadcast({"port": port}, what)

    @endpoint
    def answer_for_me(self, ports: dict[str, Port[Any]], what: str) -> None:
        if what == "error":
            ports["port"].exception(KeyError("from another"))
        else:
            ports["port"].send((current_rank().rank, what))

    @endpoint
    def count(self, port: Port[Any], n: int) -> None:
        for i in range(n):
            port.send((current_rank().rank, i))

    @endpoint
    def fail_at(self, port: Port[Any]) -> None:
        port.exception(ValueError("at the port"))


class Chatterer(Actor):
    """Says things in every way there is."""

    @endpoint
    def say(self, how: str, text: str) -> None:
        if how == "print":
            print(text)
        elif how == "thread":
            thread = threading.Thread(target=print, args=(text,))
            thread.start()
            thread.join()
        elif how == "write":
            os.write(1, f"{text}\n".encode())


class Scribe(Actor):
    """Writes down what comes, for the order of it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []
        self.busy = 0

    @endpoint
    def note(self, who: str, n: int) -> int:
        self.busy += 1
        assert self.busy == 1, "two messages at a time"
        self.lines.append((who, n))
        self.busy -= 1
        return n

    @endpoint
    def read(self) -> list[tuple[str, int]]:
        return self.lines


class Author(Actor):
    """Sends to a scribe, by all adverbs."""

    @endpoint
    def write(self, scribe: Any, who: str, ways: list[str]) -> None:
        for n, way in enumerate(ways):
            result = getattr(scribe.note, way)(who, n)
            if way == "stream":
                list(result)


class Choosy(Exception):
    """Its constructor wants more than its arguments say, so a copy of it cannot be made by pickle."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"code {code}: {why}")
        self.code = code


class Locked(Exception):
    """Holds what cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("locked in")
        self.lock = threading.Lock()


class Boom(Exception):
    """Pickles well, with what it knows."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Trouble(Actor):
    """Fails in many ways."""

    def __init__(self, where: int = -1) -> None:
        if where == current_rank().rank:
            raise ValueError("not here")

    @endpoint
    def ok(self) -> str:
        return "ok"

    @endpoint
    def boom(self) -> None:
        raise Boom(7)

    @endpoint
    def choosy(self) -> None:
        raise Choosy(3, why="because")

    @endpoint
    def locked(self) -> None:
        raise Locked

    @endpoint
    def chained(self) -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    @endpoint
    def lock(self) -> Any:
        return threading.Lock()

    @endpoint
    def leave(self) -> None:
        sys.exit(2)

    @endpoint
    def interrupted(self) -> None:
        raise KeyboardInterrupt

    @endpoint
    def huge(self, size: int) -> Any:
        import numpy

        return numpy.empty(size, numpy.uint8)

    @endpoint
    def size_of(self, value: Any) -> int:
        return len(value)


class Mortal(Actor):
    """Takes its process with it."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def exit(self, code: int) -> None:
        print("my last words", file=sys.stderr, flush=True)
        os._exit(code)

    @endpoint
    def kill(self, signum: int = signal.SIGKILL) -> None:
        os.kill(os.getpid(), signum)

    @endpoint
    def segfault(self) -> None:
        ctypes.string_at(0)

    @endpoint
    def environ(self, name: str) -> str | None:
        return os.environ.get(name)
