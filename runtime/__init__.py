"""Ranks, actors, messages, engines: a library with no notebook in it.

Every name of `monarch.actor` is here, so that a program written for it runs with its import line changed. Names are
fetched when they are first used (PEP 562). A function assigned to `unhandled_fault_hook` is called with each failure
that nobody has dealt with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import config, rdma, spmd
    from .actor import Actor, concurrent_endpoint, endpoint
    from .adverbs import Accumulator, Endpoint, send
    from .bootstrap import default_bootstrap_cmd
    from .channel import Channel, Port, PortReceiver
    from .controller.root_services import get_or_spawn_controller
    from .elsewhere import (
        ChannelTransport,
        attach,
        debug_controller,
        enable_transport,
        shutdown_context,
    )
    from .errors import ActorError, DeviceMeshError, MeshError, SupervisionError
    from .future import Future
    from .healing import Healed, heal, heal_mesh
    from .host import HostMesh, this_host, this_proc
    from .mesh import ActorMesh, ProcMesh
    from .promises import returns_future
    from .reports import log, progress
    from .scope import Context, context, current_actor_name, current_rank, current_size
    from .shape import Extent, NDSlice, Point, Region, Shape, Slice
    from .supervision import MeshFailure
    from .supervision import default_fault_hook as unhandled_fault_hook
    from .tracing import get_meter, span, traced
    from .uid import ProcId, Uid
    from .undecorated import as_endpoint
    from .values import ValueMesh
    from .workers import (
        attach_to_workers,
        run_worker_loop_forever,
        run_worker_loop_until_shutdown,
        start_worker_loop_forever,
    )

_HOMES = {
    "actor": ("Actor", "concurrent_endpoint", "endpoint"),
    "bootstrap": ("default_bootstrap_cmd",),
    "channel": ("Channel", "Port", "PortReceiver"),
    "scope": ("Context", "context", "current_actor_name", "current_rank", "current_size"),
    "elsewhere": (
        "ChannelTransport",
        "attach",
        "debug_controller",
        "enable_transport",
        "shutdown_context",
    ),
    "tracing": ("get_meter", "span", "traced"),
    "adverbs": ("Accumulator", "Endpoint", "send"),
    "errors": ("ActorError", "DeviceMeshError", "MeshError", "SupervisionError"),
    "future": ("Future",),
    "healing": ("Healed", "heal", "heal_mesh"),
    "host": ("HostMesh", "this_host", "this_proc"),
    "mesh": ("ActorMesh", "ProcMesh"),
    "promises": ("returns_future",),
    "reports": ("log", "progress"),
    "controller.root_services": ("get_or_spawn_controller",),
    "shape": ("Extent", "NDSlice", "Point", "Region", "Shape", "Slice"),
    "supervision": ("MeshFailure",),
    "uid": ("ProcId", "Uid"),
    "undecorated": ("as_endpoint",),
    "values": ("ValueMesh",),
    "workers": (
        "attach_to_workers",
        "run_worker_loop_forever",
        "run_worker_loop_until_shutdown",
        "start_worker_loop_forever",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = (
    "Accumulator",
    "Actor",
    "ActorError",
    "ActorMesh",
    "Channel",
    "ChannelTransport",
    "Context",
    "DeviceMeshError",
    "Endpoint",
    "Extent",
    "Future",
    "Healed",
    "HostMesh",
    "MeshError",
    "MeshFailure",
    "NDSlice",
    "Point",
    "Port",
    "PortReceiver",
    "ProcId",
    "ProcMesh",
    "Region",
    "Shape",
    "Slice",
    "SupervisionError",
    "Uid",
    "ValueMesh",
    "as_endpoint",
    "attach",
    "attach_to_workers",
    "concurrent_endpoint",
    "config",
    "context",
    "current_actor_name",
    "current_rank",
    "current_size",
    "debug_controller",
    "default_bootstrap_cmd",
    "enable_transport",
    "endpoint",
    "get_meter",
    "get_or_spawn_controller",
    "heal",
    "heal_mesh",
    "log",
    "progress",
    "rdma",
    "returns_future",
    "run_worker_loop_forever",
    "run_worker_loop_until_shutdown",
    "send",
    "shutdown_context",
    "span",
    "spmd",
    "start_worker_loop_forever",
    "this_host",
    "this_proc",
    "traced",
    "unhandled_fault_hook",
)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return _fetched(name)
    except AttributeError as error:  # `from meshbook import` would take it for our having no such name, and drop it
        file = getattr(error.obj, "__file__", None)
        raise ImportError(f"cannot import {name!r}: {error}{f' ({file})' if file else ''}") from error


def _fetched(name: str) -> object:
    if name in ("config", "rdma", "spmd"):
        return import_module(f".{name}", __name__)
    if name == "unhandled_fault_hook":
        return import_module(".supervision", __name__).default_fault_hook
    return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
