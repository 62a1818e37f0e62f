"""An exception to text and, where it can, back."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from meshbook.runtime.errors import ActorError
from meshbook.runtime.ranks.failure import RemoteFailure, describe, pickled_or_none, rebuild, safe_str
from meshbook.runtime.shape import Shape
from meshbook.runtime.wire import codec
from tests.runtime.actors import FAILURES, Choosy, Mute


def raised(error: BaseException) -> BaseException:
    """The error with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


def test_what_a_failure_tells():
    failure = describe(raised(ValueError("boom")))
    assert (failure.type_name, failure.message) == ("ValueError", "boom")
    assert failure.traceback.startswith("Traceback of where the remote call failed (most recent call last):\n")
    assert failure.traceback.endswith("ValueError: boom")
    assert "in raised" in failure.traceback


def test_an_error_whose_attributes_raise_is_told():
    class Odd(Exception):
        def __getattribute__(self, name: str) -> Any:
            raise SystemExit

    failure = describe(raised(Odd("boom")))
    assert (failure.type_name, failure.message) == ("Odd", "boom")
    assert "in raised" in failure.traceback


def test_the_cause_is_told_too():
    error = ValueError("outer")
    error.__cause__ = raised(KeyError("inner"))
    failure = describe(raised(error))
    assert "KeyError: 'inner'" in failure.traceback
    assert "direct cause" in failure.traceback


def test_it_ends_at_the_users_line():
    """Also where it was raised further in, in a function of ours, or where the globals of a frame have no name."""

    def call() -> None:
        exec("shape.slice(r=5)", {"shape": Shape.row_major({"r": 2}), "__name__": None})

    with pytest.raises(IndexError) as caught:
        call()
    told = describe(caught.value).traceback.partition("Traceback of where")[2].splitlines()
    files = [line.split('"')[1] for line in told if line.startswith("  File")]
    assert files == [__file__, __file__, "<string>"]
    assert "shape.py" in str(caught.traceback[-1].path)  # who looks at the error itself sees all


def test_what_we_refuse_is_told_in_one_line_and_our_own_mistakes_with_their_place():
    def failed(error: type[Exception]) -> str:
        code = compile("raise error('boom')", codec.__file__, "exec")
        with pytest.raises(error) as caught:
            exec(code, {"error": error})
        assert caught.value.__traceback__ is not None
        return describe(caught.value.with_traceback(caught.value.__traceback__.tb_next)).traceback

    assert failed(ValueError) == "" and failed(NameError) == ""
    assert "codec.py" in failed(AssertionError)


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_every_failure_survives_the_journey(name: str):
    try:
        error = raised(FAILURES[name]())
    except UnicodeDecodeError as decoding:
        error = decoding
    failure = codec.decode(codec.encode(describe(error)).head)
    assert isinstance(failure, RemoteFailure)
    rebuilt = rebuild(failure, "Actor call a.f", "rank 0")
    assert isinstance(rebuilt, ActorError)
    assert rebuilt.message.startswith(f"Actor call a.f failed on rank 0: {type(error).__name__}")


def test_no_copy_is_promised_that_cannot_be_made():
    assert pickled_or_none(Choosy(1, why="x")) is None
    assert pickled_or_none(ValueError(threading.Lock())) is None
    assert pickled_or_none(ValueError("x")) is not None


def test_an_error_without_text():
    assert safe_str(Mute()) == "<its __str__ raised RuntimeError>"
    assert str(rebuild(RemoteFailure("ValueError", "", ""), "Call")) == "Call failed: ValueError"


def test_a_class_that_is_not_here():
    failure = describe(raised(ValueError("boom")))
    assert failure.pickled is not None
    unknown = failure.pickled.replace(b"ValueError", b"ValueErron")
    rebuilt = rebuild(msgspec.structs.replace(failure, pickled=unknown), "Call")
    assert type(rebuilt) is ActorError
    assert "ValueError: boom" in str(rebuilt)


class Unsettled:
    """Cannot be read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Unsettled._made, ()

    @staticmethod
    def _made() -> object:
        raise RuntimeError("no state")


def test_of_what_cannot_be_read_the_traceback_has_the_users_code_or_is_left_out() -> None:
    def unread(data: bytes) -> BaseException:
        with pytest.raises(codec.DecodeError) as caught:
            codec.loads(data)
        return caught.value.with_traceback(caught.tb.tb_next)  # without this frame, as a rank reads it

    assert describe(unread(b"no pickle")).traceback == ""
    assert "in _made" in describe(unread(codec.dumps(Unsettled()))).traceback


def test_the_error_of_a_call_that_an_actor_has_made_is_one_line_and_its_traceback() -> None:
    inner = rebuild(describe(raised(KeyError("k"))), "Actor call b.f", "rank 2")
    told = describe(raised(inner))
    assert (told.type_name, told.message) == ("ActorError", "Actor call b.f failed on rank 2: KeyError: 'k'")
    outer = rebuild(told, "Actor call a.f", "rank 1")
    assert isinstance(outer, KeyError) and str(outer).count("Traceback of where the remote call failed") == 2
