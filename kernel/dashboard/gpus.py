"""What the GPUs of ranks do, by NVML where it is installed: no rank is asked."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from .facts import Gpu

PACE = 1.0
"""Seconds between two looks at one device: a look takes about a millisecond."""


class Gpus:
    """The GPUs of this host. NVML is loaded when the first one is asked for.

    Without NVML, or where it fails, there is nothing to know and `trouble` says why.
    """

    def __init__(
        self,
        load: Callable[[], Any] = lambda: importlib.import_module("pynvml"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._clock = clock
        self._nvml: Any = None
        self._seen: dict[str, tuple[float, Gpu | None]] = {}
        self._handles: dict[str, Any] = {}
        self.trouble = ""

    def look(self, device: str, env: Mapping[str, str]) -> Gpu | None:
        """What a torch `device` does now, as a process with this environment counts them; None if that is not known."""
        name = device_name(device, env.get("CUDA_VISIBLE_DEVICES"))
        if name is None or self.trouble:
            return None
        when, gpu = self._seen.get(name, (-PACE, None))
        if self._clock() - when >= PACE:
            gpu = self._ask(name)
            self._seen[name] = self._clock(), gpu
        return gpu

    def close(self) -> None:
        """Let go of NVML."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None

    def _ask(self, name: str) -> Gpu | None:
        try:
            if self._nvml is None:
                nvml = self._load()
                nvml.nvmlInit()
                self._nvml = nvml
            return self._read(self._handle(name))
        except ImportError:
            self.trouble = "nvidia-ml-py is not installed: `pip install meshbook[gpu]` shows GPUs"
        except Exception as error:  # noqa: BLE001 - a driver's errors come in classes that only it knows
            self.trouble = f"NVML: {error}"
        return None

    def _handle(self, name: str) -> Any:
        if name not in self._handles:
            find = self._nvml.nvmlDeviceGetHandleByIndex if name.isdigit() else self._nvml.nvmlDeviceGetHandleByUUID
            self._handles[name] = find(int(name) if name.isdigit() else name)
        return self._handles[name]

    def _read(self, handle: Any) -> Gpu:
        nvml = self._nvml
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        degrees = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        return Gpu(float(busy), int(memory.used), int(memory.total), int(degrees))


def device_name(device: str, visible: str | None) -> str | None:
    """What NVML calls a torch device: its index or its UUID. `visible` is CUDA_VISIBLE_DEVICES.

    Example:
        >>> device_name("cuda:1", None), device_name("cuda:1", "2,GPU-7f"), device_name("cuda:2", "0")
        ('1', 'GPU-7f', None)
    """
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return None
    place = int(index or 0)
    if visible is None:
        return str(place)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return names[place] if place < len(names) else None
