"""Collectives without a group are found in the text of a cell, and nothing else is."""

from __future__ import annotations

import inspect
from types import FunctionType

import pytest

from meshbook.kernel.sources.slice_check import GROUP_POSITIONS, Groupless, groupless


def found(source: str) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.call, each.lines) for each in groupless(source)]


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("dist.barrier()", "dist.barrier()"),
        ("torch.distributed.all_reduce(x)", "torch.distributed.all_reduce(…)"),
        ("import torch.distributed as td\ntd.broadcast(x, 0)", "td.broadcast(…)"),
        ("import torch as t\nt.distributed.reduce(x, 0)", "t.distributed.reduce(…)"),
        ("from torch import distributed\ndistributed.gather(x)", "distributed.gather(…)"),
        ("from torch.distributed import all_gather as ag\nag(xs, x)", "ag(…)"),
        ("from torch.distributed import *\nbarrier()", "barrier()"),
        ("from torch.distributed import distributed_c10d as c\nc.barrier()", "c.barrier()"),
        ("work = dist.all_reduce(x, async_op=True)", "dist.all_reduce(…)"),
        ("dist.all_reduce(x, dist.ReduceOp.SUM)", "dist.all_reduce(…)"),
        ("await f(dist.barrier())", "dist.barrier()"),
        ("if rank:\n    for _ in x:\n        [dist.barrier() for _ in y]", "dist.barrier()"),
        ("%matplotlib inline\ndist.barrier()\n!ls -l", "dist.barrier()"),
        ("files = !ls\nx = %who\ndist.barrier()\ndist?", "dist.barrier()"),
        ("%%time\ndist.barrier()", "dist.barrier()"),
        ("def f():\n    dist.barrier()\nf()", "dist.barrier()"),
        ("class A:\n    def forward(self):\n        dist.barrier()\nA()", "dist.barrier()"),
        ("x = lambda: dist.barrier()", "dist.barrier()"),
        ("@deco\ndef f():\n    pass\nf(dist.barrier())", "dist.barrier()"),
    ],
)
def test_a_collective_without_a_group_is_found(source: str, call: str) -> None:
    assert [text for text, _ in found(source)] == [call]


@pytest.mark.parametrize(
    "source",
    [
        "dist.barrier(group=group)",
        "dist.barrier(group)",
        "dist.all_reduce(x, dist.ReduceOp.SUM, group)",
        "dist.all_reduce(x, group=None)",
        "dist.all_reduce(*args)",
        "dist.all_reduce(x, **options)",
        "dist.get_rank()",
        "dist.send(x, 1)",
        "other.barrier()",
        "barrier()",
        "dist.nn.all_reduce(x)",
        "import scipy.spatial.distance as dist\ndist.gather(x)",
        "dist = table()\ndist.gather(x)",
        "def f(dist):\n    dist.gather(x)\nf(table)",
        "def f():\n    dist.barrier()",
        "class A:\n    def forward(self):\n        dist.barrier()",
        "'dist.barrier()'",
        "# dist.barrier()",
        "x = = 1\ndist.barrier()",
        "%%bash\nfor f in *; do dist.barrier(); done",
        "",
        "\0",
    ],
)
def test_what_is_none_is_not_warned_of(source: str) -> None:
    assert found(source) == []


def test_lines_are_those_that_the_reader_sees() -> None:
    source = "import torch\ndist.barrier()\nx = 'é'; dist.barrier(); dist.barrier()\ndist.reduce(x, 0)"
    assert groupless(source, first_line=3) == [
        Groupless("dist.barrier()", (4, 5)),
        Groupless("dist.reduce(…)", (6,)),
    ]


def test_the_table_is_torchs_own() -> None:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    # These take a group and are no collectives that all its ranks must call.
    others = {"irecv", "isend", "recv", "recv_object_list", "send", "send_object_list", "new_subgroups", "shrink_group"}
    asked = {name for name in c10d.__all__ if name.startswith(("get_", "destroy_"))}
    table: dict[str, int] = {}
    for name in set(c10d.__all__) - others - asked:
        function = getattr(dist, name, None)
        if type(function) is not FunctionType:  # `isinstance` would ask a deprecated class for its own
            continue
        if "group" in (names := list(inspect.signature(function).parameters)):
            table[name] = names.index("group")
    assert table == {name: place for name, place in GROUP_POSITIONS.items() if hasattr(dist, name)}
