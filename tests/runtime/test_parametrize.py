"""Decorators that run a test under several configurations."""

from __future__ import annotations

import pytest

from meshbook.runtime.config import get_runtime_config, parametrize_config, parametrize_config_pointwise


@parametrize_config(tail_log_lines={1, 2}, force_file_log={True, False})
def test_every_combination_comes(request: pytest.FixtureRequest) -> None:
    told = get_runtime_config()
    assert request.node.name.endswith(
        f"[tail_log_lines={told['tail_log_lines']}-force_file_log={told['force_file_log']}]"
    )


class TestInAClass:
    @parametrize_config_pointwise(tail_log_lines=[1, 2], cleanup_timeout=["1s", "2s"])
    def test_values_come_in_step(self) -> None:
        told = get_runtime_config()
        assert told["cleanup_timeout"] == f"{told['tail_log_lines']}s"


def test_an_async_test_stays_one() -> None:
    import asyncio

    @parametrize_config(tail_log_lines={7})
    async def test(more: int) -> object:
        return get_runtime_config()["tail_log_lines"] + more

    (mark,) = test.pytestmark  # type: ignore[attr-defined]
    assert asyncio.run(test(more=1, **{mark.args[0]: mark.args[1][0]})) == 8
    assert get_runtime_config() == {}


def test_mistakes() -> None:
    for decorator in (parametrize_config, parametrize_config_pointwise):
        with pytest.raises(ValueError, match="requires at least one config option"):
            decorator()
    with pytest.raises(ValueError, match=r"the same number of values, not .*'force_file_log': 2"):
        parametrize_config_pointwise(tail_log_lines=[1], force_file_log=[True, False])
