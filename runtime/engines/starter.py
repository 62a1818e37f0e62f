"""Two ways to make the process of a rank: forked from a zygote, or executed afresh."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import LinkClosed
from ..system.forks import let_go_in_child
from ..wire.lane import Lane
from ..wire.link import PairLink
from ..wire.messages import Exited, Fork, Forked, Warm
from ..wire.reactor import Reactor
from .exits import end_of
from .fresh import env_for, line_for
from .interpreter import Interpreter
from .spec import UNLESS_SAID, RankFds, RankSpec, encode_spec, search_path


class Births(Protocol):
    """Who wants to know what became of the processes."""

    def on_started(self, ticket: int, pid: int, trouble: str) -> None:
        """The process of `ticket` runs as `pid`; or (`trouble`) why there is none."""
        ...

    def on_exit(self, pid: int, status: int | None) -> None:
        """Process `pid` has ended with this wait status (None: nobody was there to collect it)."""
        ...


class Starter(Protocol):
    """Makes rank processes and sees them end."""

    python: Interpreter
    """What ranks run in: they are told of themselves as there (`Interpreter.spec_for`)."""

    def start(self, ticket: int, spec: RankSpec, fds: RankFds, births: Births) -> None: ...


class Zygote:
    """The controller's handle on a zygote process.

    It is started at once and imports in the background: `start` may be called while it still does.
    """

    def __init__(
        self,
        reactor: Reactor,
        preload: Sequence[str],
        env: dict[str, str],
        python: Interpreter,
        key: ZygoteKey | None = None,
    ) -> None:
        self._reactor = reactor
        self.python = python
        self._births: dict[int, Births] = {}  # by ticket until the process is there, then by pid in `_children`
        self._children: dict[int, Births] = {}
        self.trouble = ""
        self.key = key or zygote_key(env, python)
        self.warmed = threading.Event()
        """Set when its imports are done, or when it ended; `trouble` then says what is in the way of forking."""
        self.complete = threading.Event()
        """Set when it has imported what could wait as well, or when it ended."""
        self.is_spoilt = False
        """Whether it cannot fork any more, because of something that could wait."""
        self.is_gone = False
        self.num_waiting = 0
        """How many meshes wait for its imports: it is not idle."""
        self._forgetting = threading.Lock()  # who closes it may be beside the loop, which sees its end
        link, theirs = PairLink.make()
        self._lane = Lane(link)
        lifeline, self._lifeline_in = os.pipe()
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, self._lifeline_in)
            undo.callback(self._lane.close)
            with theirs, open(lifeline, "rb"):
                self._process = subprocess.Popen(
                    line_for(
                        *(python.executable, "meshbook.runtime.engines.zygote"), theirs.fileno(), lifeline, *preload
                    ),
                    pass_fds=[theirs.fileno(), lifeline],
                    stdin=subprocess.DEVNULL,
                    env=UNLESS_SAID | env_for(env) | _ZYGOTE_ENV,
                    start_new_session=True,  # Jupyter's interrupt signals the kernel's whole process group
                )
            undo.pop_all()
        self.pid = self._process.pid
        let_go_in_child(self)
        reactor.add(link.fileno(), self._on_ready)

    def start(self, ticket: int, spec: RankSpec, fds: RankFds, births: Births) -> None:
        """Ask for a rank; `births` is told when it is there."""
        if self.is_gone:
            raise LinkClosed("the zygote is gone")
        self._births[ticket] = births
        try:
            self._lane.send(Fork(ticket, encode_spec(self.python.spec_for(spec))), fds=fds.as_list())
        except LinkClosed as gone:
            if self._births.pop(ticket, None) is not None:  # else its end has been seen, and told, meanwhile
                raise LinkClosed("the zygote is gone") from gone
        except BaseException:
            self._births.pop(ticket, None)
            raise

    @property
    def num_children(self) -> int:
        """How many living processes it has forked or been asked for."""
        return len(self._children) + len(self._births)

    def close(self) -> None:
        """End the zygote. Ranks it has forked live on, but their exit status is lost."""
        self._forget()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:  # it imports, or what it imports hangs
            self._process.kill()
            self._process.wait()

    def let_go(self) -> None:
        """In a forked child: the zygote must end when its controller does, not when this process does."""
        if not self.is_gone:
            self.is_gone = True
            self._lane.close()
            os.close(self._lifeline_in)

    def _on_ready(self) -> None:
        try:
            while (received := self._lane.recv_nowait()) is not None:
                self._handle(received[0])
        except LinkClosed:
            self._forget()
            self._process.wait()

    def _handle(self, message: object) -> None:
        if isinstance(message, Forked):
            births = self._births.pop(message.ticket)
            if message.pid:
                self._children[message.pid] = births
            births.on_started(message.ticket, message.pid, message.trouble)
        elif isinstance(message, Exited):
            births = self._children.pop(message.pid, None)
            if births is not None:
                births.on_exit(message.pid, message.status)
        else:
            assert isinstance(message, Warm), message
            self._on_warm(message)

    def _on_warm(self, message: Warm) -> None:
        if self.warmed.is_set():
            self.is_spoilt = bool(message.trouble)
        else:
            self.trouble = message.trouble
            self._reactor.announce(self.warmed)
        if message.is_complete:
            self._reactor.announce(self.complete)

    def _forget(self) -> None:
        with self._forgetting:
            if self.is_gone:
                return
            self.is_gone = True
        if not self.warmed.is_set():
            self.trouble = "the zygote ended while it imported; its stderr says why"
            self._reactor.announce(self.warmed)
        self._reactor.announce(self.complete)
        self._reactor.remove(self._lane.link.fileno())
        self._lane.close()
        os.close(self._lifeline_in)
        children, self._children = self._children, {}
        waiting, self._births = self._births, {}
        for ticket, births in waiting.items():
            births.on_started(ticket, 0, "the zygote ended before it could fork")
        for pid, births in children.items():
            _Orphan(self._reactor, pid, births)


_ZYGOTE_ENV = {
    "OPENBLAS_NUM_THREADS": "1",  # it starts its threads when numpy is imported; ranks raise the number again
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # makes the fork of a big image a fifth cheaper
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # pyarrow, which pandas imports where it is, starts one else
}

_PATIENCE = 0.2
"""Seconds that a zygote gets to end by itself."""

_AGAIN = 0.5
"""Seconds after which one tries again to watch over a rank."""


class _Orphan:
    """A rank whose zygote is gone: it lives on, and its end is seen, but its exit status is not."""

    def __init__(self, reactor: Reactor, pid: int, births: Births) -> None:
        self._reactor, self._pid, self._births = reactor, pid, births
        reactor.schedule(self._watch)

    def _watch(self) -> None:
        try:
            self._fd = os.pidfd_open(self._pid)
        except ProcessLookupError:
            self._births.on_exit(self._pid, None)
        except OSError:  # no descriptor is left: there may be one later
            self._reactor.later(_AGAIN, self._watch)
        else:
            self._reactor.add(self._fd, self._on_end)

    def _on_end(self) -> None:
        self._reactor.remove(self._fd)
        os.close(self._fd)
        self._births.on_exit(self._pid, None)


class Exec:
    """Starts each rank as a fresh interpreter: slow (it imports everything itself), and safe with CUDA."""

    def __init__(self, reactor: Reactor, python: Interpreter) -> None:
        self._reactor = reactor
        self.python = python

    def start(self, ticket: int, spec: RankSpec, fds: RankFds, births: Births) -> None:
        spec = self.python.spec_for(spec)
        process = subprocess.Popen(
            line_for(self.python.executable, "meshbook.runtime.ranks.worker", *fds.as_list()),
            pass_fds=fds.as_list(),
            stdin=subprocess.PIPE,
            env=UNLESS_SAID | spec.env | {"PYTHONPATH": os.pathsep.join(spec.path)},
            cwd=spec.cwd,
            start_new_session=True,
        )
        assert process.stdin is not None
        # One that has died by now leaves a broken pipe; its end is seen below.
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(encode_spec(spec))
        fd = end_of(process)

        def on_end() -> None:
            self._reactor.remove(fd)
            os.close(fd)
            births.on_exit(process.pid, _wait_status(process.wait()))

        def on_start() -> None:
            births.on_started(ticket, process.pid, "")
            self._reactor.add(fd, on_end)  # not before: nobody would know whose end it is

        self._reactor.schedule(on_start)


def _wait_status(returncode: int) -> int:
    return -returncode if returncode < 0 else returncode << 8


@dataclass(frozen=True, slots=True)
class ZygoteKey:
    """What a zygote was made from: one whose key is no longer true is stale, and replaced."""

    executable: str
    packages: tuple[tuple[str, int], ...]
    """Each folder of `sys.path` that packages are installed in, with its modification time."""
    settings: tuple[tuple[str, str], ...]
    """The environment variables that libraries read when they are imported or loaded."""
    modules: tuple[str, ...] = ()
    """What it has imported that ranks asked for; who wrote it may have it read any variable."""


_IMPORT_TIME_PREFIXES = (
    "PYTHON",
    "LD_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "TORCH",
    "PYTORCH_",
    "CUDA_HOME",
    "MALLOC_",
    "LANG",
    "LC_",
    "TZ",
)
"""Also of what a process reads as it begins."""

_OF_TORCH = frozenset({"TORCHINDUCTOR_CACHE_DIR"})
"""What torch sets by itself where the program compiles, or makes fakes of tensors. It is read when it is needed."""


def zygote_key(env: dict[str, str], python: Interpreter, modules: tuple[str, ...] = ()) -> ZygoteKey:
    """The key that a zygote started now with `env`, for ranks that want these modules, would have."""
    own = python.path_for(search_path(sys.path))
    folders = (Path(folder) for folder in own if folder.endswith("-packages"))
    return ZygoteKey(
        python.executable,
        tuple((str(folder), folder.stat().st_mtime_ns) for folder in folders if folder.is_dir()),
        tuple(sorted(each for each in env.items() if modules or _is_read_at_import(each[0]))),
        modules,
    )


def _is_read_at_import(name: str) -> bool:
    return name.startswith(_IMPORT_TIME_PREFIXES) and name not in _OF_TORCH
