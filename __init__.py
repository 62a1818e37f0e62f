"""One notebook, many ranks: named meshes of processes behind Jupyter cells.

```python
%load_ext meshbook
m = %mesh up dp=2 tp=2
```

The same things work without a notebook: `from meshbook import Actor, endpoint, this_host`. All names of `monarch.actor`
can be had here; those that few programs use are not in `__all__`.
Importing the package imports nothing heavy; each name below is fetched when it is first used (PEP 562).
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if sys.platform == "win32":  # before a missing `fcntl` says so
    raise ImportError("meshbook runs on Linux and macOS; on Windows it runs in WSL")

from .runtime import upstairs as _upstairs

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .runtime import (
        Accumulator,
        Actor,
        ActorError,
        ActorMesh,
        Channel,
        Context,
        DeviceMeshError,
        Endpoint,
        Extent,
        Future,
        HostMesh,
        MeshError,
        MeshFailure,
        NDSlice,
        Point,
        Port,
        PortReceiver,
        ProcMesh,
        Region,
        Shape,
        Slice,
        SupervisionError,
        ValueMesh,
        as_endpoint,
        concurrent_endpoint,
        context,
        current_actor_name,
        current_rank,
        current_size,
        endpoint,
        get_or_spawn_controller,
        heal,
        heal_mesh,
        log,
        progress,
        returns_future,
        send,
        this_host,
        this_proc,
    )

    __version__: str

__all__ = (
    "Accumulator",
    "Actor",
    "ActorError",
    "ActorMesh",
    "Channel",
    "Context",
    "DeviceMeshError",
    "Endpoint",
    "Extent",
    "Future",
    "HostMesh",
    "MeshError",
    "MeshFailure",
    "NDSlice",
    "Point",
    "Port",
    "PortReceiver",
    "ProcMesh",
    "Region",
    "Shape",
    "Slice",
    "SupervisionError",
    "ValueMesh",
    "__version__",
    "as_endpoint",
    "concurrent_endpoint",
    "context",
    "current_actor_name",
    "current_rank",
    "current_size",
    "endpoint",
    "get_or_spawn_controller",
    "heal",
    "heal_mesh",
    "load_ipython_extension",
    "log",
    "progress",
    "returns_future",
    "send",
    "this_host",
    "this_proc",
    "unload_ipython_extension",
)


_upstairs.porter.come_by(lambda: import_module(".magics.porter", __name__))
_upstairs.unattended.come_by(lambda: import_module(".magics.unattended", __name__))


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("meshbook")
    # Not `from . import`, which asks here first.
    runtime = import_module(".runtime", __name__)
    if name in runtime.__all__:
        return getattr(runtime, name)
    raise AttributeError(f"module 'meshbook' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext meshbook` calls: gives the notebook `%mesh`, `%%on_mesh` and their completion."""
    from .kernel import zygote

    zygote.warm()  # it imports for a second, on another core, while this process imports the rest

    from .magics import extension

    extension.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """What `%unload_ext meshbook` calls: takes the meshes down and the magics away."""
    from .magics import extension

    extension.unload(shell)
