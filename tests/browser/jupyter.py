"""A Jupyter server of its own for the tests in a browser: on loopback, away from the user's settings."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from meshbook.kernel import spec
from tests.profiles import COMPILER, leave_torch_out, preload

FrontEnd = Literal["lab", "notebook"]
Theme = Literal["JupyterLab Light", "JupyterLab Dark"]

_WAIT = 90.0  # seconds that a server may take to answer: it unpacks itself the first time

_SETTINGS = {
    # A toast covers the corner of a screenshot, and news need the network.
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
    # What is scrolled away stays in the page.
    "notebook-extension/tracker": {"windowingMode": "none"},
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running server of both front-ends: where it is and which folder it shows."""

    url: str
    folder: Path
    settings: Path

    def page_of(self, notebook: str, front_end: FrontEnd = "lab") -> str:
        """The address of a notebook, in a workspace that nobody else uses."""
        own = Path(notebook).stem
        return (
            f"{self.url}/lab/workspaces/{own}/tree/{notebook}?reset"
            if front_end == "lab"
            else f"{self.url}/notebooks/{notebook}"
        )

    def use_theme(self, theme: Theme) -> None:
        """Pages that are opened from now on have this theme."""
        _write_setting(self.settings, "apputils-extension/themes", {"theme": theme})


@contextlib.contextmanager
def serve(home: Path) -> Generator[Server]:
    """Start a server and end it, with all kernels that it still has."""
    folder, settings = home / "notebooks", home / "settings"
    folder.mkdir(parents=True)
    for name, value in _SETTINGS.items():
        _write_setting(settings, name, value)
    kernel = home / "data" / "kernels" / spec.NAME
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(spec.spec(sys.executable)))
    leave_torch_out(_profile_of_kernel(home, "torchless"))
    preload(_profile_of_kernel(home, "learner"), [COMPILER, "sklearn.datasets"])
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            _command(port, folder), env=_environment(home), stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_until_ready(url, process, home / "server.log")
        yield Server(url, folder, settings)
    finally:
        _end(process)


def _profile_of_kernel(home: Path, name: str) -> Path:
    """Make a kernel of this name; the profile that it will have."""
    folder, profile = home / "data" / "kernels" / name, home / name
    folder.mkdir()
    own = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": name,
        "language": "python",
        "env": {"IPYTHONDIR": str(profile)},
    }
    (folder / "kernel.json").write_text(json.dumps(own))
    return profile


def _command(port: int, folder: Path) -> list[str]:
    """Notebook 7's server, which serves JupyterLab too."""
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": folder,
        "ServerApp.allow_root": True,
        "ServerApp.open_browser": False,
        "ServerApp.terminals_enabled": False,
        "ServerApp.disable_check_xsrf": True,
        "IdentityProvider.token": "",
        "LabApp.expose_app_in_browser": True,
        "JupyterNotebookApp.expose_app_in_browser": True,
    }
    return [sys.executable, "-m", "notebook", *(f"--{name}={value}" for name, value in options.items())]


def _environment(home: Path) -> dict[str, str]:
    own = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    return {**os.environ, "JUPYTER_PLATFORM_DIRS": "1", **{name: str(home / folder) for name, folder in own.items()}}


def _write_setting(settings: Path, name: str, value: object) -> None:
    file = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _WAIT
    while True:
        assert process.poll() is None, f"the server ended:\n{log.read_text()[-4000:]}"
        try:
            urllib.request.urlopen(f"{url}/api/status", timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"the server does not answer:\n{log.read_text()[-4000:]}"
            time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
