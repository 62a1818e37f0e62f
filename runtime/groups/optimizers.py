"""How many steps the optimizers of this process have made: where some have made more than others, models differ."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ..ranks.imports import when_imported

_num_steps = 0


@functools.cache
def watch() -> None:
    """From now on steps are counted, also of torch that is imported later."""
    when_imported("torch.optim.optimizer", _hook)
    when_imported("torch._dynamo.config", _count_compiled)


def num_steps() -> int:
    """The steps made so far."""
    return _num_steps


def _hook() -> None:
    module: Any = sys.modules["torch.optim.optimizer"]
    module.register_optimizer_step_post_hook(_count)


def _count_compiled() -> None:
    """What logs is called as it is by compiled code, when its graph has run."""
    config: Any = sys.modules["torch._dynamo.config"]
    config.reorderable_logging_functions.add(_count)


def _count(*_: object) -> None:
    global _num_steps
    # Who has taken it out of the set there compiles it: a number that changes would have that done at each step.
    if not sys.modules["torch"].compiler.is_compiling():
        _num_steps += 1
