"""How much one message may hold: told before anything is copied, rather than by a machine that runs out of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .config import get_global_config
from .system.oom import memory_size
from .wire.codec import Encoded

_SMALL = 1 << 20


def check_size(values: Iterable[Any], encode: Callable[[], Encoded], what: str) -> Encoded:
    """What `encode` gives, if that is not too much for a message.

    Values that say how large they are (arrays, tensors, bytes) are asked before they are encoded.

    Raises:
        ValueError: it is more than `codec_max_frame_length`, or than a quarter of the memory.
    """
    _check(sum(map(_claim, values)), what)
    payload = encode()
    _check(payload.nbytes, what)
    return payload


def largest() -> int:
    """The bytes that one message may hold."""
    return min(get_global_config()["codec_max_frame_length"], memory_size() // 4)


def _check(size: int, what: str) -> None:
    if size > _SMALL and size > largest():
        raise ValueError(
            f"{what} of {size / 1e9:.1f} GB are too much for one message, which may hold {largest() / 1e9:.1f} GB: "
            "send pieces, or the path of a file"
        )


def _claim(value: Any) -> int:
    if isinstance(value, (bytes, bytearray, str)):
        return len(value)
    try:
        size = value.nbytes
    except Exception:  # noqa: BLE001 - it has none, as sparse tensors say with an error of another type
        return 0
    return size if isinstance(size, int) else 0
