"""What `make demo` runs: the quickstart in a real kernel, printed as a reader would see it."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from ipykernel.kernelspec import write_kernel_spec
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbconvert import HTMLExporter
from nbformat import NotebookNode

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE / "quickstart.ipynb"
BUILD = HERE.parent / "build"
CELL_TIMEOUT = 300  # seconds
SOURCE_LINES = 4  # of a cell; the rest is in the notebook

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def main() -> int:
    if not NOTEBOOK.exists():
        print(f"there is no {NOTEBOOK}: this checkout is not complete", file=sys.stderr)
        return 2
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    started = time.monotonic()
    failure = run(notebook)
    write(notebook)
    if failure is not None:
        print(f"\nThe quickstart failed. {failure}", file=sys.stderr)
        return 1
    print(f"\nThe quickstart ran in {time.monotonic() - started:.0f} s; build/ has the notebook and its HTML.")
    print("To play with it: .venv/bin/jupyter lab notebooks/quickstart.ipynb")
    return 0


def run(notebook: NotebookNode) -> str | None:
    """Execute the notebook in place, printing each cell when it is done; say why it could not be finished."""
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            km=kernel_of_this_python(Path(folder)),
            timeout=CELL_TIMEOUT,
            resources={"metadata": {"path": str(HERE)}},
            on_cell_start=print_prose,
            on_cell_executed=print_code_cell,
        )
        try:
            client.execute(cleanup_kc=True)
        except CellExecutionError as error:
            return f"{error.ename}: {error.evalue}"
        except (DeadKernelError, TimeoutError) as error:
            return str(error)
    return None


def kernel_of_this_python(folder: Path) -> AsyncKernelManager:
    """A kernel on the interpreter that runs this script, whatever "python3" means to Jupyter here."""
    name = "meshbook-demo"
    write_kernel_spec(folder / name)
    specs = KernelSpecManager(kernel_dirs=[str(folder)], ensure_native_kernel=False)
    # Sockets with a path, in a private folder: nobody else on this machine can connect.
    address = {} if sys.platform == "win32" else {"transport": "ipc", "ip": str(folder / "kernel")}
    return AsyncKernelManager(kernel_name=name, kernel_spec_manager=specs, **address)


def print_prose(cell: NotebookNode, cell_index: int) -> None:
    if cell.cell_type == "markdown":
        print(f"\n{cell.source}", flush=True)


def print_code_cell(cell: NotebookNode, cell_index: int, execute_reply: object) -> None:
    lines = cell.source.splitlines()
    if len(lines) > SOURCE_LINES + 1:
        lines[SOURCE_LINES:] = [f"... {len(lines) - SOURCE_LINES} more lines"]
    print("\n" + "\n".join(f"    | {line}" for line in lines))
    shown = ""
    for output in cell.outputs:
        if output.output_type == "stream":
            shown += output.text
        else:
            shown = shown.rstrip("\n") + f"\n{as_text(output)}\n"
    if shown:
        print(plain(shown).strip("\n"), flush=True)


def as_text(output: Any) -> str:
    """What a terminal shows of a display, a result or an error."""
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return output.data.get("text/plain", f"<{', '.join(output.data)}>")


def plain(text: str) -> str:
    return text if sys.stdout.isatty() else _ANSI.sub("", text)


def write(notebook: NotebookNode) -> None:
    """Put the executed notebook and its HTML into `build/`."""
    BUILD.mkdir(exist_ok=True)
    nbformat.write(notebook, BUILD / NOTEBOOK.name)
    html, _ = HTMLExporter().from_notebook_node(notebook)
    (BUILD / NOTEBOOK.name).with_suffix(".html").write_text(html, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
