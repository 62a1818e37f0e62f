"""Which process groups can be renewed, and which of their backends comes for which device."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from meshbook.runtime.groups import renewal


class Options:
    """What the makers of backends read and write."""

    def __init__(self, timeout: timedelta = timedelta(days=7)) -> None:
        self._timeout = timeout
        self.global_ranks_in_group = [0, 1]
        self.group_name = "0"
        self.split_from: object = "a communicator"


class Backend:
    """One that counts."""

    def __init__(self, store: Any, rank: int, size: int, options: Any = None, timeout: Any = None) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.options = options or Options(timeout)
        self.count = 0

    def _set_sequence_number_for_group(self) -> None:
        self.count = 0

    def _get_sequence_number_for_group(self) -> int:
        return self.count


class Gloo(Backend):
    """As torch has it for CPUs."""


class Nccl(Backend):
    """As torch has it for GPUs."""


class Group:
    """A process group as torch keeps it: backends by type, and by device the one that is in use."""

    def __init__(self, by_device: dict[str, Any]) -> None:
        self.group_name, self.group_desc = "0", "default_pg"
        self._by_device = by_device
        self.numbers: dict[str, int] = {}

    @property
    def _device_types(self) -> list[str]:
        return list(self._by_device)

    def rank(self) -> int:
        return 1

    def size(self) -> int:
        return 2

    def _get_backend(self, device: str) -> Any:
        if self._by_device[device] is None:
            raise RuntimeError("no backend")
        return self._by_device[device]

    def _register_backend(self, device: str, number: Any, backend: Any) -> None:
        self.numbers[device] = number.value if hasattr(number, "value") else int(number)
        self._by_device[device] = backend

    def _set_group_name(self, name: str) -> None:
        assert name == self.group_name

    def _set_group_desc(self, about: str) -> None:
        assert about == self.group_desc


@pytest.fixture(autouse=True)
def backends(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(dist, "ProcessGroupGloo", Gloo, raising=False)
    monkeypatch.setattr(dist, "ProcessGroupNCCL", Nccl, raising=False)
    monkeypatch.setattr(dist, "PrefixStore", lambda prefix, store: (prefix, store))
    yield


def mixed() -> Group:
    return Group({"cpu": Gloo("s", 1, 2, Options()), "cuda": Nccl("s", 1, 2, Options())})


def test_a_group_for_cpus_and_gpus_gets_one_of_each_kind() -> None:
    group = mixed()
    former = group._get_backend("cpu"), group._get_backend("cuda")
    renewal.renew(group, "store", 3)
    gloo, nccl = group._get_backend("cpu"), group._get_backend("cuda")
    assert type(gloo) is Gloo and type(nccl) is Nccl and not {gloo, nccl} & {*former}
    assert (gloo.rank, gloo.size, nccl.rank, nccl.size) == (1, 2, 1, 2)
    assert gloo.store == ("cpu/", "store") and nccl.store == ("cuda/", "store")
    assert gloo.options._timeout == nccl.options._timeout == timedelta(days=7)
    assert nccl.options.split_from is None and gloo.options.group_name == "0"


def test_one_backend_for_all_devices_stays_one() -> None:
    shared = Gloo("s", 1, 2, Options())
    group = Group({"cpu": shared, "cuda": shared})
    renewal.renew(group, "store", 1)
    assert group._get_backend("cpu") is group._get_backend("cuda") is not shared


def test_no_type_comes_twice_before_the_last_renewal() -> None:
    group, seen = mixed(), set[int]()
    for generation in range(1, 33):
        renewal.renew(group, "store", generation)
        seen |= set(group.numbers.values())
    assert len(seen) == 64 and min(seen) >= 32 and max(seen) < 256


def test_each_kind_counts_and_that_of_gpus_counts_for_the_group() -> None:
    group = mixed()
    group._get_backend("cpu").count, group._get_backend("cuda").count = 3, 5
    assert renewal.all_issued(group) == {"ProcessGroupGloo": 3, "ProcessGroupNCCL": 5}
    assert renewal.num_issued(group) == 5


def test_a_group_with_a_backend_of_another_kind_is_not_renewed_and_counts_itself() -> None:
    for by_device in {"cpu": Gloo("s", 1, 2), "xpu": Backend("s", 1, 2)}, {"cpu": None}:
        group: Any = Group(by_device)
        group._get_sequence_number_for_group = lambda: 7
        c10d = SimpleNamespace(
            _world=SimpleNamespace(pg_map=[group], pg_group_ranks={group: {0: 0}}, pg_names={group: "0"}),
            GroupMember=SimpleNamespace(WORLD=group),
        )
        assert renewal.members(c10d, 1) is None
        assert renewal.all_issued(group) == {"": 7} and renewal.num_issued(group) == 7
