"""The kernel of the kernelspec `meshbook`: ipykernel with the extension loaded, which inspects names on ranks too."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from . import extension


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


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=MeshbookKernel, extra_extensions=["meshbook"])
