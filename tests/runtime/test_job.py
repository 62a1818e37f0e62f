"""Jobs: hosts that are started once, found again by the next program, and given back."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime import HostMesh, Shape, this_host
from meshbook.runtime.errors import SpawnError
from meshbook.runtime.job import (
    JobState,
    JobTrait,
    LocalJob,
    MeshAdminConfig,
    ProcessJob,
    TelemetryConfig,
    job_load,
    job_loads,
)
from tests.runtime.troupe import Counter

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "kept" / "job.json")


@pytest.fixture
def job() -> Iterator[ProcessJob]:
    job = ProcessJob({"trainers": 2, "loaders": 1}, env={"FLAVOUR": "vanilla"})
    yield job
    job.kill()


@pytest.mark.real
class TestProcesses:
    def test_its_meshes_are_hosts(self, job: ProcessJob, process_stage: Stage, leaks: Any) -> None:
        state = job.state(None)
        assert (state.trainers.sizes, state.loaders.sizes) == ({"hosts": 2}, {"hosts": 1})
        procs = process_stage.owned(state.trainers.spawn_procs({"gpus": 2}))
        assert procs.spawn("c", Counter).add.call(1).get(60).values() == [1, 1, 1, 1]
        procs.stop().get(20)
        leaks.allow_descriptors()  # the agents of hosts stay for the next mesh
        folder = Path(job._folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        job.kill()
        assert not (job.active or folder.exists())
        job.kill()

    def test_the_next_program_finds_them(self, job: ProcessJob, path: str) -> None:
        job.state(path)
        pids = [loop.pid for loop in job._loops]
        program = (
            "import sys\n"
            "from meshbook.runtime.job import ProcessJob\n"
            "same = ProcessJob({'trainers': 2, 'loaders': 1}, env={'FLAVOUR': 'vanilla'})\n"
            "same.state(sys.argv[1])\n"
            "print([loop.pid for loop in same._loops])\n"
        )
        run = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
        assert (json.loads(run.stdout), job.active) == (pids, True)

    def test_what_is_found_and_not_wanted_is_ended(self, job: ProcessJob, path: str) -> None:
        job.state(path)
        other = ProcessJob({"trainers": 1})
        other.state(path)
        assert (job.active, other.active, len(job_load(path)._loops)) == (False, True, 1)  # type: ignore[attr-defined]
        other.kill()
        assert not job_load(path).active

    def test_two_programs_that_want_it_at_once_have_the_same(self, path: str, until: Any) -> None:
        program = (
            "import sys\n"
            "from meshbook.runtime.job import ProcessJob\n"
            "job = ProcessJob({'a': 1})\n"
            "job.state(sys.argv[1])\n"
            "print([loop.pid for loop in job._loops])\n"
        )
        line = [sys.executable, "-c", program, path]
        both = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        first, second = (json.loads(each.communicate(timeout=60)[0]) for each in both)
        job_load(path).kill()
        assert first == second
        until(lambda: not Path(f"/proc/{first[0]}").exists())

    def test_hosts_that_have_ended_are_started_again(self, job: ProcessJob, path: str) -> None:
        job.state(path)
        os.kill(job._loops[0].pid, 9)
        os.waitpid(job._loops[0].pid, 0)
        again = ProcessJob({"trainers": 2, "loaders": 1}, env={"FLAVOUR": "vanilla"})
        left = Path(f"/proc/{job._loops[1].pid}")
        again.state(path)
        assert (again.active, job.active, left.exists()) == (True, False, False)
        again.kill()

    @pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), 9)"])
    def test_hosts_that_are_not_kept_end_with_their_program(self, end: str, until: Any) -> None:
        program = (
            "import os\n"
            "from meshbook.runtime.job import ProcessJob\n"
            "job = ProcessJob({'a': 1})\n"
            "job.state(None)\n"
            f"print(job._loops[0].pid, job._folder, flush=True)\n{end}\n"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=not end)
        pid, folder = run.stdout.split()
        until(lambda: not Path(f"/proc/{pid}").exists())
        assert bool(end) is Path(folder).exists()
        shutil.rmtree(folder, ignore_errors=True)

    def test_one_that_does_not_come_up_is_told_with_its_last_words(self) -> None:
        job = ProcessJob({"a": 1}, env={"PYTHONHOME": "/no/such/python"})
        with pytest.raises(SpawnError, match=r"^host a-0 of the job did not come up: exit code 1\n"):
            job.apply()
        assert not job.active and job._folder == ""

    def test_those_that_have_come_up_end_with_one_that_does_not(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        job = ProcessJob({"well": 1, "ill": 1})
        monkeypatch.setattr(job, "_address", lambda name: f"ipc://{tmp_path}/{name}" if name == "well-0" else "nowhere")
        with pytest.raises(SpawnError, match="host ill-0 of the job did not come up") as caught:
            job.apply()
        assert "meshbook: no worker loop: " in str(caught.value)

    def test_one_that_has_lost_a_host_starts_all_anew(self, job: ProcessJob) -> None:
        job.apply()
        folder, first, left = job._folder, job._loops[0], job._loops[1]
        os.kill(first.pid, 9)
        os.waitpid(first.pid, 0)
        job.state(None)
        assert job.active and not left.lives and not Path(folder).exists()


def test_a_local_job_is_this_machine(stage: Stage, path: str) -> None:
    job = LocalJob(hosts=("trainers", "loaders"))
    state = job.state(path)
    assert state.trainers == state.loaders == this_host()
    assert job.active and not job_load(path).active
    assert job.can_run(LocalJob(["trainers", "loaders"])) and not job.can_run(LocalJob())
    job.kill()
    assert not job.active


def test_a_mesh_that_it_has_not_is_told() -> None:
    state = JobState({"trainers": HostMesh(Shape.unity()), "loaders": HostMesh(Shape.unity())})
    assert "trainers" in dir(state) and repr(state).startswith("JobState(trainers=<HostMesh")
    with pytest.raises(AttributeError, match=r"names: loaders, trainers; did you mean 'trainers'\?"):
        _ = state.trainer
    with pytest.raises(
        AttributeError, match=r"'x' is not a valid host mesh name\. Available names: loaders, trainers$"
    ):
        _ = state.x


@pytest.mark.parametrize(
    ("meshes", "why"),
    [
        ({"a": 0}, "mesh 'a' has 0 hosts: a number of hosts is 1 or more"),
        ({"a": True}, "mesh 'a' has True hosts"),
        ({"two words": 1}, "called as an attribute can be, such as trainers, not 'two words'"),
        ({"_a": 1}, "not '_a'"),
        ({"class": 1}, "not 'class'"),
        ({}, "a job without a mesh has no hosts"),
        ({1: 1}, "not 1"),
    ],
)
def test_a_job_that_cannot_be(meshes: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ProcessJob(meshes)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "OtherJob"}', '{"kind": "ProcessJob", "meshes": {"a": 1}}'])
def test_a_file_that_is_none(text: str, path: str) -> None:
    with pytest.raises(ValueError, match="this is no job that meshbook has kept"):
        job_loads(text.encode())
    Path(path).parent.mkdir()
    Path(path).write_text(text)
    with pytest.raises(ValueError, match=f"^{path}: .*; remove it to begin anew$"):
        ProcessJob({"a": 1}).state(path)


def test_a_file_that_others_can_write(path: str) -> None:
    LocalJob().dump(path)
    assert Path(path).stat().st_mode & 0o777 == 0o600
    os.chmod(path, 0o666)
    with pytest.raises(ValueError, match="others than you can write it"):
        job_load(path)


def test_a_folder_that_is_no_job_s_is_left_alone(tmp_path: Path) -> None:
    facts = {"kind": "ProcessJob", "meshes": {"a": 1}, "env": {}, "folder": str(tmp_path), "loops": []}
    job_loads(json.dumps(facts).encode()).kill()
    assert tmp_path.exists()


def test_telemetry_need_not_be_switched_on() -> None:
    job = LocalJob()
    config = TelemetryConfig(include_dashboard=True, dashboard_port=0)
    assert job.enable_telemetry(config, mesh_admin_config=MeshAdminConfig()) is job
    assert job.enable_telemetry(dashboard_port=0).enable_admin() is job


def test_a_script_is_for_who_started_it() -> None:
    with pytest.raises(NotImplementedError, match=r"a job here runs no script: start 'train\.py' yourself"):
        LocalJob().apply("train.py")


class Mine(JobTrait):
    """A kind of one's own, which takes note of what it is asked."""

    def __init__(self, size: int = 1, extra: object = None) -> None:
        super().__init__()
        self.size, self.extra, self.asked = size, extra, list[object]()

    def can_run(self, spec: JobTrait) -> bool:
        return isinstance(spec, Mine) and spec.size == self.size

    def _create(self, client_script: str | None) -> None:
        self.asked.append(("create", client_script))

    def _state(self) -> JobState:
        return JobState(hosts={"here": this_host()})

    def _kill(self) -> None:
        self.asked.append("kill")
        ended.append(self.size)


ended: list[int] = []


class Trap:
    """Whoever unpickles it runs its code."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("it was unpickled",)


class TestKindsOfOnesOwn:
    def test_it_is_started_once(self) -> None:
        job = Mine()
        assert not job.active
        for _ in range(2):
            assert job.state(None).here == this_host()
        assert job.active and job.asked == [("create", None)]
        for _ in range(2):
            job.kill()
        assert not job.active and job.asked == [("create", None), "kill"]

    def test_it_may_run_a_script(self) -> None:
        job = Mine()
        job.apply("train.py")
        assert job.asked == [("create", "train.py")]
        job.kill()

    def test_the_next_program_goes_on_with_it(self, path: str) -> None:
        first, second, larger = Mine(), Mine(), Mine(2)
        assert first.state(path).here == second.state(path).here == this_host()
        assert first.asked == [("create", None)] and (second.active, second.asked) == (True, [])
        assert isinstance(job_load(path), Mine)
        ended.clear()
        larger.state(path)
        assert ended == [1], "what is found there and does not do is ended"
        assert larger.asked == [("create", None)]
        third = Mine(2)
        third.state(path)
        third.kill()
        assert ended == [1, 2] and not third.active and third.asked == []

    def test_what_cannot_be_pickled_is_not_started(self, path: str) -> None:
        job = Mine(extra=lambda: None)
        with pytest.raises(
            TypeError, match=r"a Mine cannot be kept: call state\(cached_path=None\), or let pickle do: "
        ):
            job.state(path)
        assert job.asked == [] and not Path(path).exists()

    def test_what_others_have_pickled_is_not_read(self) -> None:
        kept = json.loads(Mine().dumps())
        trap = base64.b64encode(pickle.dumps(Trap())).decode()
        without_seal = {"kind": "Mine", "pickled": trap}
        for facts in (kept | {"pickled": trap}, without_seal, kept | {"seal": 3}):
            with pytest.raises(ValueError, match="this is no job that meshbook has kept: "):
                job_loads(json.dumps(facts).encode())
        assert isinstance(job_loads(json.dumps(kept).encode()), Mine)
