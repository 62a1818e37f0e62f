"""Package managers on ranks: one at a time, and none that asks somebody."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.ranks.packages import answered
from meshbook.kernel.ranks.shell import QuietShell
from meshbook.runtime.wire.tape import Text
from tests.kernel.cells import until_at

PIP = """
import os, subprocess, sys
os.mkdir("taken")  # fails where another is at work
subprocess.run([sys.executable, "-S", "-c", "pass"])
os.rmdir("taken")
print("changed", sys.argv[1:])
"""


@pytest.mark.parametrize(
    "manager, line, given",
    [
        ("pip", "uninstall -q numpy", "uninstall -q numpy --yes"),
        ("pip", "uninstall -y numpy", "uninstall -y numpy"),
        ("pip", "list", "list"),
        ("pip", "", ""),
        ("conda", "install numpy", "install numpy --yes"),
        ("mamba", "list", "list"),
        ("uv", "pip uninstall numpy", "pip uninstall numpy"),
    ],
)
def test_a_command_answers_what_it_would_ask(manager: str, line: str, given: str) -> None:
    assert answered(manager, line) == given


def test_each_manager_is_ipythons_own_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = QuietShell()
    ran: list[str] = []
    monkeypatch.setattr(shell, "system", ran.append)
    known = [name for name in ("pip", "uv") if shell.find_line_magic(name) is not None]  # IPython 8 has no `%uv`
    for manager in known:
        shell.run_line_magic(manager, "--version")
    assert [command.split()[-2:] for command in ran] == [[manager, "--version"] for manager in known]


@pytest.mark.real
class TestOnRanks:
    @pytest.fixture
    def mesh(self, engine: str, tmp_path: Path) -> Iterator[Mesh]:
        (tmp_path / "pip.py").write_text(PIP)
        with Mesh.up("packages", {"rank": 4}, engine=engine, path=sys.path, backend="none") as mesh:
            where = f"import os\nos.chdir({str(tmp_path)!r})\nos.environ['PYTHONPATH'] = os.getcwd()"
            assert mesh.run(where).finished.get(20).progress.failed == []
            yield mesh

    def test_each_of_a_machine_has_its_turn(self, mesh: Mesh) -> None:
        run = mesh.run("%pip uninstall toy").finished.get(30)
        said = ["".join(piece.text for _, piece in run.take() if isinstance(piece, Text))]
        assert said[0].count("changed ['uninstall', 'toy', '--yes']\n") == 4, said
        assert said[0].count("On ranks that is `%mesh restart`.\n") == 4

    def test_who_waits_for_its_turn_hears_an_interrupt(self, mesh: Mesh) -> None:
        folder = os.open(sys.prefix, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            run = mesh.run("%pip list")
            until_at(mesh, "line 1", [0, 1, 2, 3])
            mesh.interrupt()
            assert sorted(run.finished.get(20).progress.failed) == [0, 1, 2, 3]
        finally:
            os.close(folder)
