"""A real notebook kernel, driven as a front end drives it."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ipykernel.kernelspec import write_kernel_spec
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from measure import Broken

_TIMEOUT = 60


class Executed(NamedTuple):
    """What came of a cell: until the kernel was idle again, and what it printed and showed."""

    seconds: float
    text: str
    shown: list[str]
    came: float = 0.0
    """The time of day when the first text came; 0 if none did."""


class Notebook:
    """An ipykernel on this Python. A context manager: the kernel ends with it."""

    def __enter__(self) -> Notebook:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        write_kernel_spec(folder / "bench")
        specs = KernelSpecManager(kernel_dirs=[str(folder)], ensure_native_kernel=False)
        self._manager = KernelManager(
            kernel_name="bench", kernel_spec_manager=specs, transport="ipc", ip=str(folder / "kernel")
        )
        self._manager.start_kernel()
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_TIMEOUT)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return int(self._manager.provisioner.process.pid)  # type: ignore[union-attr]

    def execute(self, code: str) -> Executed:
        """Run a cell to its end. Raises `Broken` with the traceback if it failed."""
        started = time.perf_counter()
        request = self._client.execute(code)
        text, shown, failure, came = "", list[str](), "", 0.0
        while True:
            message = self._client.get_iopub_msg(timeout=_TIMEOUT)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "stream":
                text, came = text + content["text"], came or time.time()
            elif kind in ("display_data", "execute_result"):
                shown.append(content["data"].get("text/plain", ""))
            elif kind == "error":
                failure = "\n".join([code, *content["traceback"]])
        self._client.get_shell_msg(timeout=_TIMEOUT)
        if failure:
            raise Broken(failure)
        return Executed(time.perf_counter() - started, text, shown, came)

    def evaluate(self, code: str) -> Any:
        """The value that `code`, which prints JSON, comes to."""
        return json.loads(self.execute(code).text)
