"""What is left of a controller that is gone: who is ended, who is not, and what is kept on disk of it."""

from __future__ import annotations

import os
import signal
import stat as modes
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.controller.regroup import wait_until
from meshbook.runtime.system import leftovers
from meshbook.runtime.system.leftovers import Fate, judge, reap, tidy
from meshbook.runtime.system.proc import Stat, stat_of
from meshbook.runtime.system.registry import Entry, Register, Registry, registry, state_folder, this_place

Bench = Any  # the class stands in `conftest.py`, which cannot be imported by name
Until = Callable[..., Any]

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
pytestmark = only_linux

HERE = ("host", "boot", "pids")


def entries() -> st.SearchStrategy[Entry]:
    return st.builds(Entry, st.integers(1, 6), st.integers(1, 3), st.just("rank"))


def stats() -> st.SearchStrategy[dict[int, Stat]]:
    each = st.builds(Stat, st.sampled_from("RSTZ"), st.integers(1, 6), st.just(0), st.integers(1, 3))
    return st.dictionaries(st.integers(1, 6), each)


@given(st.tuples(*[st.sampled_from([word, "another"]) for word in HERE]), entries(), st.lists(entries()), stats())
def test_only_what_certainly_was_left_behind_is_ended(
    place: tuple[str, str, str], controller: Entry, processes: list[Entry], living: dict[int, Stat]
) -> None:
    verdict = judge(Register(*HERE, controller, processes), place, living)
    controls = living.get(controller.pid)
    if verdict.fate is not Fate.REAP:
        assert verdict.orphans == ()
    for orphan in verdict.orphans:
        assert place == HERE
        assert orphan in processes
        assert living[orphan.pid].start == orphan.start
        assert controls is None or controls.start != controller.start or controls.state == "Z"
    if verdict.fate is Fate.FORGET and place == HERE:
        assert not any(living.get(e.pid) == Stat("S", e.pid, 0, e.start) for e in [controller, *processes])
    if place[0] != HERE[0]:
        assert verdict.fate is Fate.KEEP
    elif place[1] != HERE[1]:
        assert verdict.fate is Fate.FORGET


@pytest.fixture
def orphan() -> Generator[subprocess.Popen[str]]:
    """A process with a child, in a group of their own, which ends by itself only after minutes."""
    program = "sleep 600 & echo $!; wait"
    command = ["sh", "-c", program]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True) as process:
        yield process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def gone() -> Entry:
    """A controller that is gone: nobody else gets its pid with that start."""
    with subprocess.Popen(["sleep", "600"]) as process:
        seen = stat_of(process.pid)
        process.kill()
    assert seen is not None
    return Entry(process.pid, seen.start, "controller")


def entry_of(pid: int, what: str = "rank 0") -> Entry:
    seen = stat_of(pid)
    assert seen is not None
    return Entry(pid, seen.start, what)


def keep(folder: Path, controller: Entry, *processes: Entry, **changes: str) -> Path:
    register = msgspec.structs.replace(Register(*this_place(), controller, list(processes)), **changes)
    path = folder / f"{controller.pid}-{controller.start}.json"
    path.write_bytes(msgspec.json.encode(register))
    return path


def test_an_orphan_is_ended_with_its_group(
    tmp_path: Path, orphan: subprocess.Popen[str], gone: Entry, until: Until
) -> None:
    assert orphan.stdout is not None
    child = int(orphan.stdout.readline())
    path = keep(tmp_path, gone, entry_of(orphan.pid))
    tidy(tmp_path)
    assert path.exists()
    report = reap(tmp_path)
    assert repr(report) == f"ended rank 0 (pid {orphan.pid}): its controller (pid {gone.pid}) is gone"
    assert orphan.wait(5) == -signal.SIGKILL
    until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    assert not path.exists()
    assert repr(reap(tmp_path)) == "nothing is left behind"


def test_another_process_by_the_same_pid_is_left_alone(
    tmp_path: Path, orphan: subprocess.Popen[str], gone: Entry
) -> None:
    own = entry_of(orphan.pid)
    path = keep(tmp_path, gone, Entry(own.pid, own.start - 1, own.what))
    report = reap(tmp_path)
    assert (report.ended, report.num_forgotten, path.exists()) == ([], 1, False)
    assert orphan.poll() is None
    leftovers._end(Entry(own.pid, own.start - 1, own.what))  # pyright: ignore[reportPrivateUsage] - it came meanwhile
    assert orphan.poll() is None


def test_what_is_in_use_or_of_another_machine_is_left_alone(
    tmp_path: Path, orphan: subprocess.Popen[str], gone: Entry
) -> None:
    own = entry_of(orphan.pid)
    paths = [keep(tmp_path, entry_of(os.getpid()), own)]
    paths.append(keep(tmp_path, Entry(gone.pid, 1, ""), own, host="another"))
    paths.append(keep(tmp_path, Entry(gone.pid, 2, ""), own, space="pid:[1]"))
    assert reap(tmp_path).num_living == 3
    assert all(path.exists() for path in paths)
    assert orphan.poll() is None


def test_after_a_boot_nothing_is_meant(tmp_path: Path, orphan: subprocess.Popen[str], gone: Entry) -> None:
    path = keep(tmp_path, gone, entry_of(orphan.pid), boot="an older one")
    tidy(tmp_path)
    assert not path.exists()
    assert orphan.poll() is None


def test_what_cannot_be_ended_is_told_and_remembered(
    tmp_path: Path, orphan: subprocess.Popen[str], gone: Entry
) -> None:
    def refuse(entry: Entry) -> None:
        raise PermissionError(1, "Operation not permitted")

    path = keep(tmp_path, gone, entry_of(orphan.pid))
    assert repr(reap(tmp_path, refuse)) == f"could not end rank 0 (pid {orphan.pid}): Operation not permitted"
    assert path.exists()


def test_a_file_of_somebody_elses_making_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "7-7.json").write_text('{"pid": 7}')
    assert repr(reap(tmp_path)) == "nothing is left behind"
    assert repr(reap(tmp_path / "nowhere")) == "nothing is left behind"


def test_the_folder_is_where_state_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MESHBOOK_STATE")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert state_folder() == Path.home() / ".local/state/meshbook"
    monkeypatch.setenv("XDG_STATE_HOME", "/var/mine")
    assert state_folder() == Path("/var/mine/meshbook")


def test_a_register_is_private_and_goes_with_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHBOOK_STATE", str(tmp_path / "state"))
    own = Registry()
    own.note("a", {os.getpid(): "rank 0", 1 << 30: "nobody"})
    own.note("b", {os.getppid(): "zygote"})
    [path] = (tmp_path / "state").iterdir()
    register = msgspec.json.decode(path.read_bytes(), type=Register)
    assert [(entry.pid, entry.what) for entry in register.processes] == [
        (os.getpid(), "rank 0"),
        (os.getppid(), "zygote"),
    ]
    assert [modes.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]
    assert reap(path.parent).num_living == 1
    own.drop("a")
    assert path.exists()
    own.drop("b")
    own.drop("b")
    assert list(path.parent.iterdir()) == []


def test_a_folder_that_cannot_be_made_hinders_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MESHBOOK_STATE", str(tmp_path / "file" / "state"))
    own = Registry()
    own.note("a", {os.getpid(): "rank 0"})
    own.drop("a")
    assert [*tmp_path.rglob("*")] == [tmp_path / "file"]


@pytest.mark.real
def test_a_mesh_is_in_the_register_as_long_as_it_lives(local: Bench) -> None:
    def noted() -> set[int]:
        return {entry.pid for entries in registry._noted.values() for entry in entries}  # pyright: ignore[reportPrivateUsage]

    mesh = local.up({"rank": 3})
    pids = {state.pid for state in mesh.roster.states.values()}
    assert wait_until(mesh.roster, lambda: pids <= noted(), 10)  # a rank may be ready before its zygote says so
    path = registry._path  # pyright: ignore[reportPrivateUsage] - it may stand in any folder
    assert path is not None
    written = msgspec.json.decode(path.read_bytes(), type=Register)
    assert {entry.pid: entry.start for entry in written.processes if entry.pid in pids} == {
        pid: entry_of(pid).start for pid in pids
    }
    mesh.roster.stop()
    assert not pids & noted()
