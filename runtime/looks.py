# pyright: reportPrivateUsage=false
# Meshes keep their members private: every public one is a name that no endpoint of an actor can have.

"""What a notebook shows of meshes: name, class, axes, state, and endpoints with what they take. Plain text and HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from .actor import endpoints_of
from .ranges import named

if TYPE_CHECKING:
    from .mesh import ActorMesh, ProcMesh


def state_of(mesh: ProcMesh | ActorMesh[Any]) -> str:
    """`alive`, `stopped`, or on which ranks it has failed or is gone, as far as this process knows."""
    if mesh._is_stopped:
        return "stopped"
    ranks = set(mesh._shape.ranks())
    dead = sorted(ranks & set(mesh._fleet.dead()))
    failed = sorted(ranks & mesh._failed - set(dead))
    told = [f"{named(which)} {how}" for which, how in ((failed, "failed"), (dead, "dead")) if which]
    return ", ".join(told) or "alive"


def actors_text(mesh: ActorMesh[Any]) -> str:
    """A line about the mesh, then one for each endpoint."""
    return "\n".join([f"ActorMesh {mesh._name} of {_about(mesh)}", *(f"  {line}" for line in _endpoints(mesh))])


def actors_html(mesh: ActorMesh[Any]) -> str:
    items = "".join(f"<li><code>{escape(line)}</code></li>" for line in _endpoints(mesh))
    return f"<div><b>{escape(mesh._name)}</b> of {escape(_about(mesh))}<ul>{items}</ul></div>"


def procs_html(mesh: ProcMesh) -> str:
    return f"<div><b>ProcMesh</b> {escape(_place(mesh))}</div>"


def _about(mesh: ActorMesh[Any]) -> str:
    return f"{mesh._class.__name__} · {_place(mesh)}"


def _place(mesh: ProcMesh | ActorMesh[Any]) -> str:
    """Example: `dp=2 × tp=2 · 4 ranks · alive`."""
    axes = " × ".join(f"{axis}={size}" for axis, size in mesh.sizes.items())
    count = f"{len(mesh)} rank{'s' if len(mesh) > 1 else ''}"
    return " · ".join(part for part in (axes, count, state_of(mesh)) if part)


def _endpoints(mesh: ActorMesh[Any]) -> list[str]:
    """Example: `add(n)  Adds to the value.`"""
    lines = [(f"{name}{ep.arguments}", _first_line(ep.__doc__)) for name, ep in endpoints_of(mesh._class).items()]
    width = max((len(head) for head, _ in lines), default=0)
    return [f"{head:<{width}}  {text}".rstrip() for head, text in lines]


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
