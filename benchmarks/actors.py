"""Actors: a call over a bare socket to the same kind of rank, in turns; large arguments; many calls at once."""

from __future__ import annotations

import ctypes
import itertools
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from call import batch
from echo import Bare, Echo
from measure import Row, check, medians, ratio, seconds_text, timed

from meshbook.kernel.mesh import Mesh

SIZES = {1: 3.0, 4: None, 8: 2.0}
"""Ranks, and what a call on them may take at most over a bare socket."""

FASTER = 4.0
"""At least so many times as many calls a second as Monarch, where it is installed."""

PAUSE = 0.05
"""Seconds between ours and Monarch's turn: its processes are busy for a while after their last answer."""

MOST_COPIES = 3.0
MOST_SPAWN = 5.0
"""Milliseconds."""


def measure(is_quick: bool) -> Iterator[Row]:
    rounds, repeats = (30, 3) if is_quick else (200, 9)
    yield from over_a_bare_socket(rounds, repeats)
    yield from large_arguments(8 if is_quick else 64, repeats)
    yield from spawning(5 if is_quick else 50)
    yield from many_at_once(20 if is_quick else 500, repeats)


def over_a_bare_socket(rounds: int, repeats: int) -> Iterator[Row]:
    with ExitStack() as stack:
        works: dict[str, Callable[[], float]] = {}
        for size in SIZES:
            works[f"call {size}"] = batch(caller(stack.enter_context(up("actors", size))), rounds)
            works[f"bare {size}"] = batch(stack.enter_context(BareSockets(size)), rounds)
        medians(1, works)
        times = medians(repeats, works)
    for size, most in SIZES.items():
        name = "call_one, there and back" if size == 1 else f"call on {size} ranks"
        yield ratio(name, times[f"call {size}"], times[f"bare {size}"], "over bare sockets, in Python", most)


def up(name: str, size: int) -> Mesh:
    return Mesh.up(f"{name}{size}", {"rank": size}, path=sys.path)


def caller(mesh: Mesh) -> Callable[[], None]:
    """One call of a trivial endpoint on all ranks, checked."""
    echo = mesh.spawn("echo", Echo).echo
    if len(mesh) == 1:
        return lambda: check(echo.call_one(7).get() == 7, "an endpoint gave back something else")
    expected = [7] * len(mesh)
    return lambda: check(echo.call(7).get().values() == expected, "an endpoint gave back something else")


class BareSockets:
    """Ranks of a mesh of their own that send back what comes over a socket pair. Called, it asks all of them once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._stack = ExitStack()

    def __enter__(self) -> BareSockets:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mb-")))
        mesh = self._stack.enter_context(up("bare", self._size))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(str(folder / "door"))
            door.listen(self._size)
            mesh.spawn("bare", Bare).serve.broadcast(str(folder / "door"))
            self._socks = [self._stack.enter_context(door.accept()[0]) for _ in range(self._size)]
        return self

    def __call__(self) -> None:
        for sock in self._socks:
            sock.send(b"x" * 64)
        for sock in self._socks:
            check(len(sock.recv(65536)) == 64, "a socket gave back something else")

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Counted:
    """One mebibyte that counts how often it was pickled."""

    def __init__(self) -> None:
        self.data = bytes(1 << 20)
        self.times = 0

    def __reduce__(self) -> tuple[Any, ...]:
        self.times += 1
        return bytes, (self.data,)


def large_arguments(megabytes: int, repeats: int) -> Iterator[Row]:
    numbers = itertools.count(1)
    tensor, target = (torch.ones((megabytes << 20) // 4) for _ in range(2))
    with up("large", 8) as mesh, up("mib", 4) as four:
        ends, length = mesh.spawn("echo", Echo).ends, four.spawn("echo", Echo).length
        counted = Counted()
        check(
            length.call(cast("bytes", counted)).get().values() == [1 << 20] * 4,
            "an argument of 1 MiB came as something else",
        )

        def broadcast() -> None:
            tensor[0] = tensor[-1] = number = next(numbers)
            check(ends.call(tensor).get().values() == [2.0 * number] * 8, "a tensor came as another")

        works = {
            "memcpy": timed(lambda: ctypes.memmove(target.data_ptr(), tensor.data_ptr(), tensor.nbytes)),
            "broadcast": timed(broadcast),
        }
        medians(3, works)
        times = medians(repeats, works)
    yield Row("1 MiB to 4 ranks is pickled", f"{counted.times} times", "", float(counted.times), "times", 1.0)
    yield ratio(f"a {megabytes} MB tensor to 8 actors", times["broadcast"], times["memcpy"], "memcpy", MOST_COPIES)


def spawning(repeats: int) -> Iterator[Row]:
    with up("spawning", 8) as mesh:
        numbers = itertools.count(1)

        def spawn() -> None:
            echo = mesh.spawn(f"echo{next(numbers)}", Echo).echo
            check(echo.call(7).get().values() == [7] * 8, "a new actor gave back something else")

        works = {"spawn": timed(spawn)}
        medians(3, works)
        seconds = medians(repeats, works)["spawn"]
    name = "actors on 8 living ranks, first call"
    yield Row(name, seconds_text(seconds), "", seconds * 1e3, "ms", MOST_SPAWN)


def many_at_once(count: int, repeats: int) -> Iterator[Row]:
    """Calls that do not wait for each other, and the answers of all."""
    if find_spec("monarch") is None:
        print("actors: Monarch is not installed, so nothing is measured beside it", file=sys.stderr)
        return
    monarch: Any = import_module("monarch.actor")
    echo = import_module("scale").monarch_echo()
    for size in (1, 4):
        procs = monarch.this_host().spawn_procs(per_host={"procs": size})
        with up("many", size) as mesh:
            theirs, ours = procs.spawn("echo", echo).echo, mesh.spawn("echo", Echo).echo
            works = {"ours": timed(pipelined(ours, size, count)), "Monarch": timed(pipelined(theirs, size, count))}
            medians(2, works)
            times = medians(repeats, works, PAUSE)
        procs.stop().get()
        rates = {name: f"{count / seconds:,.0f}/s" for name, seconds in times.items()}
        name = f"calls in flight, {size} rank{'s' * (size > 1)}"
        figure = times["Monarch"] / times["ours"]
        yield Row(name, rates["ours"], f"{rates['Monarch']} Monarch", figure, "x", FASTER, at_least=True)


def pipelined(echo: Any, size: int, count: int) -> Callable[[], None]:
    def work() -> None:
        futures = [echo.call(number) for number in range(count)]
        for number, future in enumerate(futures):
            answers = [value for _, value in future.get().items()]
            check(answers == [number] * size, "a call in flight gave back something else")

    return work
