"""Jobs, as in `monarch.job`: named meshes of hosts that outlive the program, so that the next one finds them warm.

    job = ProcessJob({"trainers": 2, "loaders": 1})
    state = job.state()  # started, or found where an earlier program has left them
    procs = state.trainers.spawn_procs({"gpus": 4})
    job.kill()

What is kept in the file is text (JSON): where the hosts are. Who attaches proves that it is the same user, as ever. A
kind of job of your own is kept whole, as pickle has it, under a seal of this user's: nobody else's pickle is read.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import difflib
import fcntl
import hmac
import json
import keyword
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from .commands import exec_command as exec_command
from .engines.fresh import env_for, line_for
from .engines.guard import Guard
from .engines.worker_key import own_keys
from .errors import SpawnError
from .host import HostMesh, this_host
from .system.proc import stat_of
from .system.registry import put_privately
from .workers import TRUST, attach_to_workers

DEFAULT_JOB_PATH = ".meshbook/job.json"
"""Where `state` keeps what is running, in the folder of the program."""

_START_SECONDS = 60.0
"""How long a host may take to come up: on a file system far away imports take their time."""

_PREFIX = "meshbook-job-"
"""How the folders of jobs begin, in which their hosts listen."""

_PATIENCE = 5.0
"""Seconds that the hosts of a job get to end."""


@dataclass(frozen=True)
class TelemetryConfig:
    """What Monarch keeps and shows of a job's actors; it means nothing here."""

    retention_secs: int = 3600
    include_dashboard: bool = False
    dashboard_port: int = 8265
    snapshot_interval_secs: float = 30.0


@dataclass(frozen=True)
class MeshAdminConfig:
    """Where Monarch tells of a job's meshes; it means nothing here."""

    admin_addr: str | None = None


class JobState:
    """The hosts of a job that runs: each mesh is an attribute."""

    def __init__(self, hosts: Mapping[str, HostMesh]) -> None:
        self._meshes = dict(hosts)

    def __getattr__(self, name: str) -> HostMesh:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._meshes:
            return self._meshes[name]
        close = difflib.get_close_matches(name, self._meshes, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        known = ", ".join(sorted(self._meshes))
        raise AttributeError(f"{name!r} is not a valid host mesh name. Available names: {known}{hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._meshes})

    def __repr__(self) -> str:
        return f"JobState({', '.join(f'{name}={mesh!r}' for name, mesh in self._meshes.items())})"


@contextlib.contextmanager
def _alone_at(path: Path) -> Generator[None]:
    """Two programs that want the same job at once: the second finds what the first has started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class JobTrait(ABC):
    """What all jobs can do. A kind of your own says how it starts, what it has, what it can run, and how it ends."""

    _was_created = False
    _found: JobTrait | None = None
    """What an earlier program has started, and this one goes on with."""

    def apply(self, client_script: str | None = None) -> None:
        """Start the hosts, unless they run: until `kill`. Raises `SpawnError` where one does not come up."""
        if not self.active:
            self._create(client_script)
            self._was_created = True

    def state(self, cached_path: str | None = DEFAULT_JOB_PATH) -> JobState:
        """The hosts: those that run, those that the file at `cached_path` tells of and that live, or new ones.

        What is found there and is of another kind or size is ended. With `None` nothing is looked for or kept, and the
        hosts end with the program; else they wait for the next one, until somebody calls `kill`.

        Raises `SpawnError` where a host does not come up, `ValueError` where the file is none of ours, `TypeError` for
        a job of a kind of your own that cannot be pickled.
        """
        if cached_path is None:
            self.apply()
            self._tie()
            return self._running._state()
        with _alone_at(Path(cached_path)):
            if not self.active:
                self._take_over(cached_path)
            if not self.active:
                self.dumps()  # what cannot be kept is not started
                self.apply()
            self.dump(cached_path)
        return self._running._state()

    def enable_telemetry(
        self,
        config: TelemetryConfig | None = None,
        *,
        mesh_admin_config: MeshAdminConfig | None = None,
        **options: object,
    ) -> Self:
        """Accepted for Monarch's sake: `%mesh dash` and `python -m meshbook.debug` show what ranks do as it is."""
        return self

    def enable_admin(self, config: MeshAdminConfig | None = None, **options: object) -> Self:
        """The same."""
        return self

    def _tie(self) -> None:
        """Let the hosts end with this program."""
        atexit.register(self.kill)

    def _take_over(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            found = job_load(path)
            if found.active and found.can_run(self):
                self._adopt(found)
            else:
                found.kill()  # also what is left of one that has lost a host

    def kill(self) -> None:
        """End the hosts and what runs on them; the second time there is nothing to do."""
        atexit.unregister(self.kill)
        if self.active:
            self._running._kill()
            self._found, self._was_created = None, False

    @property
    def active(self) -> bool:
        """Do its hosts run?"""
        return self._running._is_running()

    @property
    def _running(self) -> JobTrait:
        return self._found or self

    def dump(self, filename: str) -> None:
        """Write down where the hosts are, for `job_load`."""
        put_privately(Path(filename), self.dumps())  # what is set in the environment of hosts may be a secret

    def dumps(self) -> bytes:
        """The same as text, for `job_loads`."""
        running = self._running
        return json.dumps({"kind": type(running).__name__, **running._facts()}).encode()

    @abstractmethod
    def can_run(self, spec: JobTrait) -> bool:
        """Is this, which runs, what `spec` asks for?"""

    @abstractmethod
    def _create(self, client_script: str | None) -> None: ...

    @abstractmethod
    def _state(self) -> JobState: ...

    @abstractmethod
    def _kill(self) -> None: ...

    def _is_running(self) -> bool:
        """As far as this program knows; a kind that can look may do so."""
        return self._was_created

    def _facts(self) -> dict[str, Any]:
        """What another program needs to find it: of a kind of your own, itself."""
        try:
            pickled = base64.b64encode(pickle.dumps(self))
            return {"pickled": pickled.decode(), "seal": _seal(pickled)}
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            name, why = type(self).__name__, f"{type(error).__name__}: {error}"
            raise TypeError(f"a {name} cannot be kept: call state(cached_path=None), or let pickle do: {why}") from None

    def _adopt(self, found: JobTrait) -> None:
        """Go on with what was found."""
        self._found = found


class LocalJob(JobTrait):
    """This machine under each of these names: a job for trying a program out."""

    def __init__(self, hosts: Sequence[str] = ("hosts",)) -> None:
        self._hosts = [_checked(name) for name in hosts]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """From what was kept of one: nothing of it runs without its program."""
        return cls(facts["hosts"])

    def can_run(self, spec: JobTrait) -> bool:
        return isinstance(spec, LocalJob) and spec._hosts == self._hosts

    def _create(self, client_script: str | None) -> None:
        _check_no(client_script)

    def _state(self) -> JobState:
        return JobState({name: this_host() for name in self._hosts})

    def _kill(self) -> None:
        this_host().stop().get()

    def _facts(self) -> dict[str, Any]:
        return {"hosts": self._hosts}


class _Loop(msgspec.Struct, frozen=True):
    """The worker loop that is a host of a job."""

    mesh: str
    address: str
    pid: int
    start: int
    """When its process began: with its pid it names it for good."""

    @property
    def lives(self) -> bool:
        found = stat_of(self.pid)
        return found is not None and found.start == self.start and found.state != "Z"

    def end(self, deadline: float) -> None:
        """See it end by itself, or end it."""
        with contextlib.suppress(ProcessLookupError), open(os.pidfd_open(self.pid), "rb", closefd=True) as end:
            if self.lives and not select.select([end], [], [], max(0.0, deadline - time.monotonic()))[0]:
                os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # another program's
            os.waitpid(self.pid, 0)


class ProcessJob(JobTrait):
    """Meshes of hosts that are processes of this machine: several hosts to try a program on, without any.

    `meshes` maps their names to numbers of hosts; `env` is set on all of them. Linux only: processes are told apart by
    when they began.

    Raises `ValueError` for a name that cannot be an attribute, or a mesh without hosts.
    """

    def __init__(self, meshes: Mapping[str, int], env: Mapping[str, str] | None = None) -> None:
        self._meshes = {_checked(name): _count(name, number) for name, number in meshes.items()}
        if not self._meshes:
            raise ValueError("a job without a mesh has no hosts: name one, such as {'trainers': 2}")
        self._env = dict(env or {})
        self._folder = ""
        self._loops: list[_Loop] = []
        self._attached: list[HostMesh] = []
        self._guard: Guard | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """From what was kept of one."""
        job = cls(facts["meshes"], facts["env"])
        job._folder = facts["folder"]
        job._loops = msgspec.convert(facts["loops"], list[_Loop])
        return job

    def can_run(self, spec: JobTrait) -> bool:
        return isinstance(spec, ProcessJob) and (spec._meshes, spec._env) == (self._meshes, self._env)

    def _create(self, client_script: str | None) -> None:
        _check_no(client_script)
        if sys.platform != "linux":
            raise NotImplementedError("a ProcessJob knows its hosts by what only Linux tells: use worker loops here")
        self._kill()  # what is left, where some have ended
        self._folder = tempfile.mkdtemp(prefix=_PREFIX)  # nobody else can enter it
        started: list[tuple[str, str, subprocess.Popen[str]]] = []
        try:
            for mesh, count in self._meshes.items():
                for number in range(count):
                    name = f"{mesh}-{number}"
                    started.append((mesh, name, self._start(name)))
            for mesh, name, process in started:
                self._await(name, process)
                start = getattr(stat_of(process.pid), "start", 0)
                self._loops.append(_Loop(mesh, self._address(name), process.pid, start))
        except BaseException:
            for _, _, process in started:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
            self._forget()
            raise
        for _, _, process in started:
            process.returncode = 0  # nobody is to wait for it, which is no mistake

    def _adopt(self, found: JobTrait) -> None:
        vars(self).update(vars(found))

    def _start(self, name: str) -> subprocess.Popen[str]:
        with open(self._log(name), "w") as log:
            return subprocess.Popen(
                line_for(sys.executable, "meshbook.runtime.engines.worker_loop", self._address(name)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=env_for(os.environ | self._env),
                start_new_session=True,  # it outlives this program, and Ctrl-C in its terminal
            )

    def _await(self, name: str, process: subprocess.Popen[str]) -> None:
        """Wait until it says that it listens."""
        out: IO[str] | None = process.stdout
        assert out is not None
        with out:
            if not select.select([out], [], [], _START_SECONDS)[0]:
                process.kill()  # told below, with what it has said
            elif out.readline():
                return
        code = process.wait()
        words = self._log(name).read_text(errors="replace").splitlines()[-5:]
        raise SpawnError("\n".join([f"host {name} of the job did not come up: exit code {code}", *words]))

    def _log(self, name: str) -> Path:
        return Path(self._folder, f"{name}.log")

    def _address(self, name: str) -> str:
        return f"ipc://{self._folder}/{name}"

    def _state(self) -> JobState:
        def attached(mesh: str) -> HostMesh:
            workers = [loop.address for loop in self._loops if loop.mesh == mesh]
            self._attached.append(attach_to_workers(name=mesh, ca=TRUST, workers=workers))
            return self._attached[-1]

        return JobState({mesh: attached(mesh) for mesh in self._meshes})

    def _is_running(self) -> bool:
        return bool(self._loops) and all(loop.lives for loop in self._loops)

    def _tie(self) -> None:
        super()._tie()
        if self._guard is None:  # a program that is killed calls nothing
            self._guard = Guard([loop.pid for loop in self._loops])

    def kill(self) -> None:
        """End the hosts and what runs on them, also where some have ended by themselves."""
        atexit.unregister(self.kill)
        self._kill()
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _kill(self) -> None:
        while self._attached:
            with contextlib.suppress(RuntimeError):  # it was shut down by the program
                self._attached.pop().stop().get()
        for loop in self._loops:
            with contextlib.suppress(ProcessLookupError):
                if loop.lives:
                    os.kill(loop.pid, signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE
        for loop in self._loops:
            loop.end(deadline)
        self._forget()

    def _forget(self) -> None:
        if Path(self._folder).name.startswith(_PREFIX):  # whatever a file has said
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._loops = "", []

    def _facts(self) -> dict[str, Any]:
        loops = msgspec.to_builtins(self._loops)
        return {"meshes": self._meshes, "env": self._env, "folder": self._folder, "loops": loops}


_KINDS: dict[str, Any] = {kind.__name__: kind.of for kind in (LocalJob, ProcessJob)}


def job_loads(data: bytes) -> JobTrait:
    """A job from what `dumps` gave. Raises `ValueError` for what is none."""
    try:
        facts = json.loads(data)
        if "pickled" not in facts:
            return _KINDS[facts.pop("kind")](facts)
        pickled = facts["pickled"].encode()
        if not hmac.compare_digest(_seal(pickled), facts["seal"]):
            raise ValueError("what is pickled there was not kept by this user")
        found: JobTrait = pickle.loads(base64.b64decode(pickled))
        return found
    except (ValueError, TypeError, LookupError, AttributeError, ImportError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"this is no job that meshbook has kept: {type(error).__name__}: {error}") from None


def job_load(filename: str = DEFAULT_JOB_PATH) -> JobTrait:
    """A job from its file. Raises `FileNotFoundError`, and `ValueError` where it holds none, or others can write it."""
    with open(filename, "rb") as file:
        found, data = os.fstat(file.fileno()), file.read()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ValueError(f"{filename}: others than you can write it, and what it names is ended: remove it")
    try:
        return job_loads(data)
    except ValueError as error:
        raise ValueError(f"{filename}: {error}; remove it to begin anew") from None


def _seal(pickled: bytes) -> str:
    """What only this user's programs can add to it."""
    return hmac.new(own_keys().secret, pickled, "sha256").hexdigest()


def _check_no(client_script: str | None) -> None:
    if client_script is not None:
        raise NotImplementedError(f"a job here runs no script: start {client_script!r} yourself, and let it attach")


def _checked(name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise ValueError(f"a mesh of a job is called as an attribute can be, such as trainers, not {name!r}")
    return name


def _count(name: str, number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"mesh {name!r} has {number!r} hosts: a number of hosts is 1 or more")
    return number
