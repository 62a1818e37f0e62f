"""Commands run on every process of a mesh of hosts: `exec_command`, as in `monarch.job`."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO

from .actor import Actor, endpoint
from .future import Future, Promise
from .host import HostMesh
from .scope import context


def exec_command(
    host_mesh: HostMesh,
    cmd: Sequence[str],
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
    output_dir: str | None = None,
    rank: int | None = None,
    point: Mapping[str, int] | None = None,
    per_host: Mapping[str, int] | None = None,
) -> Future[int]:
    """Run a command on each host, or on `per_host` processes of each; the highest exit code is its result.

    `point` (`{"hosts": 1}`) or `rank` choose a host. A command that begins with `-m` or a file in `.py` is run by
    Python. It finds its place in `MONARCH_RANK_<axis>` and `MONARCH_SIZE_<axis>`. What it prints comes to the program,
    or goes to `stdout.txt` and `stderr.txt` in `output_dir` there, in which `$SUBDIR` is the place: `hosts_0`.

    It runs from now on, whether or not somebody waits for the future; a program that ends waits for it.

    Example:
        >>> from meshbook.runtime import this_host
        >>> exec_command(this_host(), ["sh", "-c", "exit 3"]).get()
        3
    """
    if not cmd:
        raise ValueError('there is no command: cmd is a list such as ["nvidia-smi", "-L"]')
    hosts = host_mesh
    if point is not None:
        hosts = host_mesh.slice(**point)
    elif rank is not None:
        hosts = host_mesh.flatten("rank").slice(rank=rank)
    command = _Command(tuple(cmd), dict(env or {}), workdir, os.getcwd(), output_dir)
    promise: Promise[int] = Promise()

    def run() -> None:
        try:
            promise.resolve(_run(hosts, command, per_host))
        except BaseException as error:  # noqa: BLE001 - the rim: who waits is told
            promise.fail(error)

    context_here = contextvars.copy_context()  # an actor that runs it owns the processes
    threading.Thread(target=context_here.run, args=(run,), name="meshbook-command").start()
    return promise.future


@dataclass(frozen=True, slots=True)
class _Command:
    words: tuple[str, ...]
    env: dict[str, str]
    workdir: str | None
    home: str
    """The folder of the program: commands run in it too where there is one of this name."""
    output_dir: str | None

    @property
    def line(self) -> tuple[str, ...]:
        """Not without a shell: it has the words and the code for a command that there is none of."""
        is_python = self.words[0] == "-m" or self.words[0].endswith(".py")
        return ("sh", "-c", '"$@"', "sh", *((sys.executable,) if is_python else ()), *self.words)

    @property
    def folder(self) -> str | None:
        return self.workdir or (self.home if os.path.isdir(self.home) else None)


def _run(hosts: HostMesh, command: _Command, per_host: Mapping[str, int] | None) -> int:
    with hosts.spawn_procs(per_host) as procs:
        return max(procs.spawn("commands", _Runner).run.call(command).get().values())


class _Runner(Actor):
    @endpoint
    def run(self, command: _Command) -> int:
        place = context().actor_instance.rank
        sizes = zip(place.extent.labels, place.extent.sizes, strict=True)
        env = {f"MONARCH_RANK_{axis}": str(index) for axis, index in place.items()}
        env |= {f"MONARCH_SIZE_{axis}": str(size) for axis, size in sizes}
        folder = command.output_dir
        if folder is not None:
            folder = folder.replace("$SUBDIR", "_".join(f"{axis}_{index}" for axis, index in place.items()))
        with _files(folder) as (out, err):
            whole = {**os.environ, **env, **command.env}
            code = subprocess.run(command.line, env=whole, cwd=command.folder, stdout=out, stderr=err).returncode
        return code if code >= 0 else 128 - code  # as a shell tells of signals: the highest code is the worst one


@contextmanager
def _files(folder: str | None) -> Generator[tuple[IO[bytes] | None, IO[bytes] | None]]:
    with ExitStack() as files:
        if folder is None:
            yield None, None
            return
        os.makedirs(folder, exist_ok=True)
        out, err = (
            files.enter_context(open(os.path.join(folder, f"{name}.txt"), "wb")) for name in ("stdout", "stderr")
        )
        yield out, err
