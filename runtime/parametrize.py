"""Tests under several configurations: Monarch's decorators for pytest, which `monarch.config` has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import update_wrapper
from itertools import product
from typing import Any

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Configured = Callable[..., AbstractContextManager[Any]]
"""What `config.configured` is."""

_ARGUMENT = "_config_overrides"


def crossed(configured: Configured, options: dict[str, Iterable[Any]]) -> Decorator:
    """Run a test under every combination of values. Raises `ValueError` where there are no keys."""
    return _under(configured, options, list(product(*options.values())))


def in_step(configured: Configured, options: dict[str, Sequence[Any]]) -> Decorator:
    """Run a test once for each place in the values. Raises `ValueError` where some keys have more of them."""
    lengths = {key: len(values) for key, values in options.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"every key needs the same number of values, not {lengths}")
    return _under(configured, options, list(zip(*options.values(), strict=True)))


def _under(configured: Configured, options: dict[str, Any], rows: list[tuple[Any, ...]]) -> Decorator:
    import pytest

    if not options:
        raise ValueError("it requires at least one config option, such as tail_log_lines={0, 10}")
    cases = [dict(zip(options, row, strict=True)) for row in rows]
    ids = ["-".join(f"{key}={value}" for key, value in case.items()) for case in cases]
    mark = pytest.mark.parametrize(_ARGUMENT, cases, ids=ids)
    return lambda test: mark(_configuring(configured, test))


def _configuring(configured: Configured, test: Callable[..., Any]) -> Callable[..., Any]:
    async def run_async(*args: Any, **kwargs: Any) -> Any:
        with configured(**kwargs.pop(_ARGUMENT)):
            return await test(*args, **kwargs)

    def run(*args: Any, **kwargs: Any) -> Any:
        with configured(**kwargs.pop(_ARGUMENT)):
            return test(*args, **kwargs)

    wrapped: Any = update_wrapper(run_async if inspect.iscoroutinefunction(test) else run, test)
    signature = inspect.signature(test)
    own = inspect.Parameter(_ARGUMENT, inspect.Parameter.KEYWORD_ONLY)
    named = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    wrapped.__signature__ = signature.replace(parameters=[*named, own])
    return wrapped
