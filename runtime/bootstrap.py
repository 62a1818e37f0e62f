"""How a process of a mesh begins: with the environment variables that `bootstrap_command` names for it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .scope import current_rank
from .shape import Extent, Point

Bootstrap = Callable[[], None] | Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class BootstrapCommand:
    """What `default_bootstrap_cmd()` gives. Processes are forked here: of Monarch's command only `env` can be changed.

    Example:
        >>> default_bootstrap_cmd().with_env({"OMP_NUM_THREADS": "1"}).with_env({"HOME": None}).env
        {'OMP_NUM_THREADS': '1', 'HOME': None}
    """

    env: Mapping[str, str | None] = field(default_factory=dict[str, str | None])

    def with_env(self, env: Mapping[str, str | None]) -> BootstrapCommand:
        """The same with these variables too; None takes one away."""
        return BootstrapCommand({**self.env, **env})


def default_bootstrap_cmd() -> BootstrapCommand:
    """How processes begin, to be changed by `with_env` and passed to `spawn_procs` as its `bootstrap_command`."""
    return BootstrapCommand()


BootstrapCommands = BootstrapCommand | Callable[[Point], BootstrapCommand]
"""One for all processes, or for each by its point in the mesh."""


def with_command(command: BootstrapCommands | None, bootstrap: Bootstrap | None, extent: Extent) -> Bootstrap | None:
    """What runs first in each process of a mesh: the variables of its command are set, then `bootstrap` runs.

    Raises `TypeError` for what is no command, or gives none.
    """
    if command is None:
        return bootstrap
    envs = [_env_at(command, point) for point in extent.points()]
    return _Begin(dict(enumerate(envs)), bootstrap) if any(envs) else bootstrap


def _env_at(command: Any, point: Point) -> dict[str, str | None]:
    found = command if isinstance(command, BootstrapCommand) or not callable(command) else command(point)
    if not isinstance(found, BootstrapCommand):
        raise TypeError(f"bootstrap_command is what default_bootstrap_cmd() gives, or a function to it, not {found!r}")
    return dict(found.env)


@dataclass(frozen=True)
class _Begin:
    """Runs in the new process."""

    envs: dict[int, dict[str, str | None]]
    """By rank; a resize may bring ranks that have none."""
    bootstrap: Bootstrap | None

    def __call__(self) -> Any:
        for name, value in self.envs.get(current_rank().rank, {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        return self.bootstrap() if self.bootstrap is not None else None
