"""Actors for the tests of meshes. Ranks import this file by name, so it imports nothing of pytest."""

from __future__ import annotations

import ast
import contextlib
import os
import resource
import sys
import threading
from pathlib import Path
from typing import Any

from meshbook.runtime.actor import Actor, control_endpoint, endpoint
from meshbook.runtime.ranks.place import here

GATE = threading.Event()
"""For ranks that are threads: a test keeps them busy until it sets this."""


class Worker(Actor):
    """Does what it is told, and can be asked what that is."""

    _on_main_thread = True

    def __init__(self, start: int = 0) -> None:
        self.value = start
        self.steps: list[str] = []
        self.names: dict[str, Any] = {"actor": self, "step": self.steps.append, "here": here}

    @endpoint
    def do(self, source: str) -> Any:
        """Run a few lines; the value of the last one."""
        *lines, last = ast.parse(source).body
        exec(compile(ast.Module(lines, []), "<do>", "exec"), self.names)
        if isinstance(last, ast.Expr):
            return eval(compile(ast.Expression(last.value), "<do>", "eval"), self.names)
        exec(compile(ast.Module([last], []), "<do>", "exec"), self.names)
        return None

    @endpoint
    def add(self, n: int) -> int:
        self.value += n
        return self.value

    @endpoint
    def rank(self) -> int:
        return here().rank

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def keep(self, value: Any) -> None:
        self.kept = value

    @endpoint
    def note(self, topic: str, value: object) -> str:
        here().note(topic, value)
        return "after the note"

    @endpoint
    def fail(self, error: BaseException) -> None:
        raise error

    @endpoint
    def pick(self, name: str) -> None:
        """Fail with an error of this file."""
        raise FAILURES[name]()

    @control_endpoint
    def state(self) -> tuple[int, list[str], str]:
        """Its value and steps, and the thread that says so."""
        return self.value, list(self.steps), threading.current_thread().name

    @control_endpoint
    def explode(self) -> None:
        raise ValueError("not on control either")

    @control_endpoint
    def much(self, size: int) -> bytes:
        return bytes(size)


class Messenger(Actor):
    """Asks its like on other ranks."""

    @endpoint
    def answer(self, value: Any) -> Any:
        return here().rank, value

    @endpoint
    def fetch(self, other: Any, value: Any) -> Any:
        return other.answer.call_one(value).get(10)


class Choosy(Exception):
    """Its constructor wants more than its arguments say, so a copy of it cannot be made by pickle."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"code {code}: {why}")
        self.code = code


class Locked(Exception):
    """Holds what cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Built(Exception):
    """Made by a `__new__` that wants arguments, and pickles well."""

    def __new__(cls, code: int) -> Built:
        return super().__new__(cls, code)

    def __init__(self, code: int) -> None:
        self.code = code

    def __reduce__(self) -> Any:
        return Built, (self.code,)


class Fragile(Actor):
    """Cannot be made on rank 1."""

    def __init__(self) -> None:
        if here().rank == 1:
            raise ValueError("not here")

    @endpoint
    def ok(self) -> bool:
        return True


def _group() -> ExceptionGroup[ValueError]:
    return ExceptionGroup("two", [ValueError("a"), ValueError("b")])


FAILURES: dict[str, Any] = {
    "choosy": lambda: Choosy(7, why="because"),
    "locked": Locked,
    "mute": Mute,
    "built": lambda: Built(5),
    "group": _group,
    "exit": lambda: SystemExit(3),
    "stop": lambda: StopIteration(4),
    "os": lambda: FileNotFoundError(2, "no such thing", "thing"),
    "unicode": lambda: b"\xff".decode(),
    "key": lambda: KeyError("k"),
    "pid": lambda: OSError(os.getpid()),
}


class Early(Actor):
    """Is there while its rank may still import a module."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.born = self.is_there()

    def is_there(self) -> bool:
        return hasattr(sys.modules.get(self.module), "is_there")

    @endpoint
    def seen(self) -> list[bool]:
        return [self.born, self.is_there()]


class Glutton(Actor):
    """Takes all the descriptors that its process may have."""

    @endpoint
    def eat(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        self.eaten: list[int] = []
        with contextlib.suppress(OSError):
            while True:
                self.eaten.append(os.open(os.devnull, os.O_RDONLY))

    @endpoint
    def let_go(self) -> None:
        while self.eaten:
            os.close(self.eaten.pop())

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def large(self) -> bytes:
        return bytes(1 << 20)


class MainGlutton(Glutton):
    _on_main_thread = True


class Marks(Actor):
    """Leaves a file for each mark, with its own rank in its name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @endpoint
    def put(self, mark: str) -> None:
        (self._folder / f"{mark} {here().rank}").touch()

    @endpoint
    def count(self) -> int:
        return len([*self._folder.iterdir()])
