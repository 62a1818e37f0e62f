"""torchrun's environment on every rank, and scripts run as if by torchrun."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from meshbook.runtime.engines.spec import Seat
from meshbook.runtime.spmd import (
    SPMDActor,
    run_as_main,
    setup_torch_elastic_env,
    setup_torch_elastic_env_async,
    torch_environment,
)
from tests.runtime.troupe import Mortal

if TYPE_CHECKING:
    from tests.runtime.conftest import Bench, Stage

SCRIPT = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1] + os.environ["RANK"]).write_text(json.dumps([__name__, *sys.argv[2:]]))
"""


def test_each_rank_gets_its_own(process_stage: Stage) -> None:
    procs = process_stage.procs({"hosts": 2, "gpus": 2})
    setup_torch_elastic_env(procs, master_addr="here", master_port=123)
    mortals = procs.spawn("m", Mortal)

    def values(name: str) -> list[Any]:
        return mortals.environ.call(name).get(10).values()

    assert values("RANK") == values("ROLE_RANK") == list("0123")
    assert values("LOCAL_RANK") == list("0101")
    assert values("GROUP_RANK") == list("0011")
    assert (values("WORLD_SIZE"), values("LOCAL_WORLD_SIZE"), values("GROUP_WORLD_SIZE")) == (
        ["4"] * 4,
        ["2"] * 4,
        ["2"] * 4,
    )
    assert (values("MASTER_ADDR"), values("MASTER_PORT")) == (["here"] * 4, ["123"] * 4)


def test_the_first_rank_says_where_to_meet(process_stage: Stage) -> None:
    procs = process_stage.procs({"gpus": 2})
    asyncio.run(setup_torch_elastic_env_async(procs, use_ipaddr=True))
    mortals = procs.spawn("m", Mortal)
    assert mortals.environ.call("MASTER_ADDR").get(10).values() == ["127.0.0.1"] * 2
    ports = set(mortals.environ.call("MASTER_PORT").get(10).values())
    assert len(ports) == 1
    assert 0 < int(ports.pop()) < 65536


@pytest.mark.real
def test_the_first_rank_says_the_address_of_its_host(local: Bench) -> None:
    seats = [Seat(0, 1, addr="127.0.0.2"), Seat(0, 1, addr="127.0.0.3")]
    spmd = local.up({"hosts": 2}, seats=seats).spawn("spmd", SPMDActor)
    assert [host for host, _ in spmd.get_host_port.call(True).get(10).values()] == ["127.0.0.2", "127.0.0.3"]


def test_a_script_runs_on_every_rank(process_stage: Stage, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    spmd = process_stage.procs({"gpus": 2}).spawn("spmd", SPMDActor)
    host, port = spmd.slice(gpus=0).get_host_port.call_one(True).get(10)
    assert spmd.main.call(host, port, [str(script), f"{tmp_path}/out", "--lr", "1"]).get(20).values() == [True, True]
    assert [(tmp_path / f"out{rank}").read_text() for rank in range(2)] == ['["__main__", "--lr", "1"]'] * 2


def test_a_script_that_raises_says_so(process_stage: Stage, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('in the script')")
    spmd = process_stage.procs({"gpus": 1}).spawn("spmd", SPMDActor)
    with pytest.raises(ValueError, match="in the script"):
        spmd.main.call_one("x", 1, [str(script)]).get(20)
    with pytest.raises(ValueError, match="script_args is empty"):
        spmd.main.call_one("x", 1, []).get(20)


def test_a_script_imports_what_lies_beside_it_and_exits_as_a_program_does(process_stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "meshbook_helper.py").write_text("codes = {'fine': 0, 'none': None, 'bad': 3}")
    script = tmp_path / "train.py"
    script.write_text("import sys\nfrom meshbook_helper import codes\nsys.exit(codes[sys.argv[1]])")
    spmd = process_stage.procs({"gpus": 1}).spawn("spmd", SPMDActor)
    for how in ("fine", "none"):
        assert spmd.main.call_one("x", 1, [str(script), how]).get(20) is True
    with pytest.raises(RuntimeError, match=r"train\.py exited with 3"):
        spmd.main.call_one("x", 1, [str(script), "bad"]).get(20)
    assert spmd.main.call_one("x", 1, [str(script), "fine"]).get(20) is True


def test_modules_run_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "meshbook_trainer.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setattr(sys, "argv", ["pytest"])
    run_as_main(["-m", "meshbook_trainer", f"{tmp_path}/out", "x"])
    assert (tmp_path / "out7").read_text() == '["__main__", "x"]'


def test_a_mesh_without_axes_is_a_world_of_one(process_stage: Stage) -> None:
    procs = process_stage.procs()
    setup_torch_elastic_env(procs)
    mortal = procs.spawn("m", Mortal)
    assert [mortal.environ.call_one(name).get(10) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")] == ["0", "0", "1"]


def test_all_names_of_torchrun_are_there() -> None:
    names = set(torch_environment(0, 1, 0, 1, "x", 1))
    assert names >= {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    assert {name.partition("_")[0] for name in names} >= {"GROUP", "ROLE"}
