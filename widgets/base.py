"""The base of our live widgets: one place that knows anywidget, and what a comm needs to be of use while a cell runs.

A live widget is never the only form of what it shows: a saved one is "model not found" in the next kernel. Its bundle
carries a static twin (HTML and text). In JupyterLab and Notebook 7 its view moves into that twin as soon as it is on
the page (`static/home.js`), so the file has the twin alone; elsewhere its display becomes the twin when it retires.
"""

from __future__ import annotations

import functools
import re
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from .stage import Stage, request_of

STATIC = Path(__file__).parent / "static"
"""Where the scripts and styles of widgets lie."""

_VIEW = "application/vnd.jupyter.widget-view+json"

_MOST_DISPLAYS = 8
"""Places in the notebook where one widget is kept up to date: those that came last."""

_AnyWidget: Any = anywidget.AnyWidget  # ipywidgets, its base, has no types

_IMPORT = re.compile(r'^import [^;]*? from "\./[\w.]+";\n', re.MULTILINE)


def script(*names: str) -> str:
    """Scripts of `STATIC` as one: what a browser gets has no address from which it could import another.

    Example:
        >>> "export function selector" in script("cells.js", "dashboard.js")
        True
    """
    return "\n".join(_IMPORT.sub("", (STATIC / name).read_text()) for name in names)


class LiveWidget(_AnyWidget):
    """A widget that takes and sends messages on any thread, and has a static twin.

    A widget class sets `_esm` to a `script` and `_css` to a file of `STATIC`, and overrides `twin` and `on_message`.
    Messages of its script are dicts with a `kind`; those that want an answer carry an `id`, which the answer repeats.

    Example:
        >>> class Greeter(LiveWidget):
        ...     def twin(self) -> dict[str, str]:
        ...         return {"text/plain": "hello"}
        >>> Greeter()._repr_mimebundle_()[0]["text/plain"]
        'hello'
    """

    home = traitlets.Unicode().tag(sync=True)
    """What names the element of its twin on the page."""

    def __init__(self, **traits: Any) -> None:
        self._ending = threading.Lock()  # a thread that samples must not send on a comm that another closes
        self._is_retired = self._is_home = False
        self._kept: dict[str, str] = {}
        self._displays: deque[tuple[Stage, str]] = deque(maxlen=_MOST_DISPLAYS)
        super().__init__(home=uuid.uuid4().hex, **traits)  # pyright: ignore[reportUnknownMemberType]
        harden(self.comm)
        self.on_msg(self._take)

    def twin(self) -> dict[str, str]:
        """The same facts as `text/plain` and `text/html`, by mime type."""
        raise NotImplementedError

    def on_message(self, message: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        """The script has said something; on the main thread or on that of a subshell. It must not take long."""

    def show(self, stage: Stage) -> None:
        """Show it here. This place is kept up to date, and has the twin alone when the widget retires."""
        display_id = uuid.uuid4().hex
        self._displays.append((stage, display_id))
        stage.display(self._repr_mimebundle_()[0], display_id=display_id)
        stage.leave()

    def keep(self) -> None:
        """Bring the twin up to date wherever the widget is shown; its view, which moves into it, goes on as it is."""
        self._is_home = True
        bundle = self._repr_mimebundle_()[0]
        if bundle != self._kept:
            self._kept = bundle
            self._publish(bundle)

    def _publish(self, bundle: Mapping[str, object]) -> None:
        for stage, display_id in list(self._displays):
            stage.display(bundle, display_id=display_id, update=True)

    def tell(self, kind: str, buffers: Sequence[bytes] = (), **content: Any) -> bool:
        """Send a message to the script; any thread may. False when the widget has retired."""
        with self._ending:
            if self._is_retired:
                return False
            self.send({"kind": kind, **content}, list(buffers))
            return True

    def retire(self) -> None:
        """Close the comm; wherever it is shown, the static twin alone stays."""
        with self._ending:
            if self._is_retired:
                return
            self._is_retired = True
        self._publish(self.twin())
        self.close()
        self.__dict__.pop("_repr_mimebundle_", None)  # ipywidgets takes it from what is closed; the twin can be shown

    def _take(self, _: object, message: Any, buffers: Sequence[memoryview]) -> None:
        if not isinstance(message, dict) or self._is_retired:
            return
        if message.get("kind") == "keep":  # pyright: ignore[reportUnknownMemberType] - it comes from a script
            self.keep()
        else:
            self.on_message(message, buffers)  # pyright: ignore[reportUnknownArgumentType]

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        twin = dict(self.twin())
        if self._is_retired:
            return twin, {}
        if self._is_home:
            html = twin["text/html"]
            return {**twin, "text/html": f'<meshbook-live data-home="{self.home}">{html}</meshbook-live>'}, {}
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return {_VIEW: view, **twin}, {}


def harden(comm: Any) -> None:
    """Let messages of the front-end reach a widget while a cell runs, and do no harm there.

    ipykernel 7.4 sends each message to the subshell that last published, whatever the front-end asked for: clicks
    would wait for the end of a cell that blocks. And it fires the events of an executed cell around each message, which
    takes open figures away from the cell that draws them (https://github.com/ipython/ipykernel/issues/1564).
    ipykernel 7.0 lets no thread but its own speak: they have no request to answer, and it looks one up.
    Where these private names are not there, nothing is changed.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = _as_asked
    if hasattr(comm, "_msg_callback") and hasattr(comm, "handle_msg"):
        comm.handle_msg = functools.partial(_deliver, comm)
    if hasattr(comm, "kernel") and hasattr(comm, "publish_msg"):
        comm.publish_msg = functools.partial(_publish, comm, comm.publish_msg)


def _deliver(comm: Any, message: object) -> None:
    if comm._msg_callback:
        comm._msg_callback(message)


def _publish(comm: Any, publish: Callable[..., None], *args: Any, **options: Any) -> None:
    if comm.kernel is not None:
        try:
            comm.kernel.get_parent()
        except LookupError:
            comm.kernel._shell_parent.set({})  # of this thread
    publish(*args, **options)


def _as_asked(data: object, default: object) -> object:
    """The subshell that the front-end chose."""
    return default


def deafness(shell: Any) -> str:
    """What to tell of clicks if this kernel hears none while a cell runs; empty where it does."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None or getattr(kernel, "_supports_kernel_subshells", False):
        return ""
    from ipykernel._version import __version__

    return f"while a cell runs, buttons do nothing: ipykernel {__version__} hears no clicks then, 7 does"


def has_widgets(shell: Any) -> bool:
    """Whether somebody may see a live widget: a terminal has none, and nobody looks on where a notebook is executed.

    `nbclient` and its like ask for no input, which front-ends do; a widget that they save is blank when it is opened.
    """
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return False
    return bool(request_of(kernel).get("content", {}).get("allow_stdin", True))
