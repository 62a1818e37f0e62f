"""Ranks in another Python than the program's: a virtual environment with a package of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import Actor, HostMesh, ProcMesh, Shape, endpoint, this_host
from meshbook.runtime.controller.spares import keep_spares
from meshbook.runtime.engines.interpreter import ask, find
from meshbook.runtime.engines.spec import Site
from meshbook.runtime.engines.versions import own_versions
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.healing import heal
from meshbook.runtime.host import mesh_at
from meshbook.runtime.session import session, spawn_procs
from tests.other_python import make_bare, make_other

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


class Native(Actor):
    @endpoint
    def lives_in(self) -> tuple[str, str, int]:
        from only_there import ANSWER  # type: ignore[import-not-found]

        return sys.executable, sys.prefix, ANSWER

    @endpoint
    def first_command_folder(self) -> str:
        return os.environ["PATH"].split(os.pathsep)[0]

    @endpoint
    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if "RANK" not in name}

    @endpoint
    def child(self) -> str:
        """Where a process runs that is spawned from here."""
        with this_host().spawn_procs({"r": 1}) as procs:
            return procs.spawn("child", Native).lives_in.call_one().get(30)[0]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_other(tmp_path_factory.mktemp("other")))


@pytest.fixture
def procs(python: str, process_stage: Stage, leaks: Any) -> ProcMesh:
    procs = process_stage.owned(this_host().with_python_executable(python).spawn_procs({"r": 2}))
    procs.initialized.get(60)
    leaks.allow_what_stands()  # a zygote in that Python
    return procs


@pytest.mark.real
def test_ranks_have_its_packages(procs: ProcMesh, python: str) -> None:
    natives = procs.spawn("native", Native)
    place = (python, str(Path(python).parents[1]), 42)
    assert natives.lives_in.call().get(60).values() == [place, place]
    assert natives.first_command_folder.choose().get(10) == os.path.dirname(python)


@pytest.mark.real
def test_what_they_spawn_runs_there_too(procs: ProcMesh, python: str) -> None:
    assert procs.slice(r=0).spawn("parent", Native).child.call_one().get(60) == python


@pytest.mark.real
def test_they_may_be_executed(python: str, process_stage: Stage) -> None:
    procs = process_stage.owned(spawn_procs({"r": 1}, session().use_python(python), "exec"))
    assert process_stage.spawn(Native, on=procs).lives_in.call_one().get(60)[::2] == (python, 42)


@pytest.mark.real
@pytest.mark.parametrize("how", ["fork", "exec"])
def test_a_spare_that_takes_a_place_has_what_a_rank_has(
    python: str, process_stage: Stage, until: Callable[..., Any], leaks: Any, how: str
) -> None:
    procs = process_stage.owned(spawn_procs({"r": 2}, session().use_python(python), how))
    procs.initialized.get(60)
    leaks.allow_what_stands()  # a zygote in that Python
    keep_spares(procs.roster, 1)
    until(lambda: procs.roster.crew.num_spares == (1, 1), 30)
    procs.roster.kill([1])
    until(lambda: procs.roster.dead() == [1])
    heal(procs)
    natives = process_stage.spawn(Native, on=procs)
    assert natives.lives_in.call().get(60).values() == [(python, str(Path(python).parents[1]), 42)] * 2
    one, other = natives.environment.call().get(10).values()
    assert one == other


@pytest.mark.real
def test_a_reference_to_that_host_means_the_same(python: str, procs: ProcMesh) -> None:
    host = this_host().with_python_executable(python)
    assert host != this_host()
    assert mesh_at(host._site, {}) == host
    assert host.with_python_executable(sys.executable) == HostMesh(Shape.unity())


def test_other_hosts_have_their_own() -> None:
    there = mesh_at(Site("hosts at tcp://node1:1", ("tcp://node1:1",)), {"hosts": 1})
    with pytest.raises(NotImplementedError, match="in the Python that runs the agent or worker loop there"):
        there.with_python_executable(sys.executable)


@pytest.mark.parametrize("name", ["no-such-python", "/no/such/python", ""])
def test_one_that_is_not_there(name: str) -> None:
    with pytest.raises(ValueError, match=f"no Python {name!r} can be run here: name one as /opt/venv/bin/python"):
        HostMesh(Shape.unity()).with_python_executable(name)


def test_a_folder_is_none(python: str) -> None:
    with pytest.raises(ValueError, match=f"that is a folder; in it is {python}$"):
        find(str(Path(python).parents[1]))


def test_a_name_is_looked_for_as_on_the_command_line(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(python))
    assert find("python") == python
    monkeypatch.setenv("HOME", str(Path(python).parents[1]))
    assert find("~/bin/python") == python


Fake = Callable[[str], str]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """A program that does this, in place of a Python."""

    def make(line: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o700)
        return str(path)

    return make


def answer(**differs: str) -> str:
    return "echo " + repr(json.dumps([["/there"], "", *own_versions()._replace(**differs)]))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("exit 3", r"it does not answer as a Python does \(exit code 3\)"),
        ("echo no such option >&2; exit 1", r"it does not answer as a Python does \(no such option\)"),
        ("echo '{}", "it does not answer as a Python does"),
        (answer(python="3.9.1"), "it runs Python 3.9.1, and this notebook 3"),
        (answer(meshbook="0.0.1"), "it runs meshbook 0.0.1, and this notebook"),
    ],
)
def test_one_that_cannot_run_ranks(line: str, why: str, fake: Fake) -> None:
    path = fake(line)
    with pytest.raises(SpawnError, match=f"^{path} cannot run ranks: {why}"):
        ask(path)


def test_one_without_meshbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(SpawnError, match=r"cannot run ranks: ModuleNotFoundError: .*; install meshbook there"):
        ask(str(make_bare(tmp_path)))


def test_torch_may_be_only_there(fake: Fake) -> None:
    assert ask(fake(f"echo started; {answer(torch='9.9')}")).path == ("/there",)
