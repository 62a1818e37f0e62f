"""Monarch's configuration keys: accepted and checked, so that its programs run; most mean nothing here.

`configure(**keys)` sets, `configured(**keys)` sets for a while, `get_global_config()` tells all.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|secs?|s|mins?|m|hrs?|h|days?|d)", re.IGNORECASE)
_UNITS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0,
    "m": 60.0, "min": 60.0, "mins": 60.0, "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "d": 86400.0, "day": 86400.0,
    "days": 86400.0,
}  # fmt: skip

_DURATIONS = {
    "actor_spawn_max_idle": "30s",
    "channel_net_rx_buffer_full_check_interval": "5s",
    "cleanup_timeout": "3s",
    "forwarder_flush_timeout": "5s",
    "get_actor_state_max_idle": "30s",
    "get_proc_state_max_idle": "1m",
    "host_spawn_ready_timeout": "30s",
    "mesh_attach_config_timeout": "10s",
    "mesh_orphan_timeout": "1m",
    "mesh_proc_launcher_kind_timeout": "30s",
    "mesh_terminate_timeout": "10s",
    "message_ack_time_interval": "500ms",
    "message_delivery_timeout": "30s",
    "message_latency_sampling_interval": "1s",
    "proc_spawn_max_idle": "30s",
    "proc_stop_max_idle": "30s",
    "process_exit_timeout": "10s",
    "rdma_max_chunk_timeout": "30s",
    "remote_alloc_allowed_port_timeout": "30s",
    "remote_allocator_heartbeat_interval": "5m",
    "stop_actor_timeout": "10s",
    "supervision_poll_frequency": "10s",
    "supervision_watchdog_timeout": "2m",
}
_PLAIN: dict[str, Any] = {
    "actor_queue_dispatch": False,
    "channel_multipart": True,
    "codec_max_frame_length": 10 * 1024**3,
    "default_encoding": "serde_multipart",
    "default_transport": "unix",
    "enable_dest_actor_reordering_buffer": True,
    "enable_file_capture": False,
    "enable_log_forwarding": False,
    "enable_message_latency_histogram": False,
    "force_file_log": False,
    "is_default_config": True,
    "max_cast_dimension_size": 16,
    "mesh_bootstrap_enable_pdeathsig": True,
    "message_ack_every_n_messages": 1000,
    "message_latency_sampling_rate": 0.01,
    "message_ttl_default": 64,
    "prefix_with_rank": True,
    "rdma_allow_tcp_fallback": True,
    "rdma_disable_ibverbs": False,
    "read_log_buffer": 100,
    "shared_asyncio_runtime": False,
    "split_max_buffer_size": 5,
    "tail_log_lines": 0,
}

DEFAULTS: dict[str, Any] = {**_DURATIONS, **_PLAIN}
"""Every key that is known, with its value when nobody sets it. Durations are texts such as `30s` or `1h 30m`."""

prefix_python_logs_with_actor = True
"""Whether a log record made in an actor begins with `[actor=...] `, which says in which."""

_runtime: dict[str, Any] = {}


def configure(**keys: Any) -> None:
    """Set keys from here on.

    Raises:
        ValueError: there is no such key, or a duration cannot be read.
        TypeError: the value is of the wrong type.

    Example:
        >>> configure(cleanup_timeout="1m 30s")
        >>> get_global_config()["cleanup_timeout"]
        '1m 30s'
        >>> clear_runtime_config()
    """
    _runtime.update({key: _checked(key, value) for key, value in keys.items()})


@contextmanager
def configured(**keys: Any) -> Generator[dict[str, Any]]:
    """Set keys inside the `with` block; gives the whole configuration.

    Example:
        >>> with configured(tail_log_lines=5) as config:
        ...     config["tail_log_lines"]
        5
    """
    before = dict(_runtime)
    configure(**keys)
    try:
        yield get_global_config()
    finally:
        _runtime.clear()
        _runtime.update(before)


def get_global_config() -> dict[str, Any]:
    """Every key with the value that counts."""
    return {**DEFAULTS, **_runtime}


def get_runtime_config() -> dict[str, Any]:
    """The keys that were set by `configure`."""
    return dict(_runtime)


def clear_runtime_config() -> None:
    """Forget what `configure` has set."""
    _runtime.clear()


def _checked(key: str, value: Any) -> Any:
    if key not in DEFAULTS:
        raise ValueError(f"invalid configuration key: {key!r}")
    if key in _DURATIONS:
        return _duration(key, value)
    wanted = cast("type[Any]", type(DEFAULTS[key]))
    allowed: tuple[Any, ...] = (int, float) if wanted is float else (wanted,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and wanted is not bool):
        if key in ("default_transport", "default_encoding"):
            return value
        raise TypeError(f"{key} must be {wanted.__name__}, not {type(value).__name__}")
    return value


def _duration(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a duration such as '30s' or '1h 30m', not {type(value).__name__}")
    seconds = parse_duration(value)
    if seconds is None:
        raise ValueError(f"{key}: {value!r} is no duration: write it as '30s', '500ms' or '1h 30m'")
    return _readable(seconds)


def parse_duration(text: str) -> float | None:
    """The seconds of a text such as `1h 30m`; None where it is no duration.

    Example:
        >>> parse_duration("1h 30m"), parse_duration("soon")
        (5400.0, None)
    """
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        return None
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in parts)


def _readable(seconds: float) -> str:
    """The shortest form: `90s` becomes `1m 30s`, as Monarch tells it."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms" if seconds >= 0.001 or not seconds else f"{round(seconds * 1e6)}us"
    parts: list[str] = []
    left = round(seconds)
    for size, unit in ((86400, "day" if left < 2 * 86400 else "days"), (3600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    millis = round((seconds - int(seconds)) * 1000)
    return " ".join(parts + ([f"{millis}ms"] if millis else []))
