"""How a process of a mesh begins: with the environment variables that `bootstrap_command` names for it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .scope import current_rank
from .shape import Extent, Point

Bootstrap = Callable[[], None] | Callable[[], Awaitable[None]]
Env = dict[str, str | None]
"""Variables that are to be set, or (None) taken away."""


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


def envs_of(command: BootstrapCommands | None, extent: Extent) -> list[Env]:
    """The variables that each process of a mesh is to have; None where none is named.

    Raises `TypeError` for what is no command, or gives none.
    """
    return [] if command is None else [_env_at(command, point) for point in extent.points()]


def shared(envs: Sequence[Env]) -> dict[str, str]:
    """The variables that all of them have alike: processes may be born with those, and libraries read them so.

    Example:
        >>> shared([{"A": "1", "B": "0", "C": None}, {"A": "1", "B": "1", "C": None}])
        {'A': '1'}
    """
    first = envs[0] if envs else {}
    alike = {name: value for name, value in first.items() if all(env.get(name) == value for env in envs)}
    return {name: value for name, value in alike.items() if value is not None}


def with_envs(envs: Sequence[Env], bootstrap: Bootstrap | None) -> Bootstrap | None:
    """What runs first in each process of a mesh: its variables are set, then `bootstrap` runs."""
    return _Begin(dict(enumerate(envs)), bootstrap) if any(envs) else bootstrap


def _env_at(command: Any, point: Point) -> Env:
    found = command if isinstance(command, BootstrapCommand) or not callable(command) else command(point)
    if not isinstance(found, BootstrapCommand):
        raise TypeError(f"bootstrap_command is what default_bootstrap_cmd() gives, or a function to it, not {found!r}")
    return dict(found.env)


@dataclass(frozen=True)
class _Begin:
    """Runs in the new process."""

    envs: dict[int, Env]
    """By rank; a resize may bring ranks that have none."""
    bootstrap: Bootstrap | None

    def __call__(self) -> Any:
        for name, value in self.envs.get(current_rank().rank, {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        return self.bootstrap() if self.bootstrap is not None else None
