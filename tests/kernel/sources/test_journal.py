"""Which cells set up a rank that comes new."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from meshbook.kernel.sources import journal as journals
from meshbook.kernel.sources.journal import Choice, Entry, Journal, Pushed, Replay
from meshbook.runtime.controller.reshape import Reshape
from meshbook.runtime.wire import codec


def noted(*sources: str, ranks: tuple[int, ...] = (0, 1)) -> Journal:
    journal = Journal()
    for number, source in enumerate(sources, 1):
        journal.note(f"cell {number}", source, 1, ranks)
    return journal


def planned(journal: Journal, choice: Choice = "auto") -> list[tuple[str, bool]]:
    return [(replay.name, replay.is_part) for replay in replays(journal, choice)]


def replays(journal: Journal, choice: Choice = "auto") -> list[Replay]:
    return [step for step in journal.plan(choice) if isinstance(step, Replay)]


def pushes(journal: Journal) -> list[Pushed]:
    return [note for note in journal.notes if isinstance(note, Pushed)]


def told(steps: Sequence[Entry | Replay | Pushed]) -> list[str]:
    return [f"{step.name}={step.value}" if isinstance(step, Pushed) else step.source for step in steps]


def test_of_what_ran_to_its_end_and_is_not_planned_the_name_is_told() -> None:
    journal = noted("import a", "dist.barrier()")
    journal.note("cell 3", "dist.barrier(group)", 1, [3])
    journal.note("cell 4", "dist.all_reduce(y)", 1, [0, 1]).failed.add(1)
    journal.note("cell 5", "dist.all_reduce(z)", 1, [0, 1]).is_running = True
    plan = journal.plan("auto", [1])
    assert planned(journal) == [("cell 1", False)]
    assert journal.left_out(plan, [1]) == ("cell 2",)
    assert journal.left_out(plan, [1, 3]) == ("cell 2", "cell 3")


def test_what_only_looks_is_neither_replayed_nor_missed() -> None:
    looks = ["x", "net.weight[0], rank * 2", '"text"', "{name: x for name in y}"]
    acts = ["!ls", "%timeit x", "net(x)", "(y := x)", "await x", "x = 1", "del x"]
    journal = noted(*looks, *acts)
    assert [replay.source for replay in replays(journal)] == ["net(x)", "(y := x)", "x = 1", "del x"]
    missed = {journal.entries[int(name.split()[1]) - 1].source for name in journal.left_out([], [1])}
    assert missed == {*acts}
    assert [step.source for step in replays(journal, "all")] == [*looks, *acts]


def test_what_a_new_rank_misses_was_made_by_a_cell_that_has_not_run_there() -> None:
    journal = noted("import a", "net = DDP(Net())", "loss = net(a.x)\ndist.barrier()")
    journal.note("cell 4", "net = 1", 1, [0])
    journal.note_new([1], replays(journal))
    assert [journal.missed_maker("net", rank) for rank in (0, 1)] == [None, journal.entries[1]]
    assert journal.missed_maker("a", 1) is None, "it was replayed"
    assert journal.missed_maker("nosuch", 1) is None
    journal.note("cell 5", "net = DDP(net)", 1, [0, 1]).failed.add(1)
    assert journal.missed_maker("net", 1) == journal.entries[1], "who failed has made nothing"
    journal.note("cell 6", "net = DDP(Net())", 1, [0, 1])
    assert journal.missed_maker("net", 1) is None


def test_functions_of_the_notebook_that_train_are_known_by_name_also_through_others() -> None:
    journal = noted(
        "def step(x):\n    loss(x).backward()",
        "class Trainer:\n    def __init__(self):\n        self.n = 0\n    def epoch(self):\n        step(1)",
        "trainer = Trainer()",
        "trainer.epoch()",
        "class Eager:\n    def __init__(self):\n        step(0)",
        "eager = Eager()",
    )
    assert planned(journal) == [("cell 1", False), ("cell 2", False), ("cell 3", False), ("cell 5", False)]


def test_a_cell_that_failed_gives_its_definitions_only() -> None:
    journal = Journal()
    entry = journal.note("cell 1", "import os\nx = [1][5]", 1, [0, 1])
    entry.failed.add(1)
    [replay] = replays(journal)
    assert (replay.source, replay.is_part) == ("import os\n", True)


def test_nothing_is_set_in_what_is_not_made_there_again() -> None:
    """A loop of `args = ...; train()` and `args.epochs = 3; train()` would tell an error for each of its cells."""
    cells = [
        "import os\nargs = f(0)\nfit(args)",
        "args.epochs = args.all['x'] = 3\nos.environ['LR'] = '1'\nfit(args)",
        "args = f(1)",
        "args.epochs = 4\nfit(args)",
    ]
    journal = noted(*cells)
    assert told(replays(journal)) == ["import os\n", "\nos.environ['LR'] = '1'\n", "args = f(1)", "args.epochs = 4\n"]
    journal = noted(*cells[:2])
    journal.note_push({"args": 1}, [0])
    journal.note("cell 3", cells[3], 1, [0])
    assert "args.epochs = 4\n" in told(replays(journal)), "it was pushed"


def test_a_text_that_runs_again_counts_once_at_its_last_place() -> None:
    journal = noted("x = 1", "x = 2", "x = 1")
    assert [(replay.name, replay.source) for replay in replays(journal)] == [("cell 2", "x = 2"), ("cell 3", "x = 1")]


def test_the_user_may_choose() -> None:
    journal = noted("import a", "train()", "fit()")
    journal.note("warm up", "b = 1", 1, [0])
    assert planned(journal, "none") == []
    assert planned(journal, "all") == [("cell 1", False), ("cell 2", False), ("cell 3", False), ("warm up", False)]
    assert planned(journal, frozenset({2, 9})) == [("cell 2", False)]


def test_the_oldest_cells_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MOST_CELLS", 2)
    assert [name for name, _ in planned(noted("a = 1", "b = 1", "c = 1"))] == ["cell 2", "cell 3"]


def test_values_that_were_pushed_are_kept_unless_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "LARGEST_PUSH", 100)
    journal = Journal()
    journal.note_push({"small": 1, "large": bytes(200)}, [0, 2])
    assert [(push.name, push.value, push.is_kept) for push in pushes(journal)] == [
        ("small", 1, True),
        ("large", None, False),
    ]


def test_what_the_notebook_changes_afterwards_is_kept_as_it_was() -> None:
    journal, weights, names, data = Journal(), np.zeros(10_000), ["a"], SimpleNamespace(lr=1)
    journal.note_push({"weights": weights, "names": names, "data": data, "f": pushes}, [0])
    weights[:], data.lr = 1, 2
    names.append("b")
    kept = {push.name: push.value for push in pushes(journal)}
    assert (kept.pop("names"), kept.pop("f")) == (["a"], pushes)
    given = codec.loads(codec.dumps(kept))  # as a rank gets it
    assert (given["weights"].any(), given["data"].lr) == (False, 1)


def test_every_place_is_given_what_was_pushed_to_it_last() -> None:
    journal = Journal()
    for value, ranks in (1, [0, 1, 2]), (2, [1]), (3, [2]), (4, [1, 2]):
        journal.note_push({"x": value}, ranks)
    assert [(push.value, push.ranks) for push in pushes(journal)] == [(1, (0, 1, 2)), (4, (1, 2))]


def test_pushes_and_cells_are_in_one_order() -> None:
    journal = noted("lr = 0.1")
    journal.note_push({"lr": 0.5}, [0, 1])
    journal.note("cell 2", "lr = 0.9", 1, [0, 1])
    assert told(journal.notes) == told(journal.plan()) == ["lr = 0.1", "lr=0.5", "lr = 0.9"]
    journal.note("cell 3", "lr = 0.1", 1, [0, 1])
    assert told(journal.plan()) == ["lr=0.5", "lr = 0.9", "lr = 0.1"]
    assert journal.plan("none") == []
    assert told(journal.plan(frozenset({2}))) == ["lr=0.5", "lr = 0.9"]


def test_a_push_that_was_replaced_stays_for_the_cells_that_could_read_it() -> None:
    journal = Journal()
    for turn in (1, 2):
        journal.note_push({"lr": turn}, [0, 1])
        journal.note("cell 1", f"a{turn} = lr", 1, [0, 1])
    journal.note_push({"lr": 3}, [0, 1])
    journal.note("cell 2", "opt.step()", 1, [0, 1])
    journal.note_push({"lr": 4}, [0, 1])
    assert told(journal.notes) == ["lr=1", "a1 = lr", "lr=2", "a2 = lr", "lr=3", "opt.step()", "lr=4"]
    assert told(journal.plan()) == ["lr=1", "a1 = lr", "lr=2", "a2 = lr", "lr=4"]
    journal.note("cell 3", "a1 = lr", 1, [0, 1])
    assert told(journal.plan(frozenset({3}))) == ["lr=4", "a1 = lr"]


def test_a_loop_that_pushes_and_runs_one_text_keeps_no_more_than_it_needs() -> None:
    journal = Journal()
    for batch in range(9):
        journal.note_push({"batch": batch}, [0, 1])
        journal.note("cell 1", "train(batch)", 1, [0, 1])
    assert told(journal.notes)[-2:] == ["batch=8", "train(batch)"] and len(journal.notes) <= 3


def test_of_values_that_were_replaced_the_oldest_go_where_they_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "LARGEST_PUSH", 100)
    journal = Journal()
    journal.note_push({"small": 1}, [0, 1])
    journal.note("cell 0", "x = small", 1, [0, 1])
    journal.note_push({"small": 2}, [0, 1])
    for turn in range(4):
        journal.note_push({"data": bytes(40)}, [0, 1])
        journal.note(f"cell {turn}", f"x = {turn}", 1, [0, 1])
    assert [push.is_kept for push in pushes(journal)] == [True, True, False, True, True, True]


TOGETHER = [
    "model = DDP(Net())",
    "for block in model:\n    fully_shard(block, mesh=dp)\nfully_shard(model, mesh=dp)",
    "for block in model:\n    parallelize_module(block, tp, {'up': ColwiseParallel()})",
    "def build():\n    return fully_shard(Net())\nmodel = build()",
    "grid = init_device_mesh('cpu', (2,))",
    "helper = Accelerator(cpu=True)\nmodel = helper.prepare(Net())",
]


@pytest.mark.parametrize("source", TOGETHER)
def test_what_is_built_together_is_replayed_where_all_of_its_ranks_come_new(source: str) -> None:
    journal = noted(source)

    def is_whole(new: Sequence[int]) -> list[bool]:
        return [not step.is_part for step in journal.plan(new=new) if isinstance(step, Replay)]

    assert is_whole([0, 1]) == is_whole([0, 1, 2]) == [True]
    assert not any(is_whole([1]))
    assert not any(is_whole([]))


@pytest.mark.parametrize(
    "source",
    [
        "loss.backward()",
        "if rank == 0:\n    dist.broadcast(x, 0)",
        "torch.save(model.state_dict(), path)",
        "tuner = Trainer(model)\ntuner.train()",
        "await something()",
        "!pip install x",
        "def keep():\n    dcp.save(state, checkpoint_id=path)\nkeep()",
        "model = DDP(Net())\nfor x in data:\n    fit_one(x)",
    ],
)
def test_no_work_is_replayed_however_many_ranks_come_new(source: str) -> None:
    assert not any(not step.is_part for step in noted(source).plan(new=[0, 1]) if isinstance(step, Replay))


def test_a_resize_gives_cells_to_those_who_belong_to_their_slices() -> None:
    journal = Journal()
    journal.note("cell 1", "everywhere = 1", 1, [0, 1, 2, 3])
    journal.note("cell 2", "first = 1", 1, [0, 2]).failed.update([2])  # tp=0
    journal.note("cell 3", "gone = 1", 1, [2, 3])  # dp=1
    journal.note_push({"lr": 1}, [0, 1, 2, 3])
    journal.note_push({"mine": 1}, [3])
    journal.reshape(Reshape.of({"dp": 2, "tp": 2}, {"dp": 1, "tp": 3}))
    assert [(entry.name, entry.ranks, entry.failed) for entry in journal.entries] == [
        ("cell 1", (0, 1, 2), set()),
        ("cell 2", (0,), set()),
    ]
    assert {push.name: push.ranks for push in pushes(journal)} == {"lr": (0, 1, 2)}
    journal.reshape(Reshape.of({"dp": 1, "tp": 3}, {"dp": 2, "tp": 3}))
    assert planned(journal) == [("cell 1", False), ("cell 2", True)]  # which had failed on a rank that is gone


def test_a_cell_in_which_a_new_rank_ended_is_not_replayed_as_a_whole_again() -> None:
    journal = noted("import os\nos.abort()", "x = 1")
    first, second = [step for step in journal.plan() if isinstance(step, Replay)]
    assert not first.is_part
    journal.note_fatal(first, [1])
    assert [step for step in journal.plan() if isinstance(step, Replay)] == [
        Replay(first.name, "import os\n", 1, first.ranks, is_part=True),
        second,
    ]
