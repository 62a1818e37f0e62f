"""Options of jobs by name, and what they come to: without Monarch."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from meshbook.runtime.engines import monarch_jobs
from meshbook.runtime.engines.jobs import KINDS, kubernetes_order, read_options, slurm_order
from meshbook.runtime.engines.monarch_jobs import hosts_of
from meshbook.runtime.errors import SpawnError


def test_options_are_read_from_their_texts():
    given = [("exclusive", "no"), ("slurm_args", "--constraint=a100 --nice=10"), ("time_limit", "01:00:00")]
    assert read_options("slurm", dict(given)) == {
        "exclusive": False,
        "slurm_args": ["--constraint=a100", "--nice=10"],
        "time_limit": "01:00:00",
    }
    workers = "tcp://a:1,tcp://b:1"
    assert read_options("attach", {"workers": workers}) == {"workers": ("tcp://a:1", "tcp://b:1")}
    assert read_options("process", {}) == {}


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        ("batch", [], "there is no kind of job 'batch': there are process, slurm, kubernetes, attach"),
        ("process", [("partition", "gpu")], "--job process has no option 'partition': it takes none"),
        ("attach", [("hosts", "a")], "--job attach has no option 'hosts': there are workers"),
        ("attach", [("workers", "a,b")], "--job attach: workers=a,b is not addresses with commas between them, such"),
        ("attach", [], "--job attach needs workers: say --job-option workers=..."),
        ("kubernetes", [], "--job kubernetes needs namespace: say --job-option namespace=..."),
        ("kubernetes", [("namespace", "n"), ("gpus", "4")], "--job kubernetes: gpus goes with image, for pods that"),
        (
            "kubernetes",
            [("namespace", "n"), ("shared_memory_size", "1Gi")],
            "--job kubernetes: shared_memory_size goes",
        ),
        ("slurm", [("gpus_per_node", "many")], "--job slurm: gpus_per_node=many is not a whole number of 1 or more"),
        ("slurm", [("exclusive", "perhaps")], "--job slurm: exclusive=perhaps is not yes or no"),
    ],
)
def test_mistakes_name_what_would_be_right(kind: str, given: list[tuple[str, str]], why: str):
    with pytest.raises(ValueError) as caught:
        read_options(kind, dict(given))
    assert str(caught.value).startswith(why)


def test_values_of_a_program_are_checked_by_name_too():
    assert read_options("slurm", {"partition": "gpu"}) == {"partition": "gpu"}
    assert read_options("attach", {"workers": "tcp://a:1,tcp://b:1"}) == {"workers": ("tcp://a:1", "tcp://b:1")}
    assert read_options("slurm", {"slurm_args": "--nice=10", "exclusive": "no"}) == {
        "slurm_args": ["--nice=10"],
        "exclusive": False,
    }
    with pytest.raises(ValueError, match="--job slurm has no option 'gpus_per_nod': did you mean 'gpus_per_node'"):
        read_options("slurm", {"gpus_per_nod": 4})


def test_arguments_of_slurm():
    order = slurm_order(2, {"partition": "gpu", "job_start_timeout": 3600}, "/opt/python", 60.0)
    assert order.job == {
        "meshes": {"hosts": 2},
        "python_exe": "/opt/python",
        "partition": "gpu",
        "job_start_timeout": 3600,
    }
    assert slurm_order(2, {}, "p", 90.5).job["job_start_timeout"] == 90


def test_arguments_of_kubernetes():
    there = kubernetes_order(2, {"namespace": "n", "mesh": "workers", "port": 26600}, 60.0)
    assert (there.job, there.mesh, there.of_mesh) == (
        {"namespace": "n", "timeout": 60},
        "workers",
        {"num_replicas": 2, "port": 26600},
    )
    made = kubernetes_order(1, {"namespace": "n", "image": "me/net:1", "gpus": 4, "timeout": 9}, 60.0)
    assert made.job == {"namespace": "n", "timeout": 9}
    assert made.of_mesh["image_spec"] == {"image": "me/net:1", "resources": {"nvidia.com/gpu": 4}}


class Job:
    """A job of Monarch as a test wants it."""

    def __init__(self, trouble: BaseException | None = None) -> None:
        self.asked: dict[str, Any] = {}
        self.killed = 0
        self._trouble = trouble

    def __call__(self, **arguments: Any) -> Job:
        self.asked = arguments
        return self

    def add_mesh(self, name: str, **arguments: Any) -> None:
        self.asked[name] = arguments

    def state(self, cached_path: None) -> Any:
        if self._trouble is not None:
            raise self._trouble
        return SimpleNamespace(hosts="the hosts", workers="the workers")

    def kill(self) -> None:
        self.killed += 1


def stand_in(monkeypatch: pytest.MonkeyPatch, job: Job) -> list[str]:
    """A Monarch that has this job; the addresses that it is told to listen at."""
    told: list[str] = []
    monkeypatch.setattr(monarch_jobs, "need_monarch", lambda: None)
    jobs, kubernetes = ModuleType("monarch.job"), ModuleType("monarch.job.kubernetes")
    vars(jobs).update(SlurmJob=job)
    vars(kubernetes).update(KubernetesJob=job, ImageSpec=dict, KubeConfig=SimpleNamespace(from_path=lambda path: path))
    vars(actor := ModuleType("monarch.actor")).update(enable_transport=told.append)
    for module in (ModuleType("monarch"), actor, jobs, kubernetes):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("MESHBOOK_ADDR", "10.0.0.1")
    return told


def test_pods_that_are_there_are_left_and_those_that_were_made_are_given_back(monkeypatch: pytest.MonkeyPatch):
    stand_in(monkeypatch, job := Job())
    hosts, end = hosts_of("kubernetes", 2, {"namespace": "n", "mesh": "workers", "kubeconfig": "~/c"}, 60.0)
    assert hosts == "the workers"
    assert job.asked == {"namespace": "n", "kubeconfig": "~/c", "timeout": 60, "workers": {"num_replicas": 2}}
    end()
    assert job.killed == 0
    _, end = hosts_of("kubernetes", 2, {"namespace": "n", "image": "i"}, 60.0)
    assert job.asked["hosts"] == {"num_replicas": 2, "image_spec": {"image": "i"}}
    end()
    assert job.killed == 1


def test_processes_of_monarch_end_where_nobody_can_guard_them(monkeypatch: pytest.MonkeyPatch):
    stand_in(monkeypatch, job := Job())
    monkeypatch.setattr(sys.modules["monarch.job"], "ProcessJob", job, raising=False)

    def interrupted(pids: list[int]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(monarch_jobs, "Guard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hosts_of("process", 2, {}, 60.0)
    assert job.killed == 1


def test_hosts_are_told_where_this_machine_is_unless_it_dials_them(monkeypatch: pytest.MonkeyPatch):
    told = stand_in(monkeypatch, Job())
    hosts_of("slurm", 2, {}, 60.0)
    assert told == ["tcp://10.0.0.1:0"]
    for options in ({"out_of_cluster": True}, {"attach_to": "tcp://a:1"}):
        hosts_of("slurm", 2, options, 60.0)
    monkeypatch.delenv("MESHBOOK_ADDR")
    monkeypatch.setattr(monarch_jobs.socket, "gethostbyname", lambda name: "10.0.0.2")
    hosts_of("slurm", 2, {}, 60.0)  # Monarch finds it by its name
    assert len(told) == 1


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (RuntimeError("Failed to submit SLURM job: sbatch: error: invalid partition specified: gpuu"), "invalid part"),
        (FileNotFoundError(2, "No such file", "sbatch"), r"there is no `sbatch` here: start the notebook on a node"),
        (RuntimeError("Timeout waiting for SLURM job 7 to start"), "Timeout waiting for SLURM job 7 to start"),
    ],
)
def test_a_job_that_does_not_come_is_taken_back_and_says_why(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception, why: str
):
    stand_in(monkeypatch, job := Job(trouble))
    with pytest.raises(SpawnError, match=f"--job slurm: .*{why}"):
        hosts_of("slurm", 2, {"partition": "gpuu"}, 60.0)
    assert job.killed == 1


def test_a_job_that_is_interrupted_in_the_queue_leaves_it(monkeypatch: pytest.MonkeyPatch):
    stand_in(monkeypatch, job := Job(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        hosts_of("slurm", 2, {}, 60.0)
    assert job.killed == 1


def test_a_package_that_is_missing_for_one_kind_is_named(monkeypatch: pytest.MonkeyPatch):
    stand_in(monkeypatch, Job())
    monkeypatch.setitem(sys.modules, "monarch.job.kubernetes", None)
    with pytest.raises(SpawnError, match=r"--job kubernetes: .*monarch\.job\.kubernetes"):
        hosts_of("kubernetes", 1, {"namespace": "n"}, 60.0)


def test_a_version_that_is_too_old_is_named_with_the_one_that_is_needed(monkeypatch: pytest.MonkeyPatch):
    for name in ("monarch", "monarch.actor"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(monarch_jobs.metadata, "version", lambda package: "0.5.1")
    with pytest.raises(SpawnError, match=r"Monarch 0.5.1 is too old, 0.7 or later is needed: pip install -U"):
        hosts_of("process", 1, {}, 60.0)


def test_each_option_is_an_argument_of_monarch():
    """What the table says is what Monarch has: where it is installed."""
    job = pytest.importorskip("monarch.job")
    import inspect

    assert set(KINDS["slurm"].options) <= set(inspect.signature(job.SlurmJob).parameters)
