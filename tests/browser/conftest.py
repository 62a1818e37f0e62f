"""Notebooks in a real browser. Where there is no chromium or no playwright, these tests are skipped and say so."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.jupyter import FrontEnd, Server, Theme, serve

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
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[FrontEnd], Server]]:
    """The servers of the session, each started when it is first asked for."""
    running: dict[FrontEnd, tuple[Any, Server]] = {}

    def get(front_end: FrontEnd) -> Server:
        if front_end not in running:
            context = serve(front_end, tmp_path_factory.mktemp(front_end))
            running[front_end] = context, context.__enter__()
        return running[front_end][1]

    yield get
    for context, _ in running.values():
        context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for one file of tests: while playwright runs, no other event loop can run in its thread."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        # Without a sandbox: tests may run as root. /dev/shm is small in containers.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


def _made_of(cells: list[str], kernel: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}},
    )


@pytest.fixture
def open_notebook(
    request: pytest.FixtureRequest, browser: Any, servers: Callable[[FrontEnd], Server], leaks: Any
) -> Generator[Opened]:
    """`open_notebook(cells)`: a new notebook with these cells, in JupyterLab or (`front_end="notebook"`) Notebook 7.

    In place of the cells, the file of a notebook: a copy of it is opened. `kernel="meshbook"` has the extension loaded.
    """
    from tests.browser.page import NotebookPage  # needs playwright

    opened: list[NotebookPage] = []
    context = browser.new_context(viewport={"width": 1200, "height": 1000})

    def open_(
        cells: list[str] | Path,
        front_end: FrontEnd = "lab",
        theme: Theme = "JupyterLab Light",
        kernel: str = "python3",
    ) -> NotebookPage:
        server = servers(front_end)
        leaks.allow_what_stands()
        server.use_theme(theme)
        name = re.sub(r"\W+", "_", f"{request.node.name}_{len(opened)}").strip("_") + ".ipynb"
        nbformat.write(
            _made_of(cells, kernel) if isinstance(cells, list) else nbformat.read(cells, 4), server.folder / name
        )
        page = NotebookPage(context.new_page(), server.folder / name)
        page.watch_errors()
        opened.append(page)
        page.page.goto(server.page_of(name))
        page.wait_until_ready()
        return page

    failed = request.session.testsfailed
    yield open_
    if request.session.testsfailed > failed:
        for number, page in enumerate(opened):
            page.picture(f"failed_{request.node.name}_{number}")
    for page in opened:
        page.close()
    context.close()
