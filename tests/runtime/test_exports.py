"""The face of the library: every name of `monarch.actor`, fetched when it is used."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import meshbook.runtime

OF_MONARCH = [
    "Accumulator",
    "Actor",
    "ActorError",
    "as_endpoint",
    "attach",
    "attach_to_workers",
    "Channel",
    "ChannelTransport",
    "concurrent_endpoint",
    "config",
    "Context",
    "context",
    "current_actor_name",
    "current_rank",
    "current_size",
    "debug_controller",
    "default_bootstrap_cmd",
    "enable_transport",
    "Endpoint",
    "endpoint",
    "Extent",
    "Future",
    "get_meter",
    "get_or_spawn_controller",
    "HostMesh",
    "MeshFailure",
    "Point",
    "Port",
    "PortReceiver",
    "ProcId",
    "ProcMesh",
    "returns_future",
    "run_worker_loop_forever",
    "run_worker_loop_until_shutdown",
    "send",
    "shutdown_context",
    "span",
    "start_worker_loop_forever",
    "this_host",
    "this_proc",
    "traced",
    "Uid",
    "unhandled_fault_hook",
    "ValueMesh",
]

BESIDES = ["ActorMesh", "NDSlice", "Shape", "SupervisionError"]


@pytest.mark.parametrize("name", [*OF_MONARCH, *BESIDES])
def test_a_program_for_monarch_finds_its_names(name: str) -> None:
    assert name in meshbook.runtime.__all__
    assert name in dir(meshbook.runtime)
    assert getattr(meshbook.runtime, name) is not None


def test_every_exported_name_is_there() -> None:
    assert list(meshbook.runtime.__all__) == sorted(meshbook.runtime.__all__)
    scope: dict[str, object] = {}
    exec("from meshbook.runtime import *", scope)
    assert set(meshbook.runtime.__all__) <= scope.keys()


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'meshbook.runtime' has no attribute 'Aktor'"):
        _ = meshbook.runtime.Aktor  # pyright: ignore


@pytest.mark.parametrize("package", ["meshbook", "meshbook.runtime"])
def test_what_goes_wrong_in_an_import_is_told(package: str, tmp_path: Path) -> None:
    (tmp_path / "uuid.py").write_text("X = 1")  # msgspec takes it for Python's own
    path = os.pathsep.join(each for each in sys.path if each)
    answer = subprocess.run(
        [sys.executable, "-c", f"from {package} import this_host"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    error = answer.stderr.splitlines()[-1]
    assert error.startswith("ImportError: cannot import 'this_host': module 'uuid' has no attribute 'UUID' (")
    assert str(tmp_path / "uuid.py") in error  # since 3.13 Python itself says what is wrong with the file
    assert "direct cause" in answer.stderr


def test_no_module_hides_a_name() -> None:
    """A package has its modules as attributes, from when they are imported: `heal` was a function until then."""
    modules = {each.name for each in pkgutil.iter_modules(meshbook.runtime.__path__)}
    assert modules & set(meshbook.runtime.__all__) == {"config", "rdma", "spmd"}
    assert modules & set(meshbook.__all__) <= {"config", "rdma", "spmd"}
    tensors = importlib.import_module("meshbook.runtime.tensors")
    assert not {each.name for each in pkgutil.iter_modules(tensors.__path__)} & set(tensors.__all__)


def test_config_and_spmd_are_modules() -> None:
    from meshbook.runtime import config, spmd

    assert {"configure", "configured", "get_global_config"} <= vars(config).keys()
    assert {"setup_torch_elastic_env", "SPMDActor"} <= vars(spmd).keys()


def test_the_face_loads_next_to_nothing_before_it_is_used() -> None:
    """One small file, to which the face of the package says who stands above."""
    program = (
        "import sys, meshbook.runtime as r; before = set(sys.modules); r.this_host; "
        "print(sorted(m for m in before if m.startswith('meshbook.runtime.')), 'torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert answer.stdout.strip() == "['meshbook.runtime.upstairs'] False", answer.stderr
