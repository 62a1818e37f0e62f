"""Errors: their tree, and that a remote one is also what it was over there."""

from __future__ import annotations

import asyncio
import builtins
import gc
import inspect
import pickle
import traceback
import weakref

import pytest

from meshbook.runtime import errors
from meshbook.runtime.errors import ActorError, MeshbookError, MeshError, actor_error, tell_of_all
from meshbook.runtime.ranks.failure import describe, rebuild


def test_the_tree_in_the_docstring_is_the_tree():
    drawn = {line.split("── ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "── " in line}
    classes = {name for name, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, MeshbookError)}
    assert drawn == classes - {"MeshbookError"}


@pytest.mark.parametrize(
    "error", [ValueError("v"), KeyError("k"), OSError(2, "none"), TimeoutError(), ImportError("i")]
)
def test_a_remote_error_is_of_two_types(error: Exception):
    remote = actor_error("a.f failed on rank 1", error, "remote traceback")
    assert isinstance(remote, ActorError)
    assert isinstance(remote, type(error))
    assert remote.exception is error
    assert str(remote) == "a.f failed on rank 1\nremote traceback"
    assert type(remote).__name__ == "ActorError"
    assert type(actor_error("x", type(error)(), "")) is type(remote)


def test_notes_are_told_once():
    error = ValueError("v")
    error.add_note("in batch 3")
    remote = rebuild(describe(error), "a.f")
    assert "".join(traceback.format_exception(pickle.loads(pickle.dumps(remote)))).count("in batch 3") == 1
    bare = actor_error("a.f failed", error, "")
    assert "".join(traceback.format_exception(bare)).count("in batch 3") == 1


def test_the_error_of_a_call_that_an_actor_has_made_is_of_its_type_too():
    inner = actor_error("b.f failed on rank 2", KeyError("k"), "inner traceback")
    outer = actor_error("a.f failed on rank 1", inner, "outer traceback")
    assert isinstance(outer, KeyError) and outer.exception is inner
    assert (outer.message, outer.exception_formatted) == ("a.f failed on rank 1", "outer traceback")
    assert type(actor_error("a.f", ActorError(), "")) is ActorError


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, StopAsyncIteration, asyncio.CancelledError]
)
def test_what_steers_code_over_there_steers_nothing_here(kind: type[BaseException]):
    remote = actor_error("a.f", kind(), "")
    assert type(remote) is ActorError
    assert isinstance(remote.exception, kind)


class Slots(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Final(Exception):
    def __init_subclass__(cls) -> None:
        raise RuntimeError("no subclasses")


def test_attributes_come_along():
    error = actor_error("a.f", Slots(7), "")
    assert isinstance(error, Slots)
    assert error.code == 7
    assert error.message == "a.f"


class Described(Exception):
    @property
    def message(self) -> str:
        return "its own"


def test_so_does_what_errors_of_python_keep_elsewhere():
    error = actor_error("a.f", FileNotFoundError(2, "not there", "/nothing/here"), "")
    assert isinstance(error, OSError)
    assert (error.errno, error.filename) == (2, "/nothing/here")
    undecoded = actor_error("a.f", UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"), "")
    assert isinstance(undecoded, UnicodeDecodeError) and (undecoded.reason, undecoded.end) == ("why", 1)


def test_classes_that_endpoints_make_are_not_kept_for_good():
    def told() -> weakref.ref[type[ValueError]]:
        original = type("Odd", (ValueError,), {})
        assert isinstance(actor_error("it failed", original("odd"), ""), original)
        return weakref.ref(original)

    made = [told() for _ in range(300)]
    gc.collect()
    assert made[0]() is None


def test_a_property_of_the_original_is_not_in_the_way():
    error = actor_error("a.f failed", Described("text"), "")
    assert isinstance(error, Described)
    assert (error.message, error.exception and error.exception.args) == ("a.f failed", ("text",))


def test_what_others_said_is_told_unless_the_error_means_something_else_by_that():
    read: asyncio.IncompleteReadError = actor_error("a.f", asyncio.IncompleteReadError(b"abc", 10), "")  # type: ignore[assignment]
    tell_of_all(read, {0: 1}, {1: read})
    assert (read.partial, vars(read)["by_rank"]) == (b"abc", {1: read})
    plain = actor_error("a.f", ValueError("v"), "")
    tell_of_all(plain, {0: 1}, {1: plain})
    tell_of_all(plain, {0: 1, 2: 3}, {1: plain})
    assert vars(plain)["partial"] == {0: 1, 2: 3}


def test_it_can_be_pickled_with_all_that_it_knows():
    error = actor_error("a.f failed", Slots(7), "remote traceback")
    error.by_rank = {0: error}  # type: ignore[attr-defined]
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, Slots)
    assert type(copy) is type(error)
    assert (str(copy), copy.code, vars(copy)["by_rank"][0] is copy) == ("a.f failed\nremote traceback", 7, True)


def test_one_can_be_made_as_monarch_makes_it():
    error = ActorError(ValueError("v"), "it failed")
    assert isinstance(error.exception, ValueError)
    assert str(error).splitlines() == ["it failed", "ValueError: v"]
    assert str(ActorError()) == "A remote actor call has failed."


def test_a_class_that_cannot_be_mixed_in_is_in_the_attribute_only():
    for original in (Final(), ExceptionGroup("g", [ValueError()])):
        error = actor_error("a.f", original, "")
        assert type(error) is ActorError
        assert error.exception is original


def test_without_an_original_there_is_the_text():
    error = actor_error("a.f failed", None, "")
    assert (type(error), str(error), error.exception) == (ActorError, "a.f failed", None)


def test_every_builtin_error_can_be_told():
    kinds = [cls for _, cls in inspect.getmembers(builtins, inspect.isclass) if issubclass(cls, BaseException)]
    for kind in kinds:
        assert isinstance(actor_error("told", kind.__new__(kind, "message", [ValueError()]), ""), ActorError)


def test_a_mesh_error_shows_its_story_and_its_tracebacks_afterwards():
    error = MeshError("1 of 2 ranks failed", by_rank={1: ValueError()}, story="rank 1:\n  boom")
    assert error._render_traceback_() == ["rank 1:", "  boom", "MeshError: 1 of 2 ranks failed"]
    error.in_full = "all\nof it"
    assert error._render_traceback_() == ["all", "of it", "MeshError: 1 of 2 ranks failed"]
    with pytest.raises(MeshError):
        try:
            raise error
        finally:
            assert error._render_traceback_() == ["rank 1:", "  boom", "MeshError: 1 of 2 ranks failed"]
    assert MeshError("none").by_rank == {}


def test_its_arguments_are_the_original_and_what_it_says():
    original = ValueError("boom", 3)
    error = actor_error("a.f failed on rank 1", original, "remote traceback")
    assert error.args == (original, "a.f failed on rank 1")
    assert repr(error) == "ActorError(ValueError('boom', 3), 'a.f failed on rank 1')", "and not a whole traceback"
