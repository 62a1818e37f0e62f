"""Log records of an actor, which begin with its name and are otherwise what the user has logged."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextvars import copy_context

import pytest

from meshbook.runtime.ranks import log_names
from meshbook.runtime.scope import Context, Instance, enter
from meshbook.runtime.shape import Extent, Point

NOWHERE = Point(0, Extent((), ()))
NAME = "[actor=<root>.<m.Trainer 100%s>] "


@pytest.fixture(autouse=True)
def named() -> Generator[None]:
    former = logging.getLogRecordFactory()
    log_names.install()
    yield
    logging.setLogRecordFactory(former)


def log_in_actor(msg: object, *args: object) -> None:
    def log() -> None:
        enter(Context(Instance("100%s", "m.Trainer", NOWHERE, is_in_logs=True), NOWHERE))
        logging.getLogger("user").error(msg, *args)

    copy_context().run(log)


def test_the_name_is_before_the_message(caplog: pytest.LogCaptureFixture) -> None:
    log_in_actor("100% done")
    log_in_actor("%d of %d", 1, 2)
    log_in_actor("%(n)d items", {"n": 3})
    log_in_actor(ValueError("no text"))
    assert caplog.messages == [NAME + said for said in ("100% done", "1 of 2", "3 items", "no text")]


def test_handlers_have_the_arguments(caplog: pytest.LogCaptureFixture) -> None:
    log_in_actor("%d of %d", 1, 2)
    assert caplog.records[0].args == (1, 2)


class Braces:
    """A message that is formatted where it is written, as logging's documentation has it."""

    def __str__(self) -> str:
        return "{} of {}".format(1)  # noqa: F524 - this is what is wrong with it


@pytest.mark.parametrize("wrong", [("%d items", "three"), ("items", 3), (Braces(),)])
def test_a_wrong_format_ends_nobody(wrong: tuple[object, ...], capfd: pytest.CaptureFixture[str]) -> None:
    log, handler = logging.getLogger("user"), logging.StreamHandler()
    log.addHandler(handler)
    log.propagate = False  # pytest's own handler raises what it finds
    try:
        log_in_actor(*wrong)
    finally:
        log.propagate = True
        log.removeHandler(handler)
    assert "--- Logging error ---" in capfd.readouterr().err
