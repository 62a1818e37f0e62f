"""Where notebooks are opened: each in a page of its own, or one after the other in a page of JupyterLab that stays.

A page, a kernel and the import of torch take seconds each, and all that they take is the processor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from tests.browser.jupyter import FrontEnd, Server, Theme
from tests.browser.page import NotebookPage

_WARM_UP = ["%load_ext meshbook\n%mesh up -n 1 --device cpu", "%mesh down"]

_TIDY = "%mesh down --all\nimport ipywidgets\nipywidgets.Widget.close_all()"


class Desk:
    """A browser's notebooks, all of one server."""

    def __init__(self, browser: Any, server: Server) -> None:
        self._server = server
        # All pages are of one context: what one has loaded and compiled, the next need not.
        self._context = browser.new_context(viewport={"width": 1200, "height": 1000})
        self.lab: NotebookPage | None = None
        """The page that stays."""
        self._warm = ""
        """The id of a kernel that stays too: meshbook is loaded in it, and its zygote has torch."""

    def prepare(self) -> None:
        """Have what stays."""
        if self.lab is not None:
            return
        lab = self.new_page(self.written("warm", _WARM_UP, "python3"))
        self.load(lab, "JupyterLab Light", "lab")
        assert lab.run_all() == "done", lab.outputs(0)
        self._warm = lab.kernel
        lab.leave()
        self.lab = lab

    def written(self, name: str, cells: list[str] | Path, kernel: str) -> Path:
        """The file of a new notebook with these cells, or a copy of one."""
        spec = {"name": kernel, "display_name": kernel, "language": "python"}
        if isinstance(cells, Path):
            notebook = nbformat.read(cells, 4)
            notebook.metadata["kernelspec"] = spec
        else:
            made = [nbformat.v4.new_code_cell(cell) for cell in cells]
            notebook = nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": spec})
        file = self._server.folder / f"{name}.ipynb"
        nbformat.write(notebook, file)
        return file

    def new_page(self, file: Path) -> NotebookPage:
        """An empty page."""
        nb = NotebookPage(self._context.new_page(), file)
        nb.watch_errors()
        return nb

    def load(self, nb: NotebookPage, theme: Theme, front_end: FrontEnd) -> None:
        """Load a front-end into an empty page, with its notebook."""
        self._server.use_theme(theme)
        nb.page.goto(self._server.page_of(nb.file.name, front_end))
        nb.wait_until_ready()

    def open_here(self, file: Path, theme: Theme, is_warm: bool) -> None:
        """Open a notebook in the page that stays."""
        assert self.lab is not None
        self.lab.errors.clear()
        self.lab.use_theme(theme)
        self.lab.open(file, self._warm if is_warm else "")

    def put_away(self, nb: NotebookPage, is_spoiled: bool) -> None:
        """After a test; what is spoiled nobody uses again."""
        if nb is not self.lab:
            nb.close()
        elif is_spoiled:
            self.lab = None
            nb.close()
        elif (kernel := nb.kernel) == self._warm:
            nb.execute(_TIDY)
            nb.leave()
        else:
            nb.leave()  # before its kernel, to which its widgets would speak
            nb.page.evaluate("id => jupyterapp.serviceManager.kernels.shutdown(id)", kernel)

    def close(self) -> None:
        self._context.close()
