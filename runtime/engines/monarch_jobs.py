"""Hosts that Monarch gets: a job of it is made, waited for, and ended; what it raises is told as what it means."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from importlib import import_module, metadata
from typing import Any

import psutil

from ..errors import SpawnError
from .guard import Guard
from .hosts import address_towards
from .jobs import Order, kubernetes_order, slurm_order

OLDEST = (0, 7)
"""The first version of torchmonarch that has all that is used here."""

_MARK = "MESHBOOK_JOB"

Held = tuple[Any, Callable[[], object]]
"""A host mesh, and what gives it back."""


def need_monarch() -> None:
    """Raise `SpawnError` where Monarch is not installed, or too old."""
    try:
        import_module("monarch.actor")
    except ImportError as error:
        what = "is not installed" if error.name == "monarch" else f"cannot be imported ({error})"
        raise SpawnError(f"Monarch {what}: pip install 'meshbook[monarch]', on Linux, or use --engine hosts") from error
    with contextlib.suppress(metadata.PackageNotFoundError):  # of a nightly build, which has another name
        if trouble := too_old(metadata.version("torchmonarch")):
            raise SpawnError(trouble)


def too_old(version: str) -> str:
    """Why this version of torchmonarch does not do; empty for one that does.

    Example:
        >>> too_old("0.5.1")
        "Monarch 0.5.1 is too old, 0.7 or later is needed: pip install -U 'meshbook[monarch]'"
        >>> too_old("0.10.0.dev3")
        ''
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers >= OLDEST:
        return ""
    oldest = ".".join(map(str, OLDEST))
    return f"Monarch {version} is too old, {oldest} or later is needed: pip install -U 'meshbook[monarch]'"


def hosts_of(kind: str, num_hosts: int, options: Mapping[str, Any], patience: float) -> Held:
    """The hosts of a job of this kind, waited for up to `patience` seconds where the options say nothing else.

    Raises `SpawnError` where there is no Monarch, no scheduler, or no such hosts; what was asked for is taken back.
    """
    need_monarch()
    with _told(kind):
        if kind == "attach":
            return _attached(options["workers"], patience)
        if kind == "process":
            return _processes(num_hosts)
        if kind == "slurm":
            order = slurm_order(num_hosts, options, sys.executable, patience)
            job = _job("monarch.job", "SlurmJob", order)
        else:
            order = kubernetes_order(num_hosts, options, patience)
            job = _on_kubernetes(order)
        if not {"attach_to", "out_of_cluster", "kubeconfig"} & options.keys():  # else it dials, and is not dialled
            _listen()
        return _running(job, order.mesh, is_ours=kind == "slurm" or "image_spec" in order.of_mesh)


def _processes(num_hosts: int) -> Held:
    """Hosts that are processes of this machine. They would outlive this one: a guard ends them with it."""
    mark = secrets.token_hex(8)  # which processes are its own the job does not say
    order = Order({"meshes": {"hosts": num_hosts}, "env": {_MARK: mark}})
    hosts, kill = _running(_job("monarch.job", "ProcessJob", order), "hosts")
    try:
        guard = Guard([child.pid for child in psutil.Process().children() if _mark_of(child) == mark])
    except BaseException:  # Ctrl-C too
        kill()
        raise

    def end() -> None:
        kill()
        guard.close()

    return hosts, end


def _mark_of(child: psutil.Process) -> str:
    try:
        return child.environ().get(_MARK, "")
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended, or is none of ours
        return ""


def _job(module: str, name: str, order: Order) -> Any:
    return getattr(import_module(module), name)(**order.job)


def _on_kubernetes(order: Order) -> Any:
    module: Any = import_module("monarch.job.kubernetes")
    of_job, of_mesh = dict(order.job), dict(order.of_mesh)
    if "kubeconfig" in of_job:
        of_job["kubeconfig"] = module.KubeConfig.from_path(of_job["kubeconfig"])
    if "image_spec" in of_mesh:
        of_mesh["image_spec"] = module.ImageSpec(**of_mesh["image_spec"])
    job = module.KubernetesJob(**of_job)
    job.add_mesh(order.mesh, **of_mesh)
    return job


def _listen() -> None:
    """Let hosts find this machine where its name does not lead there: Monarch goes by the name, and panics."""
    if "MESHBOOK_ADDR" in os.environ or _is_loopback(socket.gethostname()):
        actor: Any = import_module("monarch.actor")
        try:
            actor.enable_transport(f"tcp://{address_towards([])}:0")
        except RuntimeError as error:
            raise SpawnError(
                "this process has used Monarch by other addresses before: restart the kernel, then begin with this job"
            ) from error


def _is_loopback(name: str) -> bool:
    try:
        return socket.gethostbyname(name).startswith("127.")
    except OSError:
        return True


def _running(job: Any, mesh: str, *, is_ours: bool = True) -> Held:
    """The hosts of a job, once it runs. One that was there before is left as it is."""
    end = job.kill if is_ours else lambda: None
    try:
        return getattr(job.state(cached_path=None), mesh), end
    except BaseException:  # Ctrl-C too: what waits in a queue would come, and nobody would know of it
        end()
        raise


def _attached(workers: tuple[str, ...], patience: float) -> Held:
    actor: Any = import_module("monarch.actor")
    hosts = actor.attach_to_workers(ca="trust_all_connections", workers=list(workers))
    try:
        hosts.initialized.get(timeout=patience)
    except TimeoutError as error:
        what = "is Monarch's worker loop running there, and are these its addresses?"
        raise SpawnError(
            f"--job attach: not all of {', '.join(workers)} have answered in {patience:g} s: {what}"
        ) from error
    return hosts, lambda: None


@contextlib.contextmanager
def _told(kind: str) -> Generator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if error.filename not in ("sbatch", "squeue"):
            raise SpawnError(f"--job {kind}: {error}") from error
        where = "start the notebook on a node from which jobs are submitted"
        raise SpawnError(f"--job {kind}: there is no `{error.filename}` here: {where}") from error
    except (ImportError, subprocess.SubprocessError, RuntimeError, OSError, ValueError) as error:
        if isinstance(error, SpawnError):
            raise
        raise SpawnError(f"--job {kind}: {error}".rstrip()) from error
