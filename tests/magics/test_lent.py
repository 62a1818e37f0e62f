"""Functions of the notebook that come to ranks in whatever is sent there: they are told by their cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.magics.front_end import Kernel

pytestmark = pytest.mark.real

WORKERS = """
import os, time
from meshbook import Actor, endpoint

class Worker(Actor):
    @endpoint
    def apply(self, function):
        return function()

workers = m.spawn("workers", Worker)
"""
FUNCTION = """
def wait():
    while not os.path.exists(GATE):
        time.sleep(0.01)
"""
CALLABLE = """
class Job:
    def __call__(self):
        while not os.path.exists(GATE):
            time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def prepared(shared_kernel: Kernel) -> Kernel:
    shared_kernel.ok(WORKERS.strip())
    return shared_kernel


@pytest.mark.parametrize(
    ("code", "sent", "answers", "place"),
    [
        (FUNCTION, "answers = workers.apply.call(wait)", "answers.get()", r"line [23], in wait"),
        (CALLABLE, "answers = workers.apply.call(Job())", "answers.get()", r"line [34], in Job.__call__"),
        (FUNCTION, "%mesh push wait\n%on_mesh -b -o answers -- wait()", "answers.result()", r"line [23], in wait"),
    ],
)
def test_in_whatever_is_sent(prepared: Kernel, code: str, sent: str, answers: str, place: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    number = prepared.value("get_ipython().execution_count")
    prepared.ok(code.strip().replace("GATE", repr(str(gate))))
    prepared.ok(sent)
    prepared.ok(f"while str(m.where(range(4))).count('cell {number} line ') < 4: time.sleep(0.01)")
    assert re.search(rf"cell {number}, {place}", prepared.ok("%mesh stacks").text)
    gate.touch()
    prepared.ok(answers)
