"""The dashboard's script: its pure half under `node --test`, against frames that Python has packed."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from meshbook.kernel.dashboard.curves import pack_rows
from meshbook.kernel.dashboard.facts import STATES, Gpu, RankFacts
from meshbook.kernel.dashboard.frames import delta, pack, unpack
from meshbook.magics.selector import parse_selector
from meshbook.widgets.base import STATIC, script

NODE = shutil.which("node")
TEST = Path(__file__).with_name("cells.vectors.mjs")
AXES = {"dp": 2, "pp": 3, "tp": 4}
PICKS = [
    [0],
    [1, 5],
    [0, 1, 2, 3],
    [4, 5, 6],
    [0, 12],
    [1, 2, 13, 14],
    [3, 7, 11, 15, 19, 23],
    list(range(24)),
    [0, 23],
]

pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node on this machine")


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert NODE is not None
    (tmp_path / "cells.mjs").write_text((STATIC / "cells.js").read_text())
    (tmp_path / "whole.mjs").write_text(script("cells.js", "home.js", "dashboard.js"))
    shutil.copy(TEST, tmp_path)
    return subprocess.run([NODE, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)


def facts() -> list[RankFacts]:
    made = [RankFacts(rank, state) for rank, state in enumerate(STATES)]
    made[1].cpu, made[1].memory, made[1].metric = 0.5, 3 << 30, 0.25
    made[1].gpu = Gpu(0.87, 61 << 30, 80 << 30, 54)
    made[1].done, made[1].total = 1, 2
    made[2].metric, made[3].metric = math.nan, math.inf
    return made


def test_the_script_reads_what_python_packs(tmp_path: Path) -> None:
    old = facts()
    first = pack(old)
    old[4].state = "busy"
    changes = delta(first, pack(old))
    assert changes
    vectors = {
        "states": STATES,
        "frame": list(first),
        "delta": list(changes),
        "cells": [list(map(_plain, cell)) for cell in unpack(first)],
        "rows": list(pack_rows([(1.0, 2.0, 3.0, 4.0)])),
    }
    (tmp_path / "vectors.json").write_text(json.dumps(vectors))
    done = run(tmp_path, "--test", TEST.name)
    assert done.returncode == 0, done.stdout + done.stderr


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@pytest.mark.parametrize("axes", [AXES, {"rank": 24}, {"dp": 24, "tp": 1}])
def test_a_selection_is_spelled_so_that_it_means_just_these_ranks(tmp_path: Path, axes: dict[str, int]) -> None:
    program = (
        'import { selector } from "./cells.mjs";'
        f"console.log(JSON.stringify({json.dumps(PICKS)}.map((ranks) => "
        f"selector(ranks, {json.dumps(list(axes))}, {json.dumps(list(axes.values()))}))))"
    )
    done = run(tmp_path, "--input-type=module", "-e", program)
    assert done.returncode == 0, done.stderr
    for ranks, text in zip(PICKS, json.loads(done.stdout), strict=True):
        assert list(parse_selector(text).resolve(axes)) == ranks, text
    if axes == AXES:
        assert json.loads(done.stdout)[:4] == ["dp=0,pp=0,tp=0", "dp=0,pp=:2,tp=1", "dp=0,pp=0", "dp=0,pp=1,tp=:3"]


def test_the_joined_script_is_one_module(tmp_path: Path) -> None:
    done = run(
        tmp_path, "--input-type=module", "-e", 'import make from "./whole.mjs"; console.log(Object.keys(make()))'
    )
    assert done.stdout.strip() == "[ 'initialize', 'render' ]", done.stderr
