"""Plain functions of an async actor see no running event loop, as in Monarch: they may run one of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def without_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which finds no loop running in this thread while it does.

    Example:
        >>> async def nested():
        ...     return without_loop(lambda: asyncio.run(asyncio.sleep(0, "done")))()
        >>> asyncio.run(nested())
        'done'
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return function(*args, **kwargs)
        finally:
            asyncio._set_running_loop(loop)

    return call
