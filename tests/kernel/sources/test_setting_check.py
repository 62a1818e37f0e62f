"""Variables that a cell sets after torch has read them are found in its text, and nothing else is."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from meshbook.kernel.sources.setting_check import TooLate, too_late


def found(source: str) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.line) for each in too_late(source, {})]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import os\nos.environ['OMP_NUM_THREADS'] = '4'", 2),
        ("os.environ['OMP_NUM_THREADS'] = '4'", 1),
        ("import os as o\no.environ['OMP_NUM_THREADS'] = '4'", 2),
        ("from os import environ\nenviron['OMP_NUM_THREADS'] = '4'", 2),
        ("from os import environ as e\ne['OMP_NUM_THREADS'] = '4'", 2),
        ("from os import *\nenviron['OMP_NUM_THREADS'] = '4'", 2),
        ("environ['OMP_NUM_THREADS'] = '4'", 1),
        ("a = os.environ['OMP_NUM_THREADS'] = '4'", 1),
        ("if rank == 0:\n    os.environ.setdefault('OMP_NUM_THREADS', '4')", 2),
        ("os.putenv('OMP_NUM_THREADS', '4')", 1),
        ("os.environ.update({'A': '1',\n 'OMP_NUM_THREADS': '4', **more})", 2),
        ("os.environ.update(\n  A='1',\n  OMP_NUM_THREADS='4')", 3),
        ("x = 1\n%env OMP_NUM_THREADS=4", 2),
        ("%env OMP_NUM_THREADS = 4 \n!ls", 1),
        ("  %set_env OMP_NUM_THREADS 4", 1),
        ("%matplotlib inline\nos.environ['OMP_NUM_THREADS'] = '4'\nx?", 2),
    ],
)
def test_what_comes_too_late_is_found(source: str, line: int) -> None:
    assert found(source) == [("OMP_NUM_THREADS", "4", line)]


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['OMP_NUM_THREADS']",
        "print(os.environ)",
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0'",
        "os.environ['TORCH_HOME'] = '/x'",  # is read when it is needed
        "os.environ['TORCHINDUCTOR_CACHE_DIR'] = '/x'",
        "os.environ['NCCL_DEBUG'] = 'INFO'",
        "os.environ[name] = '4'",
        "os.environ.get('OMP_NUM_THREADS', '4')",
        "os = mine()\nos.environ['OMP_NUM_THREADS'] = '4'",
        "settings['OMP_NUM_THREADS'] = '4'  # not of environ",
        "del os.environ['OMP_NUM_THREADS']",
        "text = '''\nos.environ['OMP_NUM_THREADS'] = '4'\n'''",
        "os.environ['OMP_NUM_THREADS'] = = '4'",
        "%env",
        "%env OMP_NUM_THREADS",
        "%%bash\nexport OMP_NUM_THREADS=4  # environ",
    ],
)
def test_nothing_else_is(source: str) -> None:
    assert found(source) == []


def test_what_ranks_have_already_may_be_set_to_that() -> None:
    source = "os.environ['OMP_NUM_THREADS'] = '1'"
    assert too_late(source, {"OMP_NUM_THREADS": "1"}) == []
    assert too_late(source, {"OMP_NUM_THREADS": "2"}, first_line=5) == [TooLate("OMP_NUM_THREADS", "1", 5)]


def test_the_last_value_counts_and_one_that_is_computed_is_not_told() -> None:
    assert found("os.environ['TORCH_LOGS'] = 'a'\nos.environ['TORCH_LOGS'] = 'b'") == [("TORCH_LOGS", "b", 2)]
    [late] = too_late("os.environ['TORCH_LOGS'] = f'{level}'", {})
    assert late.warning() == (
        "line 1: TORCH_LOGS is read when torch is imported, which ranks have done: %mesh up ... --env TORCH_LOGS=…"
    )


def test_a_value_of_several_words_is_quoted() -> None:
    assert TooLate("TORCH_LOGS", "a, b", 1).warning().endswith(": %mesh up ... --env 'TORCH_LOGS=a, b'")


def test_settings_of_torchs_compiler_are_found_in_torch() -> None:
    [late] = too_late("os.environ['TORCH_COMPILE_DISABLE'] = '1'", {})
    assert late.warning() == (
        "line 1: TORCH_COMPILE_DISABLE is read when torch's compiler is imported, which ranks may have done: "
        "%mesh up ... --env TORCH_COMPILE_DISABLE=1"
    )


PROGRAM = """
import os
asked = set()
class Environ(type(os.environ)):
    def __getitem__(self, name):
        asked.add(name)
        return super().__getitem__(name)
os.environ.__class__ = Environ
import torch
print(*asked)
asked.clear()
import torch._dynamo
print(*asked)
"""


def test_torch_reads_what_is_said_to_be_read() -> None:
    """But for what its libraries read in C."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**os.environ}, check=True
    )
    at_once, later = (re.findall(r"TORCH\w+", line) for line in ran.stdout.splitlines())
    assert {"TORCH_LOGS", "TORCH_LOGS_FORMAT", "TORCH_LOGS_OUT"} <= set(at_once)
    assert len(later) > 100
    late = {name for name in later if found(f"os.environ[{name!r}] = '1'")}
    assert len(late) > 0.9 * len(later), sorted({*later} - late)
