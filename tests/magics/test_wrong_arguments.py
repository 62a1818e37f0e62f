"""What a notebook shows of wrong calls of the library: the user's line and what would be right, nothing of ours."""

from __future__ import annotations

import re

import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


IMPORTS = """
import torch
import meshbook
from meshbook import heal_mesh, this_host
from meshbook.runtime import Accumulator, Extent, Future, as_endpoint, config, send
from meshbook.runtime.rdma import RDMABuffer
"""


@pytest.fixture
def imported(kernel: Kernel) -> Kernel:
    kernel.ok(IMPORTS)
    kernel.ok("r = %on_mesh -- rank")
    kernel.cell("%%on_mesh -o half\n1 / rank")
    return kernel


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("m.pull('nothing_here')", "NameError: name 'nothing_here' is not defined on rank 0"),
        ("m.pull('x', [9])", "ValueError: there is no rank 9: those of m go from 0 to 3"),
        ("m.pull('x', 3)", "TypeError: ranks are a list, such as [0, 1], not 3"),
        ("m.run('1', '0')", "TypeError: ranks are a list, such as [0, 1], not '0'"),
        ("m.run(3)", "TypeError: a cell is a text, and 3 is none: `execute` takes functions"),
        ("m.push(3)", "TypeError: push takes names with their values, such as {'lr': 0.1}, not 3"),
        ("m.execute(3)", "TypeError: execute takes a function and its arguments, not 3"),
        ("m.log(99)", "ValueError: there is no rank 99"),
        ("m.stacks([99])", "ValueError: there is no rank 99"),
        ("m.ledger([99])", "ValueError: there is no rank 99"),
        ("m.heal([99])", "ValueError: there is no rank 99"),
        ("m.metrics()['loss_of_nobody']", "no rank has reported 'loss_of_nobody'"),
        ("m.resize({'zz': 3})", "zz"),
        ("m.procs.size('zz')", "KeyError: \"<ProcMesh {dp=2,tp=2}> does not have dimension 'zz'\""),
        ("heal_mesh(3)", "TypeError: heal takes a mesh, not 3"),
        ("this_host().spawn_procs({'a': -1})", "ValueError: axis 'a' has size -1; an axis has at least 1 rank"),
        ("this_host().spawn_procs(3)", "TypeError: per_host is a dict of axes and sizes, such as {'gpus': 2}, not 3"),
        ("RDMABuffer(torch.ones(2, 2).t())", "ValueError: RDMABuffer only supports 1d contiguous torch.Tensor"),
        ("r[9]", "IndexError: rank 9 is not in this result: it is of ranks 0-3"),
        ("r.sel(pp=0)", "KeyError: \"no axis 'pp': there are dp, tp, rank\""),
        ("r.item()", "ValueError: item() is for one rank, and this result has 4 (0-3): r[0]"),
        ("half.stack()", "ZeroDivisionError: division by zero"),
        ("meshbook.log(loss='high')", "ValueError: could not convert string to float: 'high'"),
        ("config.configure(no_such_key=3)", "ValueError: invalid configuration key: 'no_such_key'"),
        ("Extent(['a'], [1, 2])", "ValueError: label/sizes dimension mismatch: 1 != 2"),
        ("Future(3)", "TypeError: Future objects come from calls"),
        ("as_endpoint(3)", "ValueError: as_endpoint takes a method of a spawned actor"),
        ("send(3, (), {})", "TypeError: send takes an endpoint of a mesh, such as mesh.step, not 3"),
        ("Accumulator(3, 0, max)", "TypeError: an Accumulator takes an endpoint of a mesh, such as mesh.loss, not 3"),
    ],
)
def test_it_ends_at_the_users_line(imported: Kernel, line: str, error: str) -> None:
    failed = imported.cell(line)
    assert error in failed.error
    assert f"----> 1 {line}" in failed.traceback
    assert not re.search(r'^ *File "?[^"]*\.py', failed.traceback, re.MULTILINE)  # a rank may tell of its cell's
    imported.ok("%%on_mesh\nNone")
