"""Which devices a mesh gets, without waking any."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from meshbook.runtime.system import devices
from meshbook.runtime.system.devices import choose_device, count_gpus, num_gpus, torch_has_cuda

FILES = ["nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "null"]


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 3),
        ("", 0),
        ("-1", 0),
        ("0", 1),
        ("2,0", 2),
        ("0,-1,1", 1),
        ("0, 1", 2),
        ("GPU-8f2b", 1),
        ("0,1,2,3,4", 3),
        ("0,,1", 1),
    ],
)
def test_gpus_that_are_shown(visible: str | None, count: int):
    assert count_gpus(FILES, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == count


def test_no_device_files_no_gpus():
    assert count_gpus(["null"], {"CUDA_VISIBLE_DEVICES": "0"}) == 0


@pytest.mark.parametrize(
    ("asked", "ranks", "gpus", "device"),
    [
        ("auto", 4, 4, "cuda"),
        ("auto", 4, 8, "cuda"),
        ("auto", 4, 3, "cpu"),
        ("auto", 1, 0, "cpu"),
        ("cpu", 1, 8, "cpu"),
        ("cuda", 2, 2, "cuda"),
        ("shared", 2, 2, "cuda"),
        ("shared", 5, 2, "cuda/2"),
    ],
)
def test_the_device_of_a_mesh(asked: str, ranks: int, gpus: int, device: str):
    assert choose_device(asked, ranks, gpus) == device


@pytest.mark.parametrize(
    ("gpus", "text"), [(0, "no GPU that torch can use"), (1, "has 1 GPU:"), (3, "4 ranks on cuda.*has 3 GPUs:")]
)
def test_more_ranks_than_gpus(gpus: int, text: str):
    with pytest.raises(ValueError, match=text):
        choose_device("cuda", 4, gpus)


def test_what_more_ranks_than_gpus_may_do_instead():
    with pytest.raises(
        ValueError, match=r"ask for fewer ranks, or for --device shared, where .*, or for --device cpu$"
    ):
        choose_device("cuda", 4, 1)
    for asked in "cuda", "shared":
        with pytest.raises(
            ValueError, match=r"has no GPU that torch can use: ask for fewer ranks, or for --device cpu$"
        ):
            choose_device(asked, 4, 0)


@pytest.mark.parametrize(
    ("version", "has"),
    [
        ("cuda: Optional[str] = '12.8'\n", True),
        ('cuda = "12.1"\n', True),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.0'\n", False),
        ("__version__ = '2.13.0+cpu'\n", False),
    ],
)
def test_the_build_of_torch_is_read_from_its_version_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, has: bool
):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "version.py").write_text(version)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    assert torch_has_cuda() is has
    monkeypatch.setattr(devices.os, "listdir", lambda folder: FILES)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert num_gpus() == (3 if has else 0)


def test_no_torch_no_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: None)
    assert not torch_has_cuda()
    assert num_gpus() == 0
