"""The zygote: a process that has imported everything once and then forks ranks, in 5 milliseconds each.

It imports and never computes: a parallel region, a CUDA context or a thread before the fork would make its children
hang. It has one thread, its own session, and ends when its controller does. Started as
`python -m meshbook.runtime.engines.zygote LINK LIFELINE MODULE...`, with two descriptors; a module name may end in `?`
(if it is installed) or in `:function` (to be called after the import), and then in `~`: that can wait until nobody has
asked for a rank for a moment, and is done if its package is there. So a mesh comes up as soon as ranks can, and those
that come later find all that they will use.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Generator
from types import FrameType
from typing import Any, NoReturn

from ..errors import LinkClosed
from ..ranks import lifeline
from ..system.inherited import plain_signals
from ..system.libc import libc
from ..wire.lane import Lane
from ..wire.link import PairLink
from ..wire.messages import Exited, Fork, Forked, Warm
from . import holes, hugepages
from .preload import at_once, import_all, those_that_can_wait
from .spec import RankFds, decode_spec

_PR_SET_CHILD_SUBREAPER = 36

_QUIET_MS = 300
"""How long nobody must have asked for anything before what can wait is imported."""


def main(link_fd: int, lifeline_fd: int, modules: list[str]) -> None:
    """Import `modules`, say how that went, then serve forks until the other end of the link is gone."""
    plain_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Jupyter's interrupt goes to whole process groups
    line = lifeline.arm(lifeline_fd)  # an import may hang, and nobody looks at the link meanwhile
    lane = Lane(PairLink(socket.socket(fileno=link_fd)))
    trouble = _preload(at_once(modules))
    later = [] if trouble else those_that_can_wait(modules)
    try:
        lane.send(Warm(trouble, is_complete=not later))
        _Zygote(lane, line, later).serve()
    except LinkClosed:
        return  # the controller is gone; its ranks have their own lifeline


def _preload(modules: list[str]) -> str:
    # What is here stays, garbage too. A collector that looked at it would write to it, and copy 40 MB of it in every
    # rank; while it comes, looking at it again and again takes a tenth of the time, and one look at the end as long.
    gc.disable()
    trouble = import_all(modules)
    _settle()
    gc.enable()
    if trouble:
        return trouble
    # The first fork of a process is several times slower than those after it.
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return _why_unsafe()


def _settle() -> None:
    """Leave no room between what was imported: ranks put what they make side by side."""
    _forget_rules()
    gc.freeze()
    gc.collect()  # finds nothing to look at, and gives back the tuples and dicts that Python keeps for new ones
    holes.fill()
    gc.freeze()


def _forget_rules() -> None:
    """Free what torch would free in each rank that makes groups, if its compiler is there: 1.2 MB to copy each."""
    rules: Any = sys.modules.get("torch._dynamo.trace_rules")
    if hasattr(rules, "clear_lru_cache"):
        rules.clear_lru_cache()


def _why_unsafe() -> str:
    """Why forking would be unsafe now, in one line; empty when it is safe."""
    try:
        threads = len(os.listdir("/proc/self/task"))
    except FileNotFoundError:
        return "this system does not tell how many threads a process has"
    if threads != 1:
        return f"the zygote has {threads} threads: a module that was imported for it starts threads"
    torch = sys.modules.get("torch")
    if (torch is not None and torch.cuda.is_initialized()) or _has_opened_gpu():
        return "the zygote has a CUDA context: a module that was imported for it initialises CUDA"
    return ""


def _has_opened_gpu() -> bool:
    """Asking the driver how many GPUs there are is enough, and torch does not know."""
    folder = "/proc/self/fd"
    return any(_target(f"{folder}/{fd}").startswith("/dev/nvidia") for fd in os.listdir(folder))


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # that by which the folder was listed
        return ""


class _Zygote:
    def __init__(self, lane: Lane, line: int, later: list[str]) -> None:
        self._lane = lane
        self._line = line
        self._later = deque(later)
        self._ranks: set[int] = set()
        self._bell, self._bell_in = os.pipe()
        for fd in (self._bell, self._bell_in):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._bell_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        # Orphans of ranks come to the zygote, which reaps them, instead of piling up as zombies of process 1.
        if sys.platform == "linux":
            libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def serve(self) -> NoReturn:
        poll = select.poll()  # `select` takes no descriptor above 1023, and they are numbered as in the controller
        for fd in (self._lane.link.fileno(), self._bell):
            poll.register(fd, select.POLLIN)
        is_quiet = False
        while True:
            patience = None if not self._later else 0 if is_quiet else _QUIET_MS
            ready = [fd for fd, _ in poll.poll(patience)]
            if is_quiet := not ready:
                self._import_next()
            if self._bell in ready:
                os.read(self._bell, 4096)
                self._reap()
            if self._lane.link.fileno() in ready:
                self._serve_one()

    def _import_next(self) -> None:
        """One of those that can wait; who needs it will meet what goes wrong."""
        name = self._later.popleft()
        with self._telling_of_ranks():
            gc.disable()
            if name.partition(".")[0] in sys.modules:
                import_all([name])
            gc.freeze()
            gc.enable()
            if not self._later:
                _settle()
                hugepages.collapse()
        if not self._later:
            self._lane.send(Warm(_why_unsafe(), is_complete=True))

    @contextlib.contextmanager
    def _telling_of_ranks(self) -> Generator[None]:
        """Tell of ranks that end meanwhile as they do: an import takes a second, and a user waits for the news."""
        is_telling = is_due = False

        def tell(signum: int, frame: FrameType | None) -> None:
            nonlocal is_telling, is_due
            is_due = True
            while is_due and not is_telling:  # it is itself interrupted, if several end at once
                is_telling, is_due = True, False
                self._ranks = {pid for pid in self._ranks if not self._has_ended(pid)}
                is_telling = False

        before = signal.signal(signal.SIGCHLD, tell)
        try:
            tell(signal.SIGCHLD, None)  # one may have ended between the last look and now
            yield
        finally:
            signal.signal(signal.SIGCHLD, before)

    def _has_ended(self, rank: int) -> bool:
        # Of ranks only, one by one: what is imported may have started a program, and waits for it itself.
        pid, status = os.waitpid(rank, os.WNOHANG)
        if pid:
            self._lane.send(Exited(pid, status))
        return pid != 0

    def _serve_one(self) -> None:
        message, _ = self._lane.recv()
        assert isinstance(message, Fork)
        fds = self._lane.fds
        self._lane.send(self._fork(message, fds))
        for fd in fds:
            os.close(fd)

    def _fork(self, request: Fork, fds: list[int]) -> Forked:
        if trouble := _why_unsafe():
            return Forked(request.ticket, 0, trouble)
        try:
            pid = os.fork()
        except OSError as error:
            return Forked(request.ticket, 0, f"fork failed: {error}")
        if pid == 0:
            self._become_rank(request, fds)
        self._ranks.add(pid)
        return Forked(request.ticket, pid)

    def _become_rank(self, request: Fork, fds: list[int]) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._lane.close()
            for fd in (self._line, self._bell, self._bell_in):
                os.close(fd)
            from ..ranks import worker

            spec = decode_spec(request.spec)
            worker.main(spec, RankFds.of(spec, fds))
            code = 0
        except BaseException:  # noqa: BLE001 - the rim of a process: it goes to stderr and into the exit code
            traceback.print_exc()
        finally:
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._ranks.discard(pid)
            self._lane.send(Exited(pid, status))


def _ignore(signum: int, frame: FrameType | None) -> None:
    """Wakes `select` through the wake-up descriptor, which an ignored signal would not."""


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
