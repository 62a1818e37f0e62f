"""What is told beneath the message of an exception."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, TypeVar

import pytest

from meshbook.kernel.failures.causes import MAX_MEMBERS, beneath

if TYPE_CHECKING:
    from tests.kernel.conftest import Notebook

E = TypeVar("E", bound=BaseException)


def raised(error: E, cause: BaseException | None = None) -> E:
    with pytest.raises(type(error)) as caught:
        raise error from cause
    return caught.value


def test_a_group_tells_its_members_and_theirs() -> None:
    inner = ExceptionGroup("inner", [raised(ValueError("a"), KeyError("k"))])
    assert beneath(ExceptionGroup("outer", [inner, TypeError("b")]), repr) == [
        "- ExceptionGroup('inner', [ValueError('a')])",
        "  - ValueError('a')",
        "    caused by KeyError('k')",
        "- TypeError('b')",
    ]


def test_of_a_large_group_a_few_are_told() -> None:
    told = beneath(ExceptionGroup("many", [ValueError(str(n)) for n in range(100)]), str)
    assert told == [*(f"- {n}" for n in range(MAX_MEMBERS)), f"- and {100 - MAX_MEMBERS} more"]


def test_a_ring_and_a_long_chain_come_to_an_end() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert beneath(first, str) == ["caused by second"]
    chain = ValueError("0")
    for n in range(1, 100):
        chain = raised(ValueError(str(n)), chain)
    assert beneath(chain, str)[:2] == ["caused by 98", "caused by 97"]
    assert len(beneath(chain, str)) < 20


IN_A_POOL = """
from multiprocessing.pool import ExceptionWithTraceback, rebuild_exc
def work(): 1/0
try: work()
except ZeroDivisionError as error: sent = ExceptionWithTraceback(error, error.__traceback__)
raise rebuild_exc(*sent.__reduce__()[1])
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "try: {}['lr']\nexcept KeyError: raise ValueError('bad')",
            "bad\nwhile handling KeyError: 'lr' (cell 1, line 1)",
        ),
        ("try: {}['lr']\nexcept KeyError: raise ValueError('bad') from None", "bad"),
        ("e = ValueError('x\\ny')\nraise OSError('z') from e", "z\ncaused by ValueError: x"),
        ("e = ValueError('\\n  x\\ny')\nraise OSError('z') from e", "z\ncaused by ValueError: x"),
        ("e = ValueError('x')\ne.add_note('in batch 3')\nraise e", "x\nin batch 3"),
        ("try: {}['lr']\nexcept KeyError: raise KeyboardInterrupt", ""),
        (IN_A_POOL, "division by zero, in another process"),
        (
            f"try:{indent(IN_A_POOL, ' ')}\nexcept ZeroDivisionError as e: raise OSError('z') from e",
            "z\ncaused by ZeroDivisionError: division by zero, in another process (cell 1, line 3)",
        ),
    ],
)
def test_a_failure_has_them_under_its_message(notebook: Notebook, source: str, message: str) -> None:
    assert notebook.failure(source).message == message
