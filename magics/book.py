"""The book of a notebook's meshes: by name, with the current one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from IPython.core.error import UsageError

from ..kernel.failures.slips import OF_OLD_GROUPS
from ..kernel.mesh import Mesh
from ..runtime.cut_off import lost_peer
from ..runtime.supervision import shown
from .manage import State
from .obituary import Obituaries
from .selection import selection


@dataclass(slots=True)
class Book:
    """Names of meshes, and which of them `%%on_mesh` means when it names none."""

    meshes: dict[str, Mesh] = field(default_factory=dict[str, Mesh])
    current: str | None = None
    slice: str = ""
    """The selector of `%mesh use NAME[SELECTOR]`: what a cell without a selector runs on."""

    is_auto: bool = False
    """Whether plain cells run on the mesh too: `%mesh auto on`."""

    reloading: State = "auto"
    """Whether ranks renew modules whose files have changed before each cell: `auto`, as the notebook does itself."""

    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    """What `%mesh config` has set, by the fields of `OnMeshArgs`."""

    knows_untold: bool = False
    """Whether it was said that the notebook's own `%autoreload` cannot be seen."""

    variable: Callable[[str], object] = lambda _: None
    """What a name is in the notebook: who writes `m = %mesh up dp=2` may take `m` for the name of the mesh."""

    on_add: Callable[[Mesh], object] | None = None
    """Called with each mesh that comes into the book."""

    _obituaries: Obituaries = field(default_factory=Obituaries)

    def add(self, mesh: Mesh) -> None:
        """Make this mesh the current one."""
        self.meshes[mesh.name] = mesh
        if self.on_add is not None:
            self.on_add(mesh)
        self.use(mesh.name)

    def use(self, name: str, selector: str = "") -> Mesh:
        """Make the mesh of this name, or a slice of it, current. Raises `UsageError` if there is none."""
        mesh = self.get(name)
        if selector:
            self.select(selector, mesh)
        self.current, self.slice = name, selector
        return mesh

    def remove(self, name: str) -> Mesh:
        """Take a mesh out of the book; the last one that is up becomes current, or else the last."""
        mesh = self.meshes.pop(name)
        if self.current == name:
            self.current, self.slice = next(iter([*self.up(), *reversed(self.meshes)]), None), ""
            self.is_auto = False  # another mesh is not what was meant
        return mesh

    def get(self, name: str | None = None) -> Mesh:
        """The mesh of this name, or the current one. Raises `UsageError`, which says what to type instead.

        Says which of its ranks died since somebody asked for it, while it was idle.
        """
        if not self.meshes:
            raise UsageError("there is no mesh yet: bring one up with `%mesh up dp=2` (or any axis names and sizes)")
        wanted = name or self.current
        assert wanted is not None
        if wanted not in self.meshes:
            held = self.variable(wanted)
            if isinstance(held, Mesh) and held.name in self.meshes:
                raise UsageError(f"there is no mesh {wanted!r}: what the variable {wanted} holds is mesh {held.name!r}")
            raise UsageError(f"there is no mesh {wanted!r}: there is {', '.join(self.meshes)}")
        for line in self._obituaries.lines(self.meshes[wanted]):
            print(line, file=sys.stderr)
        return self.meshes[wanted]

    def note_told(self, mesh: Mesh, ranks: Iterable[int]) -> None:
        """The user hears of those of these ranks that are dead: nobody says it again."""
        self._obituaries.note_told(mesh, ranks)

    def hint_of(self, error: BaseException) -> list[str]:
        """Of an error of a call that is shown: how to look at the frames of an actor, or how to bring back the dead."""
        shown(error)
        lost = [mesh for mesh in self.meshes.values() if self._obituaries.are_in(error, mesh)]
        back = [f"bring back: %mesh restart @dead{self._of(mesh)}" for mesh in lost]
        mesh = self.raised_on(error)
        if mesh is None:
            return back
        raised = getattr(error, "exception", None)
        is_cut_off = (
            mesh.roster.groups.whole_since and not mesh.roster.dead() and lost_peer(type(raised).__name__, str(raised))
        )
        return [
            *back,
            *([f"↻ {OF_OLD_GROUPS}"] if is_cut_off else []),
            f"look inside: %mesh debug --pm{self._of(mesh)}",
        ]

    def raised_on(self, error: object) -> Mesh | None:
        """The mesh on which an actor has raised this error, if that is one of these."""
        where: tuple[int, int] | None = getattr(error, "raised_on", None)
        return next((each for each in self.meshes.values() if where and each.roster.mesh == where[0]), None)

    def _of(self, mesh: Mesh) -> str:
        return "" if mesh.name == self.current else f" -m {mesh.name}"

    def select(self, selector: str, mesh: Mesh, *, also_dead: bool = False) -> tuple[int, ...]:
        """The ranks of a mesh that a selector means; dead ones if it names them, or with `also_dead`."""
        if mesh.is_down and not also_dead:
            axes = " ".join(f"{axis}={size}" for axis, size in mesh.axes.items())
            others = "".join(f", `%mesh use {name}` goes on with {name}" for name in self.up()[:1])
            back = f"`%mesh up {mesh.name} {axes}` brings it up again"
            raise UsageError(f"mesh {mesh.name!r} was taken down: {back}{others}")
        text = selector or (self.slice if mesh.name == self.current else "")
        return selection(text, mesh, also_dead=also_dead, meshes=self.meshes)

    def chosen(self, name: str | None, selector: str) -> tuple[Mesh, tuple[int, ...]]:
        """The mesh of this name, or the current one, and the ranks of it that a selector means: none is its slice."""
        mesh = self.get(name)
        return mesh, self.select(selector, mesh)

    def chosen_of_all(self, name: str | None, selector: str) -> tuple[Mesh, tuple[int, ...]]:
        """The same for what asks or stops ranks: without a selector all that live, whatever cells run on."""
        return self.chosen(name, selector or "all")

    def up(self) -> list[str]:
        """The meshes that are up, the one added last first."""
        return [name for name in reversed(self.meshes) if not self.meshes[name].is_down]

    def free_name(self) -> str:
        """A name for a mesh that was given none: `m0`, `m1`, ..."""
        number = 0
        while f"m{number}" in self.meshes:
            number += 1
        return f"m{number}"
