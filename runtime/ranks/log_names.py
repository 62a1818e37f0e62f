"""Log records made in an actor begin with its name, unless `config.prefix_python_logs_with_actor` is False."""

from __future__ import annotations

import logging
from typing import Any

from .. import config
from ..scope import context


def install() -> None:
    """Have the records of this process say in which actor they were made; a second time changes nothing."""
    make = logging.getLogRecordFactory()
    if isinstance(make, _Named):
        return
    logging.setLogRecordFactory(_Named(make))


class _Named:
    """Makes log records, with the actor before the message."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*args, **kwargs)
        instance = context().actor_instance
        if instance.is_in_logs and config.prefix_python_logs_with_actor:
            record.msg, record.args = f"[actor={instance!r}] {record.getMessage()}", None
        return record
