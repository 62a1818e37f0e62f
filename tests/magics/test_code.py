"""Modules that are edited while ranks have imported them: `%mesh autoreload`, `%mesh sync`."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


ASK = "%%on_mesh\nimport {0}\n{0}.word(), made()"


class Module:
    """A module of the user's in a folder, which is edited."""

    moments = itertools.count(int(time.time()), 10)

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.path = folder / f"{name}.py"
        self.edit("first")

    def edit(self, word: str) -> None:
        self.write(f"def word():\n    return {word!r}\n")

    def write(self, text: str) -> None:
        """As a person does, who is not as fast as a test: the file has a later time each time."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(text)
        os.utime(draft, (moment := next(self.moments), moment))
        draft.replace(self.path)


@pytest.fixture
def module(kernel: Kernel, request: pytest.FixtureRequest) -> Generator[Module]:
    made = Module(Path(kernel.folder), re.sub(r"\W", "_", request.node.name))
    kernel.ok(f"%%on_mesh\nfrom {made.name} import word as made\nimport {made.name}")
    yield made
    kernel.ok("%mesh autoreload auto")
    kernel.ok(f"%%on_mesh\nimport sys\ndel made, {made.name}, sys.modules[{made.name!r}]")
    made.path.unlink()


def said(kernel: Kernel, module: Module) -> str:
    return kernel.ok(ASK.format(module.name)).text


def test_ranks_renew_what_has_changed_while_it_is_on(kernel: Kernel, module: Module) -> None:
    module.edit("second")
    assert "('first', 'first')" in said(kernel, module)
    assert kernel.ok("%mesh autoreload").text.startswith("autoreload is off (auto: as `%autoreload` is here)")
    assert kernel.ok("%mesh autoreload on").text.startswith("autoreload is on: before each cell, ranks renew")
    assert "('second', 'second')" in said(kernel, module), "what had changed before"
    module.edit("third")
    assert "('third', 'third')" in said(kernel, module)  # what was imported by name too
    module.write("def word(:\n")
    ended = kernel.ok(ASK.format(module.name))
    assert f"autoreload of {module.name} failed" in ended.stderr and "Failed to reload" not in ended.stderr
    assert "('third', 'third')" in ended.text
    module.edit("fourth")
    assert "('fourth', 'fourth')" in said(kernel, module)
    kernel.ok("%mesh autoreload off")
    module.edit("fifth")
    assert "('fourth', 'fourth')" in said(kernel, module)


@pytest.mark.parametrize("where", ["", "%%on_mesh\n"], ids=["the notebook", "ranks"])
def test_autoreload_of_ipython_means_ranks_too(kernel: Kernel, module: Module, where: str) -> None:
    kernel.ok(f"{where}%load_ext autoreload\n%autoreload 2")
    said(kernel, module)
    module.edit("second")
    assert "('second', 'second')" in said(kernel, module)
    kernel.ok(f"{where}%autoreload 0")
    module.edit("third")
    assert "('second', 'second')" in said(kernel, module)


def test_modules_that_have_imported_a_class_have_each_edit_of_it_with_its_lines(kernel: Kernel, module: Module) -> None:
    def edit(number: int) -> None:
        method = f"    def place(self):\n        return {number}, sys._getframe().f_lineno\n"
        module.write("# a line\n" * number + f"import sys\nclass Layer:\n    width = 1\n{method}")

    edit(1)
    kernel.ok("%mesh autoreload on")
    (Path(kernel.folder) / "uses_layers.py").write_text(f"from {module.name} import Layer\n")
    asked = (
        "%%on_mesh\nfrom uses_layers import Layer\nold = globals().get('old', Layer())\nold.place(), Layer().place()"
    )
    for number in (1, 2, 3, 4):
        edit(number)
        assert str(((number, number + 5),) * 2) in kernel.ok(asked).text
    kinds = "isinstance(old, Layer), Layer is sys.modules[Layer.__module__].Layer"
    assert "(True, True)" in kernel.ok(f"%%on_mesh\nimport sys\n{kinds}").text
    kernel.ok("%mesh autoreload off")
    edit(5)
    assert str(((5, 10),) * 2) in kernel.ok(asked.replace("mesh", "mesh\n%autoreload", 1)).text
    (Path(kernel.folder) / "uses_layers.py").unlink()


def test_an_ipython_that_does_not_tell_is_told_of_once(kernel: Kernel, module: Module) -> None:
    """Its magics keep how they are set in a private place, which another version may not have."""
    magics = "get_ipython().magics_manager.registry['AutoreloadMagics']"
    kernel.ok(f"%load_ext autoreload\n%autoreload 0\nkept = {magics}.__dict__.pop('_reloader')")
    first, second = (kernel.ok(ASK.format(module.name)) for _ in range(2))
    assert "does not tell if `%autoreload` is on here: `%mesh autoreload on` renews them" in first.stderr
    assert "autoreload" not in second.stderr
    assert "autoreload is off (auto: IPython " in kernel.ok("%mesh autoreload").text
    kernel.ok(f"{magics}._reloader = kept")


def test_a_rank_that_comes_new_renews_too(kernel: Kernel, module: Module) -> None:
    kernel.ok("%mesh up young dp=2 --device cpu --pg none")
    kernel.ok("%mesh autoreload on")
    kernel.ok(f"%%on_mesh\nimport {module.name}\nfrom {module.name} import word as made")
    kernel.ok("%mesh interrupt 1 --kill")
    kernel.ok("%mesh restart @dead")
    module.edit("second")
    text = said(kernel, module)
    assert "('second', 'second')" in text and "ranks 0-1" in text
    kernel.ok("%mesh down young --grace 0.2")


def test_code_travels_to_hosts_before_the_next_cell(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    module = Module(tmp_path / "project", "travels")
    (tmp_path / "project" / "weights.bin").write_bytes(b"\0" * (11 << 20))
    line = "%mesh up far hosts=2 gpus=1 --engine hosts --device cpu --pg none"
    up = kernel.ok(f"{line} --sync {tmp_path}/project")
    assert "synced project to 2 hosts: 1 of 1 files was new or changed (travels.py)" in up.text
    assert "left out: weights.bin (11 MB, over 10 MB)" in up.text
    kernel.ok("%%on_mesh\nfrom travels import word as made")
    assert "('first', 'first')" in said(kernel, module)
    module.edit("second")
    assert "1 of 1 files was new or changed (travels.py)" in kernel.ok("%mesh sync").text
    assert "nothing has changed" in kernel.ok("%mesh sync").text
    assert "('first', 'first')" in said(kernel, module)
    kernel.ok("%mesh autoreload on")
    module.edit("third")
    assert "('third', 'third')" in said(kernel, module)
    kernel.ok("%%on_mesh\nimport travels\nplace = travels.__file__")
    places = kernel.value("get_ipython().run_line_magic('mesh', 'pull place')")
    assert len({*places, str(module.path)}) == 3
    module.path.unlink()
    assert "removed (travels.py)" in kernel.ok("%mesh sync").text
    kernel.ok("%mesh autoreload auto")
    kernel.ok("%mesh down far --grace 0.2")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("up x dp=2 --sync .", "--sync goes with --engine hosts, or monarch: ranks of this machine read the folder"),
        ("up x hosts=1 --engine hosts --sync nowhere", "--sync: there is no folder 'nowhere'"),
        ("sync", "mesh 'm' has no folder of its own: `%mesh up ... --sync DIR` gives it one"),
        ("autoreload perhaps", "%mesh autoreload: 'perhaps' is not one of on, off, auto"),
    ],
)
def test_mistakes_are_told(kernel: Kernel, line: str, why: str) -> None:
    assert why in kernel.cell(f"%mesh {line}").error
