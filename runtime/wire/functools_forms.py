"""How what `functools` makes of a function travels, where the function does so by value.

Cloudpickle names an `lru_cache`, which the other end does not know, and cannot send a `cached_property`: in Python 3.11
it has a lock.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from cloudpickle import cloudpickle  # pyright: ignore[reportMissingTypeStubs]

_place_of: Any = cloudpickle._lookup_module_and_qualname  # pyright: ignore
_goes_by_value: Any = cloudpickle._is_registered_pickle_by_value  # pyright: ignore


def _reduce_cache(cache: Any) -> Any:
    """It arrives empty: what it has kept may be large, and is soon there again."""
    place = _place_of(cache)
    if place is not None and not _goes_by_value(place[0]):
        return NotImplemented
    parameters = cache.cache_parameters()
    return make_cache, (cache.__wrapped__, parameters["maxsize"], parameters["typed"]), vars(cache)


def make_cache(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    """What `lru_cache` makes of a function."""
    return functools.lru_cache(maxsize, typed)(function)


def _reduce_property(cached: functools.cached_property[Any]) -> Any:
    state = {name: value for name, value in vars(cached).items() if name != "lock"}
    return functools.cached_property, (cached.func,), state


functools_reducers: Final[dict[type, Callable[[Any], Any]]] = {
    type(functools.lru_cache(make_cache)): _reduce_cache,
    functools.cached_property: _reduce_property,
}
"""By type; `NotImplemented` for what the other end can import."""
