"""`os.system` drops Ctrl-C while its command runs. The command hears that (`offspring`), and the cell or the endpoint
behind it."""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING, Any

from .raising import meet

if TYPE_CHECKING:
    from .interrupts import Interrupts


def install(interrupts: Interrupts) -> None:
    """From now on in this process."""
    module: Any = os
    plain = module.system

    @wraps(plain)
    def system(command: Any) -> int:
        try:
            return plain(command)
        finally:
            interrupts.catch_up()
            meet()

    module.system = system
