"""Monarch's configuration keys: checked, normalised, and forgotten at the end of a block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime import ChannelTransport, config
from meshbook.runtime.config import (
    DEFAULTS,
    clear_runtime_config,
    configure,
    configured,
    get_global_config,
    get_runtime_config,
    parse_duration,
)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    clear_runtime_config()


def test_defaults_are_those_that_programs_expect() -> None:
    found = get_global_config()
    assert found["codec_max_frame_length"] == 10 * 1024**3
    assert (found["enable_log_forwarding"], found["enable_file_capture"]) == (False, False)
    assert (found["cleanup_timeout"], found["host_spawn_ready_timeout"]) == ("3s", "30s")
    assert get_runtime_config() == {}
    assert config.prefix_python_logs_with_actor is True


def test_what_is_set_counts_until_it_is_cleared() -> None:
    configure(enable_log_forwarding=True, cleanup_timeout="90s")
    assert get_runtime_config() == {"enable_log_forwarding": True, "cleanup_timeout": "1m 30s"}
    assert get_global_config() == {**DEFAULTS, "enable_log_forwarding": True, "cleanup_timeout": "1m 30s"}
    clear_runtime_config()
    assert get_global_config() == DEFAULTS


def test_a_block_ends_with_what_was_before() -> None:
    configure(tail_log_lines=1)
    with pytest.raises(ZeroDivisionError), configured(tail_log_lines=2, enable_file_capture=True) as inside:
        assert (inside["tail_log_lines"], inside["enable_file_capture"]) == (2, True)
        assert get_global_config() == inside
        _ = 1 / 0
    assert get_runtime_config() == {"tail_log_lines": 1}


@pytest.mark.parametrize(
    ("keys", "kind", "text"),
    [
        ({"no_such_key": 1}, ValueError, "invalid configuration key: 'no_such_key'"),
        ({"enable_log_forwarding": "yes"}, TypeError, "enable_log_forwarding must be bool, not str"),
        ({"tail_log_lines": True}, TypeError, "tail_log_lines must be int, not bool"),
        ({"tail_log_lines": 1.5}, TypeError, "tail_log_lines must be int, not float"),
        ({"cleanup_timeout": 30}, TypeError, "cleanup_timeout must be a duration such as '30s'"),
        ({"cleanup_timeout": "soon"}, TypeError, "'soon' is no duration"),
        ({"cleanup_timeout": ""}, ValueError, "'' is no duration"),
        ({"tail_log_lines": -1}, TypeError, "tail_log_lines cannot be negative, and -1 is"),
        ({"default_encoding": "json"}, TypeError, "default_encoding must be Encoding, not str"),
        ({"default_transport": "pigeons"}, ValueError, "there is no transport 'pigeons'"),
        ({"tokio_worker_threads": "two"}, TypeError, "tokio_worker_threads must be int, not str"),
    ],
)
def test_mistakes_change_nothing(keys: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        configure(enable_file_capture=True, **keys)
    assert "\n" not in str(caught.value)
    assert get_runtime_config() == {}


def test_keys_of_what_means_nothing_here_are_taken_too() -> None:
    keys = {"rdma_max_nics_per_buffer": 2, "default_encoding": config.Encoding.Json, "mesh_admin_addr": "[::]:1"}
    configure(**keys, default_transport=ChannelTransport.Unix, tokio_worker_threads=None)
    assert get_runtime_config() == {**keys, "default_transport": ChannelTransport.Unix, "tokio_worker_threads": None}


def test_parts_of_a_second_are_kept() -> None:
    for given_text, told in (("1500ms", "1s 500ms"), ("2.9996s", "3s"), ("0.5s", "500ms"), ("0s", "0s")):
        with configured(cleanup_timeout=given_text) as found:
            assert found["cleanup_timeout"] == told


def test_the_words_of_durations_are_monarch_s() -> None:
    for given_text, told in (
        ("2 minutes", "2m"),
        ("1hour 30 mins", "1h 30m"),
        ("90 seconds", "1m 30s"),
        ("1week", "7days"),
    ):
        with configured(cleanup_timeout=given_text) as found:
            assert found["cleanup_timeout"] == told
    with pytest.raises(ValueError, match="'2 moons' is no duration"):
        configure(cleanup_timeout="2 moons")


@given(st.dictionaries(st.sampled_from(["day", "h", "m", "s", "ms"]), st.integers(1, 23), min_size=1))
def test_durations_keep_their_length(parts: dict[str, int]) -> None:
    text = " ".join(f"{number}{unit}" for unit, number in parts.items())
    with configured(cleanup_timeout=text) as found:
        assert parse_duration(found["cleanup_timeout"]) == pytest.approx(parse_duration(text))


def test_numbers_may_be_whole() -> None:
    configure(message_latency_sampling_rate=1)
    assert get_global_config()["message_latency_sampling_rate"] == 1


def test_an_encoding_is_written_by_its_name():
    json = config.Encoding.Json
    assert (repr(json), str(json), int(json)) == ("Encoding.Json", "Encoding.Json", 1)
