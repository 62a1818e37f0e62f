"""Jobs of Monarch by name: which options each takes, and how they are written."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Read = Callable[[str], Any]


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError("is not a whole number of 1 or more")
    return int(text)


def _switch(text: str) -> bool:
    words = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in words:
        raise ValueError("is not yes or no")
    return words[text.lower()]


def _addresses(text: str) -> tuple[str, ...]:
    found = tuple(part for part in text.split(",") if part)
    if not found or not all("://" in part for part in found):
        raise ValueError("is not addresses with commas between them, such as tcp://node1:26600,tcp://node2:26600")
    return found


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job: its options, and those that it cannot do without."""

    options: Mapping[str, Read] = field(default_factory=dict[str, Read])
    needed: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "process": Kind(),
    "slurm": Kind(
        {
            "partition": str,
            "account": str,
            "qos": str,
            "time_limit": str,
            "gpus_per_node": _count,
            "cpus_per_task": _count,
            "mem": str,
            "exclusive": _switch,
            "slurm_args": shlex.split,
            "job_name": str,
            "job_start_timeout": _count,
            "log_dir": str,
            "python_exe": str,
            "monarch_port": _count,
            "bind_to": str,
            "out_of_cluster": _switch,
            "attach_to": str,
        }
    ),
    "kubernetes": Kind(
        {
            "namespace": str,
            "mesh": str,
            "label_selector": str,
            "pod_rank_label": str,
            "port": _count,
            "image": str,
            "gpus": _count,
            "shared_memory_size": str,
            "kubeconfig": str,
            "attach_to": str,
            "timeout": _count,
        },
        ("namespace",),
    ),
    "attach": Kind({"workers": _addresses}, ("workers",)),
}
"""Those that `--job` knows: of the classes of `monarch.job`, and `attach_to_workers`."""


def read_options(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a kind of job: texts are read, values of a program are taken as they are.

    Raises `ValueError` for a kind or an option that is none, a text that is no value, and one that is missing.

    Example:
        >>> read_options("slurm", {"partition": "gpu", "gpus_per_node": "4"})
        {'partition': 'gpu', 'gpus_per_node': 4}
        >>> read_options("slurm", {"partitoin": "gpu"})
        Traceback (most recent call last):
        ValueError: --job slurm has no option 'partitoin': did you mean 'partition'?
    """
    known = known_kind(kind)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known.options:
            raise ValueError(f"--job {kind} has no option {name!r}{_advice(name, known)}")
        try:
            values[name] = known.options[name](value) if isinstance(value, str) else value
        except ValueError as error:
            raise ValueError(f"--job {kind}: {name}={value} {error}") from None
    if missing := [name for name in known.needed if name not in given]:
        raise ValueError(f"--job {kind} needs {missing[0]}: say --job-option {missing[0]}=...")
    for name in ("gpus", "shared_memory_size"):
        if kind == "kubernetes" and name in given and "image" not in given:
            raise ValueError(
                f"--job kubernetes: {name} goes with image, for pods that are made; those that are there have theirs"
            )
    return values


def known_kind(kind: str) -> Kind:
    """The kind of this name. Raises `ValueError` where there is none."""
    if kind not in KINDS:
        raise ValueError(f"there is no kind of job {kind!r}: there are {', '.join(KINDS)}")
    return KINDS[kind]


def _advice(name: str, kind: Kind) -> str:
    if near := difflib.get_close_matches(name, kind.options, 1):
        return f": did you mean {near[0]!r}?"
    return f": there are {', '.join(kind.options)}" if kind.options else ": it takes none"


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked of Monarch: the arguments of the job, and those of its mesh of hosts, called `mesh`."""

    job: Mapping[str, Any]
    mesh: str = "hosts"
    of_mesh: Mapping[str, Any] = field(default_factory=dict[str, Any])


def slurm_order(num_hosts: int, options: Mapping[str, Any], python: str, patience: float) -> Order:
    """Arguments of `SlurmJob`: workers run this Python, and a job that does not begin in time is given up.

    Example:
        >>> slurm_order(2, {"partition": "gpu"}, "/opt/bin/python", 60.0).job["python_exe"]
        '/opt/bin/python'
    """
    defaults = {"python_exe": python, "job_start_timeout": max(1, int(patience))}
    return Order({"meshes": {"hosts": num_hosts}, **defaults, **options})


def kubernetes_order(num_hosts: int, options: Mapping[str, Any], patience: float) -> Order:
    """Arguments of `KubernetesJob` and its `add_mesh`; `kubeconfig` and `image_spec` are still to be made of theirs."""
    of_job = {name: options[name] for name in ("namespace", "kubeconfig", "attach_to") if name in options}
    of_mesh = {name: options[name] for name in ("label_selector", "pod_rank_label", "port") if name in options}
    if "image" in options:
        resources = {"resources": {"nvidia.com/gpu": options["gpus"]}} if "gpus" in options else {}
        memory = {name: options[name] for name in ("shared_memory_size",) if name in options}
        of_mesh["image_spec"] = {"image": options["image"], **resources, **memory}
    of_job["timeout"] = options.get("timeout", max(1, int(patience)))
    return Order(of_job, options.get("mesh", "hosts"), {"num_replicas": num_hosts, **of_mesh})
