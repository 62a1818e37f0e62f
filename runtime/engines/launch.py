"""How agents come to their hosts: by a command that the user gives, such as `ssh {host}` or `srun`."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from ..errors import SpawnError
from ..wire.reactor import Reactor
from .exits import end_of
from .summons import VARIABLE, Summons

_TAIL = 10
"""Lines of what a launcher said that are shown when it fails."""

_PATIENCE = 5.0
"""Seconds that a launcher gets to end when its agents have been told to."""

OnEnd = Callable[[Sequence[int], str], None]
"""Called on the loop with hosts whose launcher has ended, and how."""


class Launcher(Protocol):
    """Starts the agents of hosts."""

    is_one_by_one: bool
    """Can the agent of a single host be started again?"""

    names: Sequence[str]
    """What the hosts are called; empty where only the agents can tell."""

    def refusal(self, num_hosts: int) -> str:
        """Why there cannot be so many hosts; empty where there can."""
        ...

    def start(self, hosts: Sequence[int], summons: Summons, on_end: OnEnd) -> None:
        """Start the agents of these hosts, whose addresses are in the summons in the same order.

        Raises `SpawnError` where that cannot be.
        """
        ...

    def forget(self, host: int) -> None:
        """This host is lost: end what was started for it alone."""
        ...

    def hear(self, host: int) -> None:
        """This host has come: what its launcher has said by now was about that."""

    def last_words(self, host: int) -> str:
        """The last line that its launcher has said since; empty where there is none."""
        return ""

    def close(self) -> None:
        """Wait until all launchers have ended; not for long."""
        ...

    def let_go(self) -> None:
        """Leave the launchers to themselves, since their agents live on."""
        ...


class CommandLauncher(Launcher):
    """Runs a command: once for each host where it has `{host}` in it or is empty, else once for all of them.

    `{command}` stands for that of the agent, quoted for a shell; without it the command is put at the end. An empty
    command starts agents on this machine, each as a host of its own.
    """

    def __init__(self, reactor: Reactor, command: str, names: Sequence[str]) -> None:
        self.is_one_by_one = not command or "{host}" in command
        self._all = tuple(names)
        self.names = self._all if self.is_one_by_one else ()
        self._reactor = reactor
        self._command = command
        self._running: dict[tuple[int, ...], Launch] = {}

    def refusal(self, num_hosts: int) -> str:
        if num_hosts <= len(self._all) or not self._command:
            return ""
        if not self.is_one_by_one:
            return "its launcher starts all of them at once"
        return "its launcher starts each by its name: bring the mesh up with more names in --hosts"

    def start(self, hosts: Sequence[int], summons: Summons, on_end: OnEnd) -> None:
        if not self.is_one_by_one:
            self._launch(tuple(hosts), "env", summons, on_end)
            return
        for host, address in zip(hosts, summons.addresses, strict=True):
            self._launch((host,), "stdin", replace(summons, addresses=(address,)), on_end)

    def _launch(self, hosts: tuple[int, ...], source: str, summons: Summons, on_end: OnEnd) -> None:
        name = self._all[hosts[0]] if self.is_one_by_one and self._command else ""
        argv = launch_line(self._command, name, source)
        try:
            self._running[hosts] = Launch(self._reactor, argv, summons, source, lambda why: on_end(hosts, why))
        except OSError as error:
            raise SpawnError(f"cannot run the launcher `{argv[0]}`: {error.strerror}") from error

    def forget(self, host: int) -> None:
        launch = self._running.pop((host,), None)
        if launch is not None:
            launch.kill()

    def hear(self, host: int) -> None:
        for launch in self._of(host):
            launch.hear()

    def last_words(self, host: int) -> str:
        return next((launch.last_words() for launch in self._of(host)), "")

    def _of(self, host: int) -> list[Launch]:
        return [launch for hosts, launch in self._running.items() if host in hosts]

    def close(self) -> None:
        for launch in list(self._running.values()):  # the loop forgets them as they end
            launch.close()
        self._running.clear()

    def let_go(self) -> None:
        for launch in self._running.values():
            launch.let_go()
        self._running.clear()


def launch_line(command: str, host: str, source: str) -> list[str]:
    """The words that start an agent.

    Example:
        >>> launch_line("ssh {host}", "node7", "stdin")[:2]
        ['ssh', 'node7']
        >>> launch_line("ssh {host} 'cd work && {command}'", "node7", "stdin")[2].split()[:3]
        ['cd', 'work', '&&']
    """
    agent = [sys.executable, "-m", "meshbook.runtime.engines.remote_agent", source]
    words = [word.replace("{host}", host) for word in shlex.split(command)]
    if any("{command}" in word for word in words):
        return [word.replace("{command}", shlex.join(agent)) for word in words]
    return words + agent


class Launch:
    """A launcher that runs."""

    def __init__(
        self, reactor: Reactor, argv: Sequence[str], summons: Summons, source: str, on_end: Callable[[str], object]
    ) -> None:
        self._reactor = reactor
        self._on_end = on_end
        self._argv = argv
        self._said: deque[str] = deque(maxlen=_TAIL)
        self._num_said = self._num_heard = 0
        self._over = threading.Event()
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **({VARIABLE: summons.text()} if source == "env" else {})},
            start_new_session=True,  # Jupyter's interrupt signals the kernel's whole process group
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # one that has ended says why below
            if source != "env":
                self._process.stdin.write(f"{summons.text()}\n".encode())
            # One that is held reads on, and ends with this process.
            (self._process.stdin.flush if source == "held" else self._process.stdin.close)()
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        self._end = end_of(self._process)
        reactor.schedule(self._watch)

    @property
    def pid(self) -> int:
        return self._process.pid

    # On the loop.

    def hear(self) -> None:
        """What was said up to now is of no interest any more."""
        self._read()
        self._num_heard = self._num_said

    def last_words(self) -> str:
        """The last line that was said since."""
        self._read()
        return self._said[-1].strip() if self._num_said > self._num_heard else ""

    # From any thread.

    def kill(self) -> None:
        """End it, and what it has started in its session."""
        if not self._over.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait until it has ended; it is killed if it does not."""
        if not self._reactor.wait(self._over, _PATIENCE):
            self.kill()
            self._reactor.wait(self._over)

    def let_go(self) -> None:
        """Leave it running, and hear nothing more of it."""
        self._reactor.schedule(self._let_go)
        self._reactor.wait(self._over)

    def _let_go(self) -> None:
        if self._over.is_set():
            return
        self._process.returncode = 0  # nobody is to wait for it, which is no mistake
        self._reactor.remove(self._end)
        os.close(self._end)
        self._reactor.remove(self._out)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._reactor.announce(self._over)

    def _watch(self) -> None:
        self._reactor.add(self._out, self._read)
        self._reactor.add(self._end, self._ended)

    def _read(self) -> None:
        if self._over.is_set():
            return
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._out, 1 << 16):
                lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
                self._said.extend(lines)
                self._num_said += len(lines)
            self._reactor.remove(self._out)

    def _ended(self) -> None:
        self._reactor.remove(self._end)
        os.close(self._end)
        code = self._process.wait()
        self._read()
        self._reactor.remove(self._out)
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._reactor.announce(self._over)
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        self._on_end("\n".join([f"`{shlex.join(self._argv[:3])} ...` {how}", *(f"  {line}" for line in self._said)]))
