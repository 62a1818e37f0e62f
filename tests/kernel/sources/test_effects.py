"""What cells do, as far as the names of what they call tell."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.sources.effects import closure, definitions_of, hot_names, imported, is_setup

SETUP = [
    "import torch, torch.distributed as dist",
    "device = torch.device('cpu')\nlr, epochs = 0.1, 3",
    "model = Net().to(device)\noptimizer = torch.optim.SGD(model.parameters(), lr=lr)",
    "torch.manual_seed(0)",
    "def train():\n    dist.all_reduce(loss)\n    loss.backward()",
    "class Net(nn.Module):\n    def forward(self, x):\n        return dist.all_reduce(x)",
    "step = lambda: optimizer.step()",
    "%matplotlib inline\nimport matplotlib",
    "squares = []\nfor i in range(10):\n    squares.append(i * i)",
    "with open('config') as file:\n    settings = file.read()",
    "",
    "# nothing but words",
    "model.train()\nmodel.eval()",
    "trainer = Trainer(model, args)\ntrainer.add_callback(Callback())",
]

WORK = [
    "dist.barrier()",
    "model = DDP(Net())",
    "model = torch.nn.parallel.DistributedDataParallel(net)",
    "loss.backward()",
    "for batch in loader:\n    optimizer.step()",
    "for epoch in range(3):\n    run_one(epoch)",
    "while not done():\n    pass",
    "if rank == 0:\n    dist.broadcast(x, 0)",
    "with torch.no_grad():\n    dist.all_gather(xs, x)",
    "losses = [model.fit(x) for x in data]",
    "torch.save(model.state_dict(), path)",
    "if rank == 0:\n    with open(path, 'w') as file:\n        print(1, file=file)",
    "log = Path('log').open(mode='ab')",
    "await something()",
    "async for x in xs:\n    pass",
    "!pip install x",
    "%timeit f()",
    "%%bash\nls",
    "this is no python",
    "x = 1\0",
    "trainer.train(resume_from_checkpoint=True)",
    "self.sft_trainer.evaluate()",
    "SFTTrainer(model).train()",
    "parts = accelerator.gather_for_metrics(loss)",
    "model = fabric.setup(model)",
    "name = input('which run? ')",
    "subprocess.run(['make', 'data'])",
    "db.execute('insert into runs values (1)')\ndb.commit()",
]


@pytest.mark.parametrize("source", SETUP)
def test_a_cell_that_neither_trains_nor_communicates_sets_up(source: str) -> None:
    assert is_setup(source)


@pytest.mark.parametrize("source", WORK)
def test_a_cell_that_trains_communicates_or_may_take_long_does_not(source: str) -> None:
    assert not is_setup(source)


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("import a\nlr = 0.1\nx = f()\ntrain()", "import a\nlr = 0.1\n"),
        ("train()\n@decorated\ndef f():\n    pass\ntrain()", "\n@decorated\ndef f():\n    pass\n"),
        ("sizes = {'a': [1, (2, -3)]}\nfit()", "sizes = {'a': [1, (2, -3)]}\n"),
        ("import a; a.run()", ""),
        ("%autoreload 2\nfrom a import b\nb.step()", "\nfrom a import b\n"),
        ("f = lambda: 0\nx = y", ""),
        ("await f()\nclass A:\n    x = 1", "\nclass A:\n    x = 1\n"),
        ("no python at all", ""),
        ("x = 'a\u2028b'\ntrain()\ndef f():\n    pass", "x = 'a\u2028b'\n\ndef f():\n    pass\n"),
    ],
)
def test_of_other_cells_imports_and_definitions_are_kept_at_their_lines(source: str, kept: str) -> None:
    assert definitions_of(source) == kept


STATEMENTS = [
    "import os",
    "x = 1",
    "y = f(2)",
    "train()",
    "def g():\n    return h()",
    "loss.backward()",
    "class A: pass",
]


@given(st.lists(st.sampled_from(STATEMENTS), max_size=6))
def test_what_is_kept_of_a_cell_stands_where_it_stood(parts: list[str]) -> None:
    source = "\n".join(parts)
    kept = definitions_of(source)
    for before, after in zip(source.splitlines(), kept.splitlines(), strict=False):
        assert after in ("", before)
    wanted = [part for part in parts if part in (STATEMENTS[0], STATEMENTS[1], STATEMENTS[4], STATEMENTS[6])]
    assert [ast.unparse(each) for each in ast.parse(kept).body] == [ast.unparse(ast.parse(part)) for part in wanted]


Calls = st.dictionaries(st.sampled_from("abcde"), st.sets(st.sampled_from("abcdexy")), max_size=5)


@given(Calls)
def test_a_name_is_hot_when_it_reaches_one_that_is(calls: dict[str, set[str]]) -> None:
    def reaches(name: str, seen: frozenset[Any] = frozenset()) -> bool:
        return name == "x" or any(reaches(each, seen | {name}) for each in calls.get(name, ()) if each not in seen)

    assert closure(calls, {"x"}) == {name for name in calls if any(reaches(each) for each in calls[name])}


def test_what_was_made_by_a_trainers_class_is_a_trainer_in_every_cell() -> None:
    cells = [
        "tuner = helper = trl.SFTTrainer(model)",
        "def go():\n    tuner.train()",
        "acc = Accelerator()",
        "acc.prepare(x)",
    ]
    hot = hot_names([*cells, "broken ="])
    sources = [
        "helper.evaluate()",
        "go()",
        "tuner.save_model()",
        "acc.prepare(x)",
        "model.train()",
        "scaler.prepare(x)",
    ]
    assert [is_setup(each, hot.alone) for each in sources] == [False, False, False, False, True, True]
    assert [is_setup(each, hot.where_all_come) for each in sources] == [False, False, False, True, True, True]


def test_what_a_cell_imports_is_named_in_full() -> None:
    source = "%time 1\nimport a.b, c as d\nfrom e.f import g\nfrom k import *\nfrom . import h\ndef i(): import j"
    assert list(imported(source)) == ["a.b", "c", "e.f.g", "k"]
    assert list(imported("no python at all")) == []
