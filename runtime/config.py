"""Monarch's configuration keys: accepted and checked, so that its programs run; most mean nothing here.

`configure(**keys)` sets, `configured(**keys)` sets for a while, `get_global_config()` tells all.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, cast

from .elsewhere import check_transport
from .errors import checks_for_caller
from .parametrize import Decorator, crossed, in_step

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_UNITS = {
    unit: seconds
    for seconds, units in {
        1e-9: "ns nsec nanos", 1e-6: "us usec micros", 1e-3: "ms msec millis", 1.0: "s sec secs second seconds",
        60.0: "m min mins minute minutes", 3600.0: "h hr hrs hour hours", 86400.0: "d day days",
        604800.0: "w week weeks",
    }.items()
    for unit in units.split()
}  # fmt: skip
"""As Monarch reads them."""


class Encoding(IntEnum):
    """How Monarch writes its messages; here it means nothing."""

    Bincode = 0
    Json = 1
    Multipart = 2

    def __repr__(self) -> str:
        return f"Encoding.{self.name}"

    __str__ = __repr__


_DURATIONS = {
    "actor_spawn_max_idle": "30s",
    "channel_net_rx_buffer_full_check_interval": "5s",
    "channel_reconnect_timeout": "1m",
    "channel_tcp_keepalive_idle": "1m",
    "cleanup_timeout": "3s",
    "forwarder_flush_timeout": "5s",
    "get_actor_state_max_idle": "30s",
    "get_proc_state_max_idle": "1m",
    "host_spawn_ready_timeout": "30s",
    "mesh_admin_config_dump_bridge_timeout": "5s",
    "mesh_admin_pyspy_bridge_timeout": "13s",
    "mesh_admin_pyspy_client_timeout": "20s",
    "mesh_admin_pyspy_max_profile_duration": "5m",
    "mesh_admin_pyspy_timeout": "10s",
    "mesh_admin_query_child_timeout": "100ms",
    "mesh_admin_resolve_actor_timeout": "200ms",
    "mesh_admin_single_host_timeout": "3s",
    "mesh_admin_tree_timeout": "10s",
    "mesh_attach_config_timeout": "1m",
    "mesh_orphan_timeout": "1m",
    "mesh_proc_launcher_kind_timeout": "30s",
    "mesh_proc_spawn_max_idle": "30s",
    "mesh_terminate_timeout": "10s",
    "message_ack_time_interval": "500ms",
    "message_delivery_timeout": "30s",
    "message_latency_sampling_interval": "1s",
    "otel_metric_export_interval": "1s",
    "pending_actor_delivery_timeout": "30s",
    "proc_spawn_max_idle": "30s",
    "proc_stop_max_idle": "30s",
    "process_exit_timeout": "10s",
    "process_memory_metric_interval": "5m",
    "rdma_max_chunk_timeout": "30s",
    "rdma_qp_init_timeout": "30s",
    "remote_alloc_allowed_port_timeout": "30s",
    "remote_allocator_heartbeat_interval": "5m",
    "server_heartbeat_interval": "1s",
    "split_max_buffer_age": "50ms",
    "stop_actor_timeout": "10s",
    "stop_grace_period": "10s",
    "supervision_poll_frequency": "10s",
    "supervision_watchdog_timeout": "2m",
}
_PLAIN: dict[str, Any] = {
    "actor_queue_dispatch": False,
    "channel_multipart": True,
    "channel_tcp_congestion": "",
    "codec_max_frame_length": 10 * 1024**3,
    "default_encoding": Encoding.Multipart,
    "default_transport": "unix",
    "enable_dest_actor_reordering_buffer": True,
    "enable_file_capture": False,
    "enable_log_forwarding": False,
    "enable_message_latency_histogram": False,
    "enable_otel_metrics": True,
    "enable_otel_tracing": True,
    "enable_recorder_tracing": True,
    "enable_sqlite_tracing": False,
    "enable_unawaited_python_task_traceback": False,
    "file_log_level": "",
    "force_file_log": False,
    "is_default_config": True,
    "max_cast_dimension_size": 16,
    "max_cast_fanout": 16,
    "mesh_admin_addr": "[::]:1729",
    "mesh_admin_max_concurrent_resolves": 2,
    "mesh_bootstrap_enable_pdeathsig": True,
    "mesh_terminate_concurrency": 16,
    "message_ack_every_n_messages": 1000,
    "message_latency_sampling_rate": 0.01,
    "message_ttl_default": 64,
    "monarch_log_suffix": "",
    "prefix_with_rank": True,
    "proc_launcher_kind": "",
    "pyspy_bin": "",
    "rdma_allow_tcp_fallback": True,
    "rdma_cq_poller_per_device": True,
    "rdma_disable_ibverbs": False,
    "rdma_host_odp": False,
    "rdma_ibverbs_target": "",
    "rdma_max_chunk_size_mb": 64,
    "rdma_max_nics_per_buffer": None,
    "rdma_min_stripe_size_kb": 512,
    "rdma_peer_device_affinity": "",
    "rdma_qps_per_cq": 64,
    "rdma_qps_per_peer": 4,
    "rdma_runtime_worker_threads": 4,
    "rdma_tcp_fallback_parallelism": 1,
    "read_log_buffer": 100,
    "remote_alloc_bind_to_inaddr_any": False,
    "remote_alloc_bootstrap_addr": "",
    "scuba_log_enter_exit": False,
    "sequencer_max_locked_keys": 128,
    "shared_asyncio_runtime": False,
    "small_write_threshold": 256,
    "split_max_buffer_size": 5,
    "tail_log_lines": 0,
    "terminated_snapshot_retention": 100,
    "tokio_worker_threads": None,
    "use_direct_spawn": False,
}

DEFAULTS: dict[str, Any] = {**_DURATIONS, **_PLAIN}
"""Every key that is known, with its value when nobody sets it. Durations are texts such as `30s` or `1h 30m`."""

prefix_python_logs_with_actor = True
"""Whether a log record made in an actor begins with `[actor=...] `, which says in which."""

_runtime: dict[str, Any] = {}


@checks_for_caller
def configure(**keys: Any) -> None:
    """Set keys from here on.

    Raises:
        ValueError: there is no such key.
        TypeError: the value is of the wrong type, or not one of this key.

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


def seconds_of(key: str) -> float:
    """A duration in seconds.

    Example:
        >>> seconds_of("host_spawn_ready_timeout")
        30.0
    """
    seconds = parse_duration(get_global_config()[key])
    assert seconds is not None, "it was checked when it was set"
    return seconds


def get_runtime_config() -> dict[str, Any]:
    """The keys that were set by `configure`."""
    return dict(_runtime)


def clear_runtime_config() -> None:
    """Forget what `configure` has set."""
    _runtime.clear()


def parametrize_config(**keys: Iterable[Any]) -> Decorator:
    """A decorator of a test for pytest, which then runs under every combination of these values.

    Raises `ValueError` where there are no keys.

    Example:
        >>> @parametrize_config(force_file_log={True}, tail_log_lines={0, 10})
        ... def test_something(): ...
        >>> sorted(test_something.pytestmark[0].kwargs["ids"])
        ['force_file_log=True-tail_log_lines=0', 'force_file_log=True-tail_log_lines=10']
    """
    return crossed(configured, keys)


def parametrize_config_pointwise(**keys: Sequence[Any]) -> Decorator:
    """The same with the first values of all keys, then the second ones, and so on.

    Raises `ValueError` where there are no keys, or some have more values.
    """
    return in_step(configured, keys)


def _checked(key: str, value: Any) -> Any:
    if key not in DEFAULTS:
        raise ValueError(f"invalid configuration key: {key!r}")
    if key in _DURATIONS:
        return _duration(key, value)
    if key == "default_transport":
        check_transport(value)
        return value
    default = DEFAULTS[key]
    wanted = int if default is None else cast("type[Any]", type(default))
    allowed: tuple[Any, ...] = (int, float) if wanted is float else (wanted,)
    if value is default or (isinstance(value, allowed) and (wanted is bool or not isinstance(value, bool))):
        return _not_negative(key, value)
    raise TypeError(f"{key} must be {wanted.__name__}, not {type(value).__name__}")


class ConfigError(TypeError, ValueError):
    """A value of the right type that is none of this key: Monarch calls that a `TypeError`."""


def _not_negative(key: str, value: Any) -> Any:
    if isinstance(value, int | float) and value < 0:
        raise ConfigError(f"{key} cannot be negative, and {value} is")
    return value


def _duration(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a duration such as '30s' or '1h 30m', not {type(value).__name__}")
    seconds = parse_duration(value)
    if seconds is None:
        raise ConfigError(f"{key}: {value!r} is no duration: write it as '30s', '500ms' or '1h 30m'")
    return _readable(seconds)


def parse_duration(text: str) -> float | None:
    """The seconds of a text such as `1h 30m`; None where it is no duration.

    Example:
        >>> parse_duration("1h 30m"), parse_duration("soon")
        (5400.0, None)
    """
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip() or any(unit.lower() not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in parts)


def _readable(seconds: float) -> str:
    """The shortest form: `90s` becomes `1m 30s`, as Monarch tells it."""
    if not seconds:
        return "0s"
    if seconds < 1:
        return f"{round(seconds * 1000)}ms" if seconds >= 0.001 else f"{round(seconds * 1e6)}us"
    parts: list[str] = []
    whole = round(seconds, 3)
    left = int(whole)
    for size, unit in ((86400, "day" if left < 2 * 86400 else "days"), (3600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    millis = round((whole - int(whole)) * 1000)
    return " ".join(parts + ([f"{millis}ms"] if millis else []))
