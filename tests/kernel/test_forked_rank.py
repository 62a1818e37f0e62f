"""Cells on ranks forked from a warmed zygote: displays, figures, asyncio, interrupts."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kernel.conftest import Zygote


@pytest.mark.real
def test_a_warmed_zygote_has_one_thread_and_no_matplotlib(zygote: Zygote) -> None:
    assert zygote.warmed["threads"] == 1
    assert not {"matplotlib", "sqlite3", "torch", "numpy"} & set(zygote.warmed["imported"])


@pytest.mark.real
def test_a_forked_rank_owns_its_process(zygote: Zygote, tmp_path: Path) -> None:
    report = zygote.run(
        tmp_path,
        "import sys, pickle, IPython\nclass A: pass\nsys.modules['__main__'].A is A and A.__module__",
        "type(pickle.loads(pickle.dumps(A()))).__name__",
        "IPython.get_ipython() is get_ipython()",
        "import sys\nsys.displayhook(5)",
    )
    assert [report.text(n) for n in (1, 2, 3)] == ["'__main__'", "'A'", "True"]
    assert [d.mime["text/plain"] for d in report.shown] == ["5"]
    assert report.stderr == ""


@pytest.mark.real
def test_displays_of_a_rank(zygote: Zygote, tmp_path: Path) -> None:
    report = zygote.run(
        tmp_path,
        "from IPython.display import HTML, clear_output, update_display, Image\n"
        "display(HTML('<b>1</b>'))\n"
        "handle = display('a', display_id='here')\n"
        "update_display('b', display_id='here')\n"
        "handle.update('c')\n"
        "clear_output()\n"
        "display({'application/json': {'k': 1}}, raw=True)",
        "%%capture kept\nprint('no')\ndisplay('no')",
        "class Pic:\n    def _repr_png_(self): return b'PNG'\ndisplay(Pic(), metadata={'image/png': {'width': 3}})",
    )
    assert [outcome.failure for outcome in report.outcomes] == [None] * 3
    shown = report.shown
    assert [d.number for d in shown] == [1, 2, 3, 4, 5, 6, 1]
    assert shown[0].mime["text/html"] == "<b>1</b>"
    assert [(d.display_id, d.is_update, d.mime["text/plain"]) for d in shown[1:4]] == [
        ("here", False, "'a'"),
        ("here", True, "'b'"),
        ("here", True, "'c'"),
    ]
    assert shown[4].is_clear
    assert json.loads(shown[5].mime["application/json"]) == {"k": 1}
    assert base64.b64decode(shown[6].mime["image/png"]) == b"PNG"
    assert shown[6].metadata == {"image/png": {"width": 3}}
    assert report.stdout == ""


@pytest.mark.real
def test_commands_and_scripts_on_a_rank(zygote: Zygote, tmp_path: Path) -> None:
    report = zygote.run(tmp_path, "print('a')\n!echo b", "%%bash\necho c\necho d >&2", "%%bash\nexit 3")
    assert (report.stdout, report.stderr) == ("a\nb\nc\n", "d\n")
    assert report.failure(3).type_name == "CalledProcessError"


@pytest.mark.real
def test_to_tell_an_error_no_file_of_a_library_is_parsed(zygote: Zygote, tmp_path: Path) -> None:
    """By what IPython does that with: 700 ms for a column that a DataFrame lacks."""
    report = zygote.run(tmp_path, "import json\njson.loads('{')", "import sys\n'stack_data' in sys.modules")
    assert "in raw_decode" in report.failure(1).traceback
    assert report.text(2) == "False"


@pytest.mark.real
def test_asyncio_run_inside_an_awaited_cell(zygote: Zygote, tmp_path: Path) -> None:
    report = zygote.run(
        tmp_path,
        "import asyncio\n"
        "async def inner():\n    await asyncio.sleep(0.001)\n    return 5\n"
        "def library(): return asyncio.run(inner())\n"
        "await asyncio.sleep(0)\nlibrary() + await inner()",
        "async with asyncio.timeout(5):\n"
        "    async with asyncio.TaskGroup() as group:\n"
        "        tasks = [group.create_task(inner()) for _ in range(3)]\n"
        "[task.result() for task in tasks]",
        "library()",
    )
    assert [report.text(n) for n in (1, 2, 3)] == ["10", "[5, 5, 5]", "5"]
    assert report.stderr == ""


@pytest.mark.real
@pytest.mark.slow
def test_figures_are_shown_at_the_end_of_a_cell_also_of_a_failing_one(zygote: Zygote, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = zygote.run(
        tmp_path,
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
        "plt.plot([3])\n1 / 0",
        "plt.get_fignums()",
        "fig, ax = plt.subplots()\nplt.show()\nprint('after')",
        "%matplotlib inline\nplt.plot([3]);",
        "plt.close('all')\nfig",
        "fig, ax = plt.subplots()\nfig",
    )
    images = [(d.run, d.mime["image/png"]) for d in report.shown]
    assert [run for run, _ in images] == [1, 2, 4, 5, 7]
    assert all(base64.b64decode(png).startswith(b"\x89PNG") for _, png in images)
    assert report.failure(2).type_name == "ZeroDivisionError"
    assert report.text(3) == "[]"
    closed, open_ = report.outcomes[5].value, report.outcomes[6].value
    assert closed is not None and open_ is not None
    assert base64.b64decode(closed.mime["image/png"]).startswith(b"\x89PNG")
    assert (open_.text, open_.mime) == ("Figure (shown above)", {})


@pytest.mark.real
@pytest.mark.slow
def test_a_forked_rank_computes_with_many_threads(zygote: Zygote, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    report = zygote.run(
        tmp_path,
        "import torch\ntorch.set_num_threads(2)\n(torch.ones(512, 512) @ torch.ones(512, 512))[0, 0]",
    )
    assert report.text(1) == "tensor(512.)"


def interrupting(fifo: Path, asked: list[float]) -> Callable[[int], None]:
    """Sends SIGINT once the cell has opened the fifo."""

    def interrupt(pid: int) -> None:
        fifo.read_text()
        asked.append(time.time())
        os.kill(pid, signal.SIGINT)

    return interrupt


@pytest.mark.real
@pytest.mark.parametrize(
    "source",
    [
        # In naps: a signal that comes as Python begins to sleep would not end a long one.
        "import time\nopen({fifo!r}, 'w').close()\nfor _ in range(1_000): time.sleep(0.1)",
        "import asyncio\nopen({fifo!r}, 'w').close()\nawait asyncio.sleep(100)",
        "import asyncio\nopen({fifo!r}, 'w').close()\nwhile True: await asyncio.sleep(0)",
        "import asyncio\nopen({fifo!r}, 'w').close()\nasyncio.run(asyncio.sleep(100))",
        "open({fifo!r}, 'w').close()\n!sleep 100",
        "open({fifo!r}, 'w').close()\nx = 0\nwhile True: x += 1",
    ],
)
def test_an_interrupt_ends_a_cell_at_once(zygote: Zygote, tmp_path: Path, source: str) -> None:
    fifo, asked = tmp_path / "fifo", list[float]()
    os.mkfifo(fifo)
    cell = source.format(fifo=str(fifo))
    report = zygote.run(tmp_path, cell, "'alive'", meanwhile=interrupting(fifo, asked))
    failure = report.failure(1)
    assert failure.type_name == "KeyboardInterrupt"
    assert failure.frames[0].file == "cell 1"
    assert failure.frames[0].line in (1, 2, 3)
    assert report.text(2) == "'alive'"
    assert report.ended - asked[0] < 1.5


@pytest.mark.real
def test_an_interrupted_await_runs_its_finally_and_the_loop_goes_on(zygote: Zygote, tmp_path: Path) -> None:
    fifo, asked = tmp_path / "fifo", list[float]()
    os.mkfifo(fifo)
    report = zygote.run(
        tmp_path,
        "import asyncio\nended = False\n"
        "async def f():\n    global ended\n    try:\n"
        f"        open({str(fifo)!r}, 'w').close()\n        await asyncio.sleep(100)\n"
        "    finally:\n        ended = True\n"
        "await f()",
        "ended",
        "await asyncio.sleep(0, 'again')",
        meanwhile=interrupting(fifo, asked),
    )
    assert [(frame.file, frame.name) for frame in report.failure(1).frames[:2]] == [
        ("cell 1", "<module>"),
        ("cell 1", "f"),
    ]
    assert (report.text(2), report.text(3)) == ("True", "'again'")
