"""Log records made in an actor begin with its name, unless `config.prefix_python_logs_with_actor` is False."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from .. import config
from ..scope import context


def install() -> None:
    """Have the records of this process say in which actor they were made; a second time changes nothing."""
    make = logging.getLogRecordFactory()
    if isinstance(make, _Maker):
        return
    logging.setLogRecordFactory(_Maker(make))


class _Maker:
    """Makes log records, with the actor before the message."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*args, **kwargs)
        instance = context().actor_instance
        if instance.is_in_logs and config.prefix_python_logs_with_actor:
            name = f"[actor={instance!r}] "
            record.msg = _behind(name.replace("%", "%%") if record.args else name, record.msg)
        return record


def _behind(name: str, msg: object) -> object:
    """The message behind the name, not formatted yet: what is wrong with it is for the handlers, which never raise."""
    return name + msg if isinstance(msg, str) else _Named(name, msg)


@dataclass(frozen=True, slots=True)
class _Named:
    """A message that is no text, and becomes one where it is written."""

    name: str
    msg: object

    def __str__(self) -> str:
        return f"{self.name}{self.msg}"
