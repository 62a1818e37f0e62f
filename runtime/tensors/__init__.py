"""Distributed tensors: torch code of the controller, computed on every rank of a mesh. Loads torch when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .activation import get_active_mesh, no_mesh
    from .dispatch import coalescing
    from .fetch import RemoteException, fetch_shard, inspect
    from .functions import call_on_shard_and_fetch, remote
    from .gradients import grad_function, grad_generator
    from .movement import reduce, reduce_, slice_mesh
    from .moving import to_mesh
    from .on_ranks import RemoteProcessGroup
    from .opaque import OpaqueRef
    from .streams import Stream, get_active_stream
    from .tensor import Tensor

_HOMES = {
    "OpaqueRef": "opaque",
    "RemoteException": "fetch",
    "RemoteProcessGroup": "on_ranks",
    "Stream": "streams",
    "Tensor": "tensor",
    "call_on_shard_and_fetch": "functions",
    "coalescing": "dispatch",
    "fetch_shard": "fetch",
    "get_active_mesh": "activation",
    "get_active_stream": "streams",
    "grad_function": "gradients",
    "grad_generator": "gradients",
    "inspect": "fetch",
    "no_mesh": "activation",
    "reduce": "movement",
    "reduce_": "movement",
    "remote": "functions",
    "slice_mesh": "movement",
    "to_mesh": "moving",
}

__all__ = (
    "OpaqueRef",
    "RemoteException",
    "RemoteProcessGroup",
    "Stream",
    "Tensor",
    "call_on_shard_and_fetch",
    "coalescing",
    "fetch_shard",
    "get_active_mesh",
    "get_active_stream",
    "grad_function",
    "grad_generator",
    "inspect",
    "no_mesh",
    "reduce",
    "reduce_",
    "remote",
    "slice_mesh",
    "to_mesh",
)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)
