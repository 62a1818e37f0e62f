"""Functions of the notebook on a rank: which names they find there, and what they leave behind."""

from __future__ import annotations

import gc
import linecache
import weakref
from collections.abc import Generator
from typing import Any

import pytest
from cloudpickle import cloudpickle

from meshbook.kernel.outcome import Outcome
from meshbook.kernel.ranks.cell import CellShell
from meshbook.kernel.ranks.guest import pack
from meshbook.runtime.wire import codec
from meshbook.runtime.wire.classes import KEPT_AS


class Home:
    """A notebook, with one rank that its functions visit."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.rank = CellShell({"rank": 3, "device": "cpu"}, lambda display: None)

    def cell(self, source: str) -> None:
        """A cell that runs in the notebook."""
        exec(compile(source, "<ipython-input-5>", "exec"), self.names)

    def on_rank(self, source: str) -> None:
        assert self.rank.run(source, run=1, name="cell 1").failure is None

    def outcome(self, name: str, *args: Any, lines: list[tuple[str, str, str]] | None = None) -> Outcome:
        packed = pack(self.names[name], args, {})
        _forget_own_classes()
        return self.rank.call(bytes(packed.head), packed.buffers, lines or [], run=2)

    def call(self, name: str, *args: Any) -> Any:
        value = self.outcome(name, *args).value
        assert value is not None and value.pickled is not None
        return codec.loads(value.pickled)


def _forget_own_classes() -> None:
    """As if the rank were another process: there a class of the notebook is a copy."""
    by_id = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID  # pyright: ignore
    for number, cls in list(by_id.items()):
        if (marks := vars(cls).get(KEPT_AS)) is not None and not marks.is_copy:
            del by_id[number]


@pytest.fixture
def home() -> Generator[Home]:
    home = Home()
    yield home
    home.rank.close()


def test_it_finds_what_cells_made_on_the_rank(home: Home) -> None:
    home.on_rank("model = [1, 2]")
    home.cell("def f(): return model, rank")
    assert home.call("f") == ([1, 2], 3)


def test_what_it_makes_global_stays(home: Home) -> None:
    home.cell("def build():\n    global model\n    model = {'step': 0}\ndef step():\n    model['step'] += 1")
    home.call("build")
    home.call("step")
    assert home.rank.namespace["model"] == {"step": 1}


def test_what_the_notebook_has_wins_for_the_length_of_the_call(home: Home) -> None:
    home.on_rank("lr = 1")
    home.cell("lr = 2\ndef f(): return lr")
    assert home.call("f") == 2
    assert home.rank.namespace["lr"] == 1


def test_what_the_rank_did_not_have_stays_and_follows_the_notebook(home: Home) -> None:
    home.cell("lr = 2\ndef f(): return lr")
    assert home.call("f") == home.rank.namespace["lr"] == 2
    home.cell("lr = 3")
    assert home.call("f") == home.rank.namespace["lr"] == 3
    home.on_rank("lr = 9")
    assert (home.call("f"), home.rank.namespace["lr"]) == (3, 9)


def test_the_names_of_the_rank_are_its_own(home: Home) -> None:
    class Refusing:
        def __reduce__(self) -> Any:
            raise TypeError("this stays here")

    home.names["device"] = home.names["mesh"] = Refusing()
    home.cell("rank = 77\ndef f(): return rank, device, 'mesh' in globals(), mesh if rank < 0 else 0")
    assert home.call("f") == (3, "cpu", False, 0)
    assert home.rank.namespace["rank"] == 3


def test_helpers_and_classes_come_along_and_live_on(home: Home) -> None:
    home.cell("def twice(x): return 2 * x + base\nclass Net:\n    def run(self, x): return twice(x)")
    home.cell("def build():\n    global net\n    net = Net()")
    home.on_rank("base = 100")
    home.call("build")
    home.on_rank("base = 200\nshown = net.run(1)")
    assert home.rank.namespace["shown"] == 202


def test_closures_defaults_and_arrays(home: Home) -> None:
    import numpy

    home.cell("def make(n):\n    def f(x, k=5): return x.sum() + n + k + base\n    return f\nf = make(1)")
    home.on_rank("base = 0")
    assert home.call("f", numpy.ones(1_000_000)) == 1_000_006


def test_a_coroutine_is_awaited(home: Home) -> None:
    home.cell("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return rank")
    assert home.call("f") == 3


def test_an_error_names_the_line_of_the_notebooks_cell(home: Home) -> None:
    source = "def f(x):\n    inner = lambda: 1 / x\n    return inner()\n"
    home.cell(source)
    failure = home.outcome("f", 0, lines=[("<ipython-input-5>", "<ipython-input-5-0000005a>", source)]).failure
    assert failure is not None
    assert (failure.type_name, failure.message) == ("ZeroDivisionError", "division by zero")
    assert [(frame.file, frame.line, frame.source) for frame in failure.frames] == [
        ("cell 5", 3, "return inner()"),
        ("cell 5", 2, "inner = lambda: 1 / x"),
    ]
    assert linecache.getline("<ipython-input-5-0000005a>", 1) == "def f(x):\n"
    assert isinstance(home.rank.last_error, ZeroDivisionError)


def test_what_cannot_come_back_is_told(home: Home) -> None:
    home.cell("import threading\ndef f(): return {'lock': threading.Lock()}")
    failure = home.outcome("f").failure
    assert failure is not None
    assert failure.message == "cannot pickle: dict['lock'] is a _thread.lock"


def test_what_cannot_be_read_leaves_no_names(home: Home) -> None:
    home.on_rank("kept = 1")
    home.cell("class Bad:\n    def __reduce__(self): return int, ('x',)\nkept, late = 2, Bad()")
    home.cell("def f(): return kept, late")
    failure = home.outcome("f").failure
    assert failure is not None and failure.type_name == "ValueError"
    assert home.rank.namespace["kept"] == 1


def test_a_builtin_can_be_called_too(home: Home) -> None:
    home.names["pow"] = pow
    assert home.call("pow", 2, 5) == 32
    failure = home.outcome("pow", 0, -1).failure
    assert failure is not None and failure.type_name == "ZeroDivisionError"


def test_nothing_of_a_call_is_kept(home: Home) -> None:
    home.cell("class Big:\n    alive = 0\ndef f(big): return None")
    home.call("f", home.names["Big"]())
    gc.collect()
    assert not [thing for thing in gc.get_objects() if type(thing).__name__ == "Big"]


def test_what_came_with_it_is_freed_when_a_cell_deletes_it(home: Home) -> None:
    home.cell("class Batch: ...\nbatch = Batch()\ndef f(): return batch is None")
    home.call("f")
    freed = weakref.ref(home.rank.namespace["batch"])
    home.on_rank("del batch")
    gc.collect()
    assert freed() is None
