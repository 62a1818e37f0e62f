"""The kernel of the kernelspec `meshbook`: ipykernel with the extension loaded, which inspects names on ranks too.

And JupyterLab's debugger panel shows the ranks (see `panel`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from . import extension
from .panel import missing

_LACK = missing(IPythonKernel)


class MeshbookKernel(IPythonKernel):
    """An ipykernel that answers what the Python in a `%%on_mesh` cell is asked on a rank that the cell selects."""

    def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Collection[str] = ()
    ) -> dict[str, Any]:
        found = extension.inspect(self.shell, code, cursor_pos)
        if found:
            return {"status": "ok", "found": True, "data": {"text/plain": found}, "metadata": {}}
        locally: Any = super()
        return locally.do_inspect(code, cursor_pos, detail_level, omit_sections)

    async def do_debug_request(self, msg: dict[str, Any]) -> dict[str, Any]:
        own: Any = super()
        panel = extension.panel(self.shell)
        if panel is not None and _LACK and msg["command"] == "initialize":
            panel.note(_LACK)
        if panel is None or _LACK:
            return await own.do_debug_request(msg)
        return await panel.request(msg, own.do_debug_request, own._publish_debug_event)

    def _publish_debug_event(self, event: dict[str, Any]) -> None:
        panel = extension.panel(self.shell)
        if panel is None or not panel.hear(event):
            own: Any = super()
            own._publish_debug_event(event)


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=MeshbookKernel, extra_extensions=["meshbook"])
