"""What nccl is told before its first group."""

from __future__ import annotations

import os

import pytest

from meshbook.runtime.ranks import nccl


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
