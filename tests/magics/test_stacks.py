"""`%mesh stacks`: where the ranks are, asked from a cell while another one runs behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from meshbook.magics.grammar import GrammarError, MeshCommand, Profile, Stacks, parse_mesh
from tests.magics.front_end import Kernel


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("stacks", Stacks()),
        ("stacks dp=1, tp=0 --native", Stacks("dp=1, tp=0", native=True)),
        ("stacks @busy -m m1 --json", Stacks("@busy", mesh="m1", json=True)),
    ],
)
def test_the_line_is_read(line: str, args: Stacks) -> None:
    assert parse_mesh(line) == MeshCommand("stacks", args)


def test_how_long_to_look_is_read() -> None:
    assert parse_mesh("profile dp=1 --for 10") == MeshCommand("profile", Profile("dp=1", duration=10.0))


@pytest.mark.parametrize(("line", "why"), [("stacks --nativ", "--native"), ("profile --for 0", "seconds over 0")])
def test_a_misspelt_option_is_refused(line: str, why: str) -> None:
    with pytest.raises(GrammarError, match=why):
        parse_mesh(line)


@pytest.fixture
def own(kernel: Kernel) -> Iterator[Kernel]:
    """The kernel with a mesh for this test alone: a collective that is given up spoils its group for the next."""
    kernel.ok("%mesh up own dp=2 tp=2 --device cpu;")
    yield kernel
    kernel.ok("%mesh down own --grace 0")


HELD = """%%on_mesh dp=0 -b
import time, torch.distributed as dist
if rank == 1:
    dist.barrier(group=group)
time.sleep(60)"""


@pytest.mark.far
@pytest.mark.slow
@pytest.mark.real
def test_a_running_cell_is_shown_with_its_line(own: Kernel) -> None:
    number = own.ok(HELD).reply["execution_count"]
    while "waiting" not in (text := own.ok("%mesh stacks").results[0]):
        assert "idle" in text
    assert f"cell {number}, line 4" in text
    assert "→ waiting in barrier for" in text
    assert f"cell {number}, line 5" in text
    assert text.splitlines()[-1] == "ranks 2-3 (dp=1,tp=0-1)  idle"
    html = own.ok("%mesh stacks dp=0").shown[0]["text/html"].partition("</style>")[2]
    assert "waiting in barrier" in html
    assert "dp=1" not in html
    rows = json.loads(own.value("get_ipython().run_line_magic('mesh', 'stacks dp=0 --json')"))
    assert [row["waiting"] for row in rows] == ["", "barrier"]
    assert own.completions("%mesh stac") == ["%mesh stacks"]


STEPS = """%%on_mesh -b -o steps
import time, torch.distributed as dist
while True:
    if rank == 2:
        time.sleep(0.05)
    dist.barrier()"""


@pytest.mark.far
@pytest.mark.slow
@pytest.mark.real
def test_where_ranks_spend_their_time_is_shown_side_by_side(own: Kernel) -> None:
    assert own.ok("%mesh profile").results[0].endswith("at one with `-b`"), "nobody works"
    number = own.ok(STEPS).reply["execution_count"]
    shown = own.ok("%mesh profile --for 1.5")
    title, *lines = shown.results[0].splitlines()
    assert title.startswith("where ranks 0-3 were in ")
    [sleeping] = [line for line in lines if f"cell {number}, line 5" in line]
    assert "time.sleep(0.05)" in sleeping and "rank 2: " in sleeping and sleeping.lstrip().startswith("0")
    [waiting] = [line for line in lines if f"cell {number}, line 6" in line]
    assert "dist.barrier()" in waiting and "rank 2: " in waiting
    assert "time.sleep(0.05)" in shown.shown[0]["text/html"]
    told = json.loads(own.value("get_ipython().run_line_magic('mesh', 'profile 2 --for 0.5 --json')"))
    assert told["ranks"] == [2] and told["shares"][0]["source"] == "time.sleep(0.05)"
    own.ok("steps.cancel()")


WITH_LOCALS = """%%on_mesh --on-error wait
import time, threading
go = threading.Event()
class Odd:
    def __repr__(self):
        raise SystemError("nobody may ask me")
def inner(data):
    odd, big = Odd(), torch.zeros(3, 4)
    print("in", flush=True)
    go.wait(60)
def outer(n):
    inner([1] * n)
outer(5)"""


@pytest.mark.slow
@pytest.mark.real
def test_locals_of_a_frame_are_read_while_it_waits(kernel: Kernel) -> None:
    cell = kernel.start(WITH_LOCALS)
    cell.until_all(4, "in")
    text = kernel.start_aside("%mesh stacks --locals 1").end().text
    assert "data = list length 5" in text and "odd = Odd" in text and "big = Tensor float32 [3, 4]" in text, text
    assert "line 10 in inner" in text and "0-3 │ cell" in text
    assert "n = 5" in kernel.start_aside("%mesh stacks 2 --locals 2").end().text
    kernel.interrupt()
    cell.end()
