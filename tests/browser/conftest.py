"""Notebooks in a real browser. Where there is no chromium or no playwright, these tests are skipped and say so."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.jupyter import FrontEnd, Server, Theme, serve
from tests.holdings import TOKEN

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")

Opened = Callable[..., Any]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The same in another theme or front-end is for `make browsers`: the suite has minutes, not hours."""
    if os.environ.get("MESHBOOK_BROWSERS") != "all" and (
        wide := [item for item in items if item.get_closest_marker("wide")]
    ):
        config.hook.pytest_deselected(items=wide)
        items[:] = [item for item in items if item not in wide]
    for item in items:
        if "open_notebook" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    """The server of the session, started when it is first asked for."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda: stack.enter_context(serve(tmp_path_factory.mktemp("jupyter"))))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for one file of tests: while playwright runs, no other event loop can run in its thread."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        # Without a sandbox: tests may run as root. /dev/shm is small in containers.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        # It starts what looks for its crashes when it likes, also in the middle of a test: nothing of ours.
        env = {name: value for name, value in os.environ.items() if name != TOKEN}
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments, env=env)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def desk(browser: Any, server: Callable[[], Server]) -> Iterator[Any]:
    from tests.browser.desk import Desk  # needs playwright

    desk = Desk(browser, server())
    yield desk
    desk.close()


@pytest.fixture
def open_notebook(request: pytest.FixtureRequest, desk: Any, leaks: Any) -> Generator[Opened]:
    """`open_notebook(cells)`: a new notebook with these cells, in JupyterLab or (`front_end="notebook"`) Notebook 7.

    In place of the cells, the file of a notebook: a copy of it is opened. `kernel="meshbook"` has the extension loaded;
    the ranks of `"torchless"` import torch themselves if they need it, those of `"learner"` have what training needs;
    `kernel="warm"` is one that the tests of a file share, and all meshes in it end with the test. `is_alone`: in a page
    of its own, for what changes more of the page than its notebook.
    """
    opened: list[Any] = []

    def open_(
        cells: list[str] | Path,
        front_end: FrontEnd = "lab",
        theme: Theme = "JupyterLab Light",
        kernel: str = "python3",
        is_alone: bool = False,
    ) -> Any:
        is_shared = front_end == "lab" and not is_alone
        if is_shared:
            desk.prepare()
        leaks.allow_what_stands()
        name = re.sub(r"\W+", "_", f"{request.node.name}_{len(opened)}").strip("_")
        file = desk.written(name, cells, "python3" if kernel == "warm" else kernel)
        opened.append(desk.lab if is_shared else desk.new_page(file))
        if is_shared:
            desk.open_here(file, theme, kernel == "warm")
        else:
            desk.load(opened[-1], theme, front_end)
        return opened[-1]

    failed = request.session.testsfailed
    yield open_
    is_spoiled = request.session.testsfailed > failed
    for number, nb in enumerate(opened):
        if is_spoiled:
            nb.picture(f"failed_{request.node.name}_{number}")
        desk.put_away(nb, is_spoiled)
