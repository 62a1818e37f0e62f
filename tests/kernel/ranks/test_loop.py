"""The event loop of cells: what they leave in it goes on between them; and an interrupt as it is made."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from meshbook.kernel.ranks.loop import CellLoop

if TYPE_CHECKING:
    from tests.kernel.conftest import Notebook


@pytest.fixture
def bell() -> Generator[tuple[int, int]]:
    """What ends the time between two cells, and what rings it."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@pytest.mark.parametrize(
    "source",
    [
        "1",
        "import asyncio\nawait asyncio.sleep(0)",
        "import asyncio\nasyncio.create_task(asyncio.sleep(0)); await asyncio.sleep(0); await asyncio.sleep(0)",
        "import asyncio\nasyncio.get_running_loop().call_later(60, print).cancel()",
    ],
)
def test_a_cell_that_leaves_nothing_costs_nothing(notebook: Notebook, source: str) -> None:
    assert notebook.run(source).failure is None
    assert not notebook.shell.leftovers.has_any()


@pytest.mark.parametrize(
    "source",
    [
        "task = asyncio.ensure_future(asyncio.Event().wait())",
        "asyncio.get_running_loop().call_later(60, print)",
        "import os\nreader, _ = os.pipe()\nasyncio.get_running_loop().add_reader(reader, print)",
    ],
)
def test_what_a_cell_leaves_in_its_loop_is_known(notebook: Notebook, source: str) -> None:
    assert notebook.run(f"import asyncio\nasyncio.get_running_loop()\n{source}").failure is None
    assert notebook.shell.leftovers.has_any()
    notebook.run("import os, asyncio\nfor task in asyncio.all_tasks(asyncio.get_running_loop()): task.cancel()")
    notebook.run("'reader' in globals() and asyncio.get_running_loop().remove_reader(reader) and os.close(reader)")
    notebook.run("'_' in globals() and type(_) is int and os.close(_)")


def test_a_loop_of_another_kind_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as uvloop's, which cannot be made to nest either."""
    loop = CellLoop(may_nest=True)
    made = asyncio.new_event_loop()
    other = Mock(spec=asyncio.AbstractEventLoop, wraps=made, create_task=made.create_task)
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: other)
    assert loop.run(asyncio.sleep(0, "slept")) == "slept"
    assert not loop.has_any()
    loop.close()
    made.close()


def test_a_task_goes_on_between_cells(notebook: Notebook, bell: tuple[int, int]) -> None:
    notebook.run("import asyncio, os\nasync def work(bell):\n  await asyncio.sleep(0.001)\n  os.write(bell, b'.')")
    notebook.run(f"task = asyncio.create_task(work({bell[1]}))")
    notebook.shell.leftovers.go_on(bell[:1])
    assert notebook.value("task.done()").text == "True"


def test_a_callback_may_make_tasks(notebook: Notebook, bell: tuple[int, int]) -> None:
    """Of a widget, say: in any notebook it runs in the kernel's loop."""

    async def ring() -> None:
        os.write(bell[1], b".")

    tasks: list[asyncio.Task[None]] = []
    notebook.shell.attend(lambda: tasks.append(asyncio.create_task(ring())))
    notebook.shell.leftovers.go_on(bell[:1])
    assert tasks[0].done()


def test_what_ends_a_program_ends_only_the_task(
    notebook: Notebook, bell: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.run("import asyncio\nasync def leave():\n  await asyncio.sleep(0.001)\n  raise SystemExit(3)")
    notebook.run("task = asyncio.create_task(leave())")
    notebook.shell.leftovers.go_on(bell[:1])
    told = capsys.readouterr().err
    assert told.endswith("SystemExit: 3\n") and "in leave" in told and "loop.py" not in told
    assert notebook.value("import asyncio\nawait asyncio.sleep(0)\n5").text == "5"
    notebook.run("task.exception()")


def test_an_interrupt_strikes_a_task_that_blocks_and_not_the_loop(
    bell: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop = CellLoop(may_nest=False)

    async def block() -> None:
        await asyncio.sleep(0.001)
        signal.raise_signal(signal.SIGINT)

    async def leave() -> asyncio.Task[None]:
        return asyncio.create_task(block())

    try:
        task = loop.run(leave())
        loop.go_on(bell[:1])
        assert isinstance(task.exception(), KeyboardInterrupt)
        assert capsys.readouterr().err.endswith("KeyboardInterrupt\n")
        thread = threading.Thread(target=_interrupt_who_selects, args=(bell[1],))
        thread.start()
        loop.go_on(bell[:1])
        thread.join()
        assert capsys.readouterr().err == ""
    finally:
        signal.signal(signal.SIGINT, former)
        loop.close()


def _interrupt_who_selects(bell: int) -> None:
    main = threading.main_thread().ident or 0
    while sys._current_frames()[main].f_code.co_name != "select":
        os.sched_yield()
    signal.pthread_kill(main, signal.SIGINT)
    os.write(bell, b".")


@pytest.fixture
def loop() -> Iterator[CellLoop]:
    loop = CellLoop(may_nest=False)
    yield loop
    loop.close()
    asyncio.set_event_loop(None)


def test_a_loop_that_is_being_made_is_made_to_its_end(loop: CellLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is half made, or is not awaited, complains when it is collected: that is an error in these tests."""
    plain = asyncio.SelectorEventLoop._make_self_pipe  # type: ignore[attr-defined]

    def press(self: asyncio.SelectorEventLoop) -> None:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        plain(self)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "_make_self_pipe", press)
    with pytest.raises(KeyboardInterrupt):
        loop.run(asyncio.sleep(0))
    gc.collect()
    assert loop.run(asyncio.sleep(0, "slept")) == "slept"
