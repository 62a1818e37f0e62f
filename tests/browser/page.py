"""A notebook in a browser, as its user has it: run cells, look at what they show, click."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Locator, Page

from tests.browser.jupyter import Theme

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
"""Where pictures are kept, to be looked at."""

_PANEL = "window.jupyterapp.shell.currentWidget"
_WAIT = 60.0

_HARMLESS = (
    "reading 'schema'",
    "favicon",
    "WebGL",
    "is not a valid language",
    "'filebrowser:open-path' not registered",
)
"""Errors that the front-ends themselves log on an empty page, or where the other one was before."""


@dataclass(slots=True)
class NotebookPage:
    """One open notebook. `page` is playwright's own; what is awaited here has a deadline in seconds."""

    page: Page
    file: Path
    errors: list[str] = field(default_factory=list[str])
    """What the page's scripts have failed with."""

    def watch_errors(self) -> None:
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.on("console", lambda message: self._note(message.text) if message.type == "error" else None)

    def _note(self, error: str) -> None:
        if not any(words in error for words in _HARMLESS):
            self.errors.append(error)

    def open(self, file: Path, kernel: str = "") -> None:
        """Open another notebook in this page of JupyterLab, with a kernel of its own or with that of this id."""
        self.file = file
        self.page.evaluate(
            """([path, id]) => {
                jupyterapp.commands.execute('docmanager:open', { path, kernel: id ? { id } : undefined });
            }""",
            [file.name, kernel],
        )
        self.page.wait_for_function(f"path => {_PANEL}?.context?.path === path", arg=file.name)
        self.wait_until_ready()

    def open_copy(self, name: str) -> None:
        """Open a copy of the file in this page of JupyterLab, with a new kernel, as one does who has got it."""
        other = self.file.with_name(f"{name}.ipynb")
        other.write_bytes(self.file.read_bytes())
        self.leave()
        self.open(other)

    def wait_until_ready(self, seconds: float = _WAIT) -> None:
        """Wait until the notebook is on the page and its kernel has started."""
        self.page.wait_for_function(
            """() => {
                const panel = window.jupyterapp?.shell?.currentWidget;
                const status = panel?.sessionContext?.session?.kernel?.status;
                return status === 'idle' && panel.content?.widgets?.length;
            }""",
            timeout=seconds * 1000,
        )
        splash = self.page.locator("#jupyterlab-splash")
        splash.wait_for(state="detached", timeout=seconds * 1000)

    def start_all(self) -> None:
        """Run all cells; do not wait."""
        self._start("notebook:run-all-cells")

    def run_all(self, seconds: float = _WAIT) -> str:
        """Run all cells and wait for the last."""
        self.start_all()
        return self.wait_done(seconds)

    def start(self, index: int) -> None:
        """Run one cell; do not wait."""
        self.page.evaluate(f"i => {{ {_PANEL}.content.activeCellIndex = i }}", index)
        self._start("notebook:run-cell")

    def run(self, index: int, seconds: float = _WAIT) -> str:
        """Run one cell and wait for it."""
        self.start(index)
        return self.wait_done(seconds)

    def _start(self, command: str) -> None:
        self.page.evaluate(
            """command => {
                window.__ran = 'running';
                const ran = words => () => { window.__ran = words };
                jupyterapp.commands.execute(command).then(ran('done'), ran('error'));
            }""",
            command,
        )

    def wait_done(self, seconds: float = _WAIT) -> str:
        """Wait until what was started has ended; `done` or `error`. (The kernel's own status does not tell.)"""
        self.page.wait_for_function("() => window.__ran !== 'running'", timeout=seconds * 1000)
        return self.page.evaluate("window.__ran")

    def wait_running(self, index: int, seconds: float = _WAIT) -> None:
        """Wait until a cell has its star and the one before has not."""
        self.page.wait_for_function(
            f"""i => {{
                const stars = {_PANEL}.content.widgets.map(each => each.promptNode?.textContent.includes('*'));
                return stars[i] && !stars[i - 1];
            }}""",
            arg=index,
            timeout=seconds * 1000,
        )

    def wait_text(self, index: int, text: str, seconds: float = _WAIT) -> None:
        """Wait until a cell's output, as drawn on the page, has a text."""
        self.output(index).get_by_text(text).first.wait_for(timeout=seconds * 1000)

    def press_stop(self) -> None:
        """What the stop button does."""
        self.page.evaluate("() => { jupyterapp.commands.execute('notebook:interrupt-kernel') }")

    def write(self, index: int, source: str) -> None:
        """Replace what stands in a cell."""
        script = f"([i, text]) => {{ {_PANEL}.content.widgets[i].model.sharedModel.setSource(text) }}"
        self.page.evaluate(script, [index, source])

    def count(self, index: int) -> int:
        """The number that stands before a cell that has run."""
        return self.page.evaluate(f"i => {_PANEL}.content.widgets[i].model.executionCount", index)

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """The outputs of a cell, as they would be saved."""
        return self.page.evaluate(f"i => {_PANEL}.content.widgets[i].model.outputs.toJSON()", index)

    def output(self, index: int) -> Locator:
        """The output area of a cell on the page."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-Cell-outputWrapper")

    def save(self) -> dict[str, Any]:
        """Save, and give what is in the file."""
        self.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
        return nbformat.read(self.file, as_version=4)

    def reload(self) -> None:
        """Load the page again; the kernel goes on."""
        self.page.reload()
        self.wait_until_ready()

    def use_theme(self, theme: Theme) -> None:
        """Give the page of JupyterLab another theme."""
        self.page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        is_light = str(theme == "JupyterLab Light").lower()
        self.page.locator(f"body[data-jp-theme-light={is_light}][data-jp-theme-name='{theme}']").wait_for(
            state="attached"
        )
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")  # it lies over all meanwhile

    def picture(self, name: str, of: Locator | None = None) -> Path:
        """A screenshot of the page, or of a part of it, as `build/screenshots/NAME.png`."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        file = SCREENSHOTS / f"{name}.png"
        file.write_bytes((of or self.page).screenshot())  # with `path`, playwright keeps threads
        return file

    @property
    def kernel(self) -> str:
        """The id of its kernel."""
        return self.page.evaluate(f"{_PANEL}.sessionContext.session.kernel.id")

    def execute(self, source: str) -> None:
        """Have the kernel do what is in no cell."""
        script = f"code => {_PANEL}.sessionContext.session.kernel.requestExecute({{ code, store_history: false }}).done"
        reply = self.page.evaluate(script, source)["content"]
        assert reply["status"] == "ok", reply

    def shut_down(self) -> None:
        """End the kernel."""
        self.page.evaluate(f"() => {_PANEL}.sessionContext.shutdown()")

    def leave(self) -> None:
        """Close the notebook as it is; the page stays."""
        self.page.evaluate(f"() => {_PANEL}.dispose()")

    def close(self) -> None:
        """End the kernel, then the page."""
        self.shut_down()
        self.page.close()
