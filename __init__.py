"""One notebook, many ranks: named meshes of processes behind Jupyter cells.

```python
%load_ext meshbook
m = %mesh up dp=2 tp=2
```

The same things work without a notebook: `from meshbook import Actor, endpoint, this_host`.
Importing the package imports nothing else; each name below is fetched when it is first used (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .runtime import (
        Actor,
        ActorError,
        ActorMesh,
        DeviceMeshError,
        Extent,
        Future,
        HostMesh,
        MeshError,
        Point,
        ProcMesh,
        Shape,
        SupervisionError,
        ValueMesh,
        context,
        current_rank,
        current_size,
        endpoint,
        heal,
        heal_mesh,
        log,
        progress,
        this_host,
        this_proc,
    )

    __version__: str

__all__ = (
    "Actor",
    "ActorError",
    "ActorMesh",
    "DeviceMeshError",
    "Extent",
    "Future",
    "HostMesh",
    "MeshError",
    "Point",
    "ProcMesh",
    "Shape",
    "SupervisionError",
    "ValueMesh",
    "__version__",
    "context",
    "current_rank",
    "current_size",
    "endpoint",
    "heal",
    "heal_mesh",
    "load_ipython_extension",
    "log",
    "progress",
    "this_host",
    "this_proc",
    "unload_ipython_extension",
)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("meshbook")
    if name in __all__:
        from . import runtime

        return getattr(runtime, name)
    raise AttributeError(f"module 'meshbook' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext meshbook` calls: gives the notebook `%mesh`, `%%on_mesh` and their completion."""
    from .magics import extension

    extension.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """What `%unload_ext meshbook` calls: takes the meshes down and the magics away."""
    from .magics import extension

    extension.unload(shell)
