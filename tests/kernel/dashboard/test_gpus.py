"""GPUs by NVML: a made-up one, as there is none on most machines that run this."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meshbook.kernel.dashboard.facts import Gpu
from meshbook.kernel.dashboard.gpus import Gpus, device_name


class Nvml:
    """The five functions of pynvml that are used."""

    NVML_TEMPERATURE_GPU = 0

    def __init__(self, broken: str = "") -> None:
        self.calls: list[str] = []
        self.asked_for: list[object] = []
        self._broken = broken

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append(name)
            if name.startswith("nvmlDeviceGetHandle"):
                self.asked_for.append((name.removeprefix("nvmlDeviceGetHandleBy"), *args))
            if name == self._broken:
                raise RuntimeError("Driver Not Loaded")
            return {
                "nvmlDeviceGetHandleByIndex": f"gpu {args[0] if args else ''}",
                "nvmlDeviceGetHandleByUUID": "gpu by uuid",
                "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=61 << 30, total=80 << 30),
                "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=87),
                "nvmlDeviceGetTemperature": 54,
            }.get(name)

        return call


def test_a_device_is_looked_at_once_a_second_whoever_asks() -> None:
    nvml, now = Nvml(), [0.0]
    gpus = Gpus(lambda: nvml, lambda: now[0])
    assert gpus.look("cuda:1", {}) == gpus.look("cuda:1", {}) == Gpu(0.87, 61 << 30, 80 << 30, 54)
    assert nvml.calls.count("nvmlDeviceGetMemoryInfo") == 1
    now[0] = 1.1
    gpus.look("cuda:1", {})
    assert nvml.calls.count("nvmlDeviceGetMemoryInfo") == 2 and nvml.calls.count("nvmlInit") == 1
    gpus.close()
    gpus.close()
    assert nvml.calls.count("nvmlShutdown") == 1


def test_a_device_is_found_by_its_index_or_by_its_uuid() -> None:
    nvml = Nvml()
    gpus = Gpus(lambda: nvml)
    for device in ("cuda:0", "cuda:1"):
        assert gpus.look(device, {"CUDA_VISIBLE_DEVICES": "3,GPU-8a"}) is not None
    assert nvml.asked_for == [("Index", 3), ("UUID", "GPU-8a")]


def test_nothing_is_loaded_for_a_cpu() -> None:
    gpus = Gpus(lambda: pytest.fail("NVML was loaded"))
    assert gpus.look("cpu", {}) is None
    gpus.close()


def test_without_nvml_nothing_is_known_and_the_reason_is() -> None:
    def load() -> Any:
        raise ModuleNotFoundError("pynvml")

    gpus = Gpus(load)
    assert gpus.look("cuda:0", {}) is None
    assert "meshbook[gpu]" in gpus.trouble


def test_a_driver_that_fails_is_asked_no_more() -> None:
    nvml = Nvml(broken="nvmlInit")
    gpus = Gpus(lambda: nvml)
    assert gpus.look("cuda:0", {}) is gpus.look("cuda:0", {}) is None
    assert nvml.calls == ["nvmlInit"] and "Driver Not Loaded" in gpus.trouble


def test_devices_are_counted_as_the_rank_counts_them() -> None:
    assert device_name("cuda", None) == "0"
    assert device_name("cuda:1", "3, 5") == "5"
    assert device_name("cuda:0", "GPU-7f,GPU-8a") == "GPU-7f"
    assert device_name("cuda:2", "0,1") is None
    assert device_name("cpu", None) is None
