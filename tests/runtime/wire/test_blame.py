"""What is told of a value that cannot be pickled: where in it the cause is."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from meshbook.runtime.wire.codec import EncodeError, encode


class Holder:
    def __init__(self, content: object) -> None:
        self.content = content


class Slotted:
    __slots__ = ("content", "unset")

    def __init__(self, content: object) -> None:
        self.content = content


class Refuses:
    def __reduce__(self) -> Any:
        raise RuntimeError("not today")


def uses_a_lock() -> Any:
    lock = threading.Lock()
    return lambda: lock


LOCK = threading.Lock()


def names_itself() -> Any:
    class Own:
        def __init__(self) -> None:
            super().__init__()

        @property
        def locked(self) -> Any:
            return super(), LOCK

    return Own


HERE = f"{__name__}."
BLAMES = [
    (LOCK, "a _thread.lock"),
    ({"lock": LOCK}, "dict['lock'] is a _thread.lock"),
    ((1, [2, {"a": LOCK}]), "tuple[1][1]['a'] is a _thread.lock"),
    (Holder({"x": LOCK}), f"{HERE}Holder.content['x'] is a _thread.lock"),
    (Slotted(LOCK), f"{HERE}Slotted.content is a _thread.lock"),
    (uses_a_lock(), "uses_a_lock.<locals>.<lambda> -> lock is a _thread.lock"),
    (names_itself(), "names_itself.<locals>.Own.locked.fget -> LOCK is a _thread.lock"),
    ([names_itself()()], "list[0].__class__.locked.fget -> LOCK is a _thread.lock"),
    (partial(print, LOCK), "functools.partial.args[0] is a _thread.lock"),
    ((i for i in ()), "a generator"),
    ([Refuses()], f"list[0] is {HERE}Refuses (RuntimeError: not today)"),
]


@pytest.mark.parametrize(("value", "text"), BLAMES, ids=[text for _, text in BLAMES])
def test_an_error_says_where_in_the_value_its_cause_is(value: object, text: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(value)
    assert str(caught.value).replace(f"is a {HERE}", f"is {HERE}") == f"cannot pickle: {text}"
    assert caught.value.__cause__ is not None


def test_an_error_is_found_in_a_value_that_holds_itself() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    value["lock"] = LOCK
    with pytest.raises(TypeError, match=r"dict\['lock'\] is a _thread.lock"):
        encode(value)
