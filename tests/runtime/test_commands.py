"""Commands on every process of a mesh of hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from meshbook.runtime import this_host
from meshbook.runtime.host import HostMesh
from meshbook.runtime.job import exec_command
from meshbook.runtime.shape import Shape

if TYPE_CHECKING:
    from tests.runtime.conftest import Stage

SAY = 'echo "$MONARCH_RANK_gpus of $MONARCH_SIZE_gpus $WHAT"; exit $MONARCH_RANK_gpus'


def test_the_highest_code_is_the_result_and_output_comes(
    process_stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = exec_command(this_host(), ["sh", "-c", SAY], env={"WHAT": "it"}, per_host={"gpus": 3})
    assert ended.get(30) == 2
    assert sorted(capsys.readouterr().out.splitlines()) == ["0 of 3 it", "1 of 3 it", "2 of 3 it"]


def test_output_may_go_to_files_there(process_stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "$SUBDIR"
    command = ["sh", "-c", "pwd; echo no >&2; kill -9 $$"]
    ended = exec_command(this_host(), command, workdir="/", output_dir=str(folder), per_host={"gpus": 2})
    assert ended.get(30) == 128 + 9
    told = {str(file.relative_to(tmp_path)): file.read_text() for file in tmp_path.rglob("stdout.txt")}
    assert told == {"gpus_0/stdout.txt": "/\n", "gpus_1/stdout.txt": "/\n"}
    assert "no\n" in (tmp_path / "gpus_1" / "stderr.txt").read_text()


def test_python_files_are_run_by_python_where_the_program_is(
    process_stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tool.py").write_text("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(5)")
    monkeypatch.chdir(tmp_path)
    assert exec_command(this_host(), ["tool.py", "a", "b c"]).get(30) == 5
    assert exec_command(this_host(), ["-m", "tool"], rank=0).get(30) == 5
    assert capsys.readouterr().out == "__main__ ['a', 'b c']\n__main__ []\n"


def test_what_is_wrong_is_told() -> None:
    hosts = HostMesh(Shape.row_major({"hosts": 2}))
    with pytest.raises(ValueError, match="there is no command"):
        exec_command(hosts, [])
    with pytest.raises(IndexError, match="rank=2, but axis rank has size 2"):
        exec_command(hosts, ["true"], rank=2)
    with pytest.raises(IndexError, match="hosts=5"):
        exec_command(hosts, ["true"], point={"hosts": 5})


def test_what_fails_later_is_told_by_the_future(process_stage: Stage) -> None:
    with pytest.raises(FileNotFoundError):
        exec_command(this_host(), ["true"], workdir="/nowhere/at/all").get(30)
