"""What nccl is told before its first group."""

from __future__ import annotations

import importlib
import os
from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.runtime.groups import nccl

dist: Any = importlib.import_module("torch.distributed")


@pytest.fixture(autouse=True)
def env(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"TORCH_NCCL_ENABLE_MONITORING": "1", "NCCL_DEBUG": "INFO"})


def test_the_watchdog_ends_no_rank_and_what_the_user_has_set_stays() -> None:
    nccl.settle(is_shared=False)
    assert {name: value for name, value in os.environ.items() if "NCCL" in name} == {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
        "TORCH_NCCL_ENABLE_MONITORING": "1",
        "NCCL_DEBUG": "INFO",
    }


def test_ranks_that_share_a_gpu_name_hosts_of_their_own() -> None:
    nccl.settle(is_shared=True)
    assert os.environ["NCCL_HOSTID"].endswith(f"-{os.getpid()}")


class Backend:
    def __init__(self, is_made: bool) -> None:
        self.is_made = is_made
        self.done: list[str] = []

    def _is_initialized(self) -> bool:
        return self.is_made

    def eager_connect_single_device(self, device: object) -> None:
        self.done.append(f"came on {device}")
        self.is_made = True

    def abort(self) -> None:
        self.done.append("aborted")
        raise RuntimeError("broken in itself")


class Group:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def _get_backend(self, device: object) -> Backend:
        assert str(device) == "cuda"
        return self._backend


def c10d_of(**members: tuple[Backend, bool]) -> SimpleNamespace:
    """Groups by name: each with its backend, and whether its first rank makes the communicator."""
    names = {Group(backend): name for name, (backend, _) in members.items()}
    stores = {name: dist.HashStore() for name in members}
    for name, (_, is_begun) in members.items():
        if is_begun:
            dist.PrefixStore("cuda/", stores[name]).set("0", "an id")
    pg_map = {group: ("nccl", stores[name]) for group, name in names.items()}
    return SimpleNamespace(_world=SimpleNamespace(pg_map=pg_map, pg_names=names))


def test_a_rank_comes_to_those_who_make_a_communicator_and_to_nobody_else() -> None:
    made, awaited, unused = Backend(True), Backend(False), Backend(False)
    c10d = c10d_of(made=(made, True), awaited=(awaited, True), unused=(unused, False))
    assert nccl.come(c10d, "cuda:0") == ["awaited"]
    assert (made.done, awaited.done, unused.done) == ([], ["came on cuda:0"], [])


def test_all_are_aborted_also_beside_one_that_is_broken() -> None:
    backends = Backend(True), Backend(False)
    nccl.abort(c10d_of(a=(backends[0], True), b=(backends[1], False)), joined=["a"])
    assert [backend.done for backend in backends] == [["aborted"], ["aborted"]]
