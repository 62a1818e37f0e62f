"""The commands of `%mesh` that change something: dataclasses whose fields carry their options, and their words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from ..kernel.sources.journal import Choice
from .inquiries import Json, MeshOption
from .options import (
    GrammarError,
    Option,
    Values,
    axes_of,
    cells,
    count,
    duration,
    host_names,
    modules,
    name,
    names,
    num_bytes,
    pair,
    seconds,
    seconds_or_none,
    words_of,
)
from .terms import near

Device = Literal["auto", "cpu", "cuda", "shared"]
Engine = Literal["local", "hosts", "monarch"]
Spawn = Literal["auto", "fork", "exec"]
Link = Literal["auto", "pair", "zmq", "zmq-tcp"]
Group = Literal["auto", "nccl", "gloo", "none"]
State = Literal["on", "off", "auto"]
Gather = Literal["list", "stack", "dict"]


@dataclass(frozen=True, slots=True)
class Up:
    """Start a mesh and make it the current one.

    `axes` has the sizes in the order given; `-n 4` is `{"rank": 4}`.
    """

    name: str | None
    axes: Mapping[str, int]
    num_ranks: Annotated[int | None, Option("-n", "N ranks in a row, the same as rank=N", "N", count)] = None
    device: Annotated[
        Device, Option("--device", "where the ranks compute; shared: on the GPUs that there are, together")
    ] = "auto"
    engine: Annotated[Engine, Option("--engine", "who starts the ranks: this machine, or agents on several")] = "local"
    launch: Annotated[
        str, Option("--launch", "what starts an agent on a host, as 'ssh {host}', or on all, as srun", "CMD")
    ] = ""
    hosts: Annotated[tuple[str, ...] | int | None, Option("--hosts", "the hosts, or how many", "A,B|N", host_names)] = (
        None
    )
    job: Annotated[
        str,
        Option("--job", "with monarch: process, slurm, kubernetes, attach, or the variable with its HostMesh", "JOB"),
    ] = ""
    job_options: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            "--job-option",
            "what the job is to be told, such as partition=gpu; repeat for more",
            "K=V",
            pair("partition=gpu"),
        ),
    ] = ()
    keep: Annotated[
        float, Option("--keep", "with hosts: let them wait TIME for the next notebook, such as 2h", "TIME", duration)
    ] = 0.0
    sync: Annotated[str | None, Option("--sync", "with hosts or monarch: bring the code in DIR to them", "DIR")] = None
    spawn: Annotated[Spawn, Option("--spawn", "how the process of a rank begins")] = "auto"
    python: Annotated[
        str, Option("--python", "the Python that the ranks run in, such as /opt/train/bin/python", "PATH")
    ] = ""
    link: Annotated[Link, Option("--link", "how the ranks are connected")] = "auto"
    pg: Annotated[Group, Option("--pg", "the process group to set up")] = "auto"
    env: Annotated[
        tuple[tuple[str, str], ...],
        Option("--env", "set K in the ranks; repeat for more", "K=V", pair("OMP_NUM_THREADS=1")),
    ] = ()
    spares: Annotated[
        int, Option("--spares", "keep N warm processes a host to take dead ranks' places", "N", count)
    ] = 0
    cwd: Annotated[str | None, Option("--cwd", "the folder that the ranks work in", "DIR")] = None
    ready_timeout: Annotated[
        float, Option("--ready-timeout", "give up if not all are ready after S seconds", "S", seconds)
    ] = 60.0
    imports: Annotated[
        tuple[str, ...],
        Option("--import", "have MOD on the ranks, imported once for all if it is a package", "MOD[,MOD]", modules),
    ] = ()

    def __post_init__(self) -> None:
        if self.engine != "hosts" and (self.launch or isinstance(self.hosts, tuple)):
            raise GrammarError("--launch and --hosts go with --engine hosts: write it too")
        if self.engine == "local" and self.hosts:
            raise GrammarError("--hosts goes with --engine hosts, or monarch: write it too")
        if self.engine == "local" and self.sync is not None:
            raise GrammarError(
                "--sync goes with --engine hosts, or monarch: ranks of this machine read the folder itself"
            )
        if self.engine != "hosts" and self.keep:
            raise GrammarError("--keep goes with --engine hosts: write it too")
        if self.engine != "local" and self.python:
            raise GrammarError(
                "--python is for ranks of this machine: those of others run in the Python that starts their agent"
            )
        if self.engine != "monarch" and self.job:
            raise GrammarError("--job goes with --engine monarch: write it too")
        if self.job_options and not self.job:
            raise GrammarError("--job-option goes with --job: write it too")


@dataclass(frozen=True, slots=True)
class Attach:
    """Bring a mesh up again on hosts that were kept (`%mesh up ... --keep 2h`): with its axes and options, empty.

    `name` is None for the only one there is.
    """

    name: str | None = None


@dataclass(frozen=True, slots=True)
class Ls:
    """List the meshes of this notebook."""

    all: Annotated[bool, Option("--all", "hosts that are kept too, those of other notebooks among them")] = False
    json: Json = False


@dataclass(frozen=True, slots=True)
class Actors:
    """List what this notebook has spawned, and where it lives."""

    json: Json = False


@dataclass(frozen=True, slots=True)
class Use:
    """Make a mesh, or a slice of it, the current one."""

    name: str
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """Show what every rank does. Bare `%mesh` is the same."""

    selector: str = ""
    mesh: MeshOption = None
    json: Json = False


@dataclass(frozen=True, slots=True)
class Down:
    """End a mesh: the processes that it started, and no others.

    `name` is None for the current mesh.
    """

    name: str | None = None
    all: Annotated[bool, Option("--all", "end every mesh of this notebook")] = False
    grace: Annotated[float, Option("--grace", "seconds before a rank is killed", "S", seconds_or_none)] = 2.0
    detach: Annotated[bool, Option("--detach", "leave hosts that are kept to the next `%mesh attach`")] = False

    def __post_init__(self) -> None:
        if self.all and self.name:
            raise GrammarError(f"--all and the name '{self.name}' exclude each other: write one")


@dataclass(frozen=True, slots=True)
class Restart:
    """Give ranks (without a selector all of them) new processes, and replay the cells that set them up."""

    selector: str = ""
    mesh: MeshOption = None
    replay: Annotated[
        Choice, Option("--replay", "cells to run on them: auto, all, none, or numbers such as 1-3,5", "CELLS", cells)
    ] = "auto"


@dataclass(frozen=True, slots=True)
class Resize:
    """Grow or shrink a mesh along its axes; ranks that stay keep their state, new ones are set up by replay."""

    axes: Mapping[str, int]
    mesh: MeshOption = None
    replay: Annotated[
        Choice, Option("--replay", "cells to run on new ranks: auto, all, none, or numbers", "CELLS", cells)
    ] = "auto"
    ready_timeout: Annotated[
        float, Option("--ready-timeout", "give up if the new ranks are not ready after S seconds", "S", seconds)
    ] = 60.0


@dataclass(frozen=True, slots=True)
class Sync:
    """Bring the folder of `%mesh up ... --sync DIR` to the hosts again, as it is now."""

    mesh: MeshOption = None


@dataclass(frozen=True, slots=True)
class Autoreload:
    """Renew modules whose files have changed before each cell on ranks: `on`, `off`, or `auto`: as in the notebook.

    `state` is None to ask what holds.
    """

    state: State | None = None


@dataclass(frozen=True, slots=True)
class Auto:
    """Run plain cells on the mesh too, but for those that begin with %, ! or ?, or with %%local.

    `is_on` is None to ask what holds.
    """

    is_on: bool | None = None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop what ranks run now; their state stays."""

    selector: str = ""
    mesh: MeshOption = None
    hard: Annotated[bool, Option("--hard", "break off collectives too, as `%mesh unstick` does")] = False
    kill: Annotated[bool, Option("--kill", "end the processes of the ranks")] = False


@dataclass(frozen=True, slots=True)
class Unstick:
    """Free ranks that hang in a collective; every variable stays, and the next collective works."""

    selector: str = ""
    mesh: MeshOption = None
    reinit: Annotated[bool, Option("--reinit", "make new process groups on all ranks (the default)")] = True
    no_reinit: Annotated[bool, Option("--no-reinit", "leave the process groups as they are: of no use")] = False


@dataclass(frozen=True, slots=True)
class Push:
    """Copy variables of the notebook to the ranks."""

    names: tuple[str, ...]
    mesh: MeshOption = None
    sel: Annotated[str, Option("--sel", "to these ranks only", "SELECTOR", offers="selector")] = ""


@dataclass(frozen=True, slots=True)
class Pull:
    """Copy variables of the ranks to the notebook."""

    names: tuple[str, ...]
    mesh: MeshOption = None
    sel: Annotated[str, Option("--sel", "from these ranks only", "SELECTOR", offers="selector")] = ""
    gather: Annotated[Gather, Option("--as", "what to make of the values of the ranks")] = "list"
    max_bytes: Annotated[int | None, Option("--max-bytes", "refuse what is larger, such as 64M", "N", num_bytes)] = None


@dataclass(frozen=True, slots=True)
class Export:
    """Write the cells that ran on a mesh as a script that `torchrun` runs; slices become `if` blocks."""

    file: str
    only: Annotated[
        Choice, Option("--cells", "only these, by the numbers in front of them, such as 3-9", "CELLS", cells)
    ] = "all"
    force: Annotated[bool, Option("--force", "write over a file that is not of our own making")] = False
    mesh: MeshOption = None


@dataclass(frozen=True, slots=True)
class Reap:
    """End what notebooks that are gone left behind on this machine, by pid and start time."""


@dataclass(frozen=True, slots=True)
class Config:
    """Show how cells run whose line does not say, or change it: `show=first tail=50`; `tail=default` undoes that."""

    settings: tuple[tuple[str, str], ...] = ()


CONFIGURABLE = ("show", "tail", "timeout", "on-error", "grace")
"""The options of `%%on_mesh` that `%mesh config` sets."""


def config_words(words: list[str], values: Values) -> Values:
    """Settings with their values; nothing, to see them."""
    settings: list[tuple[str, str]] = []
    for word in words:
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name not in CONFIGURABLE:
            advice = near(name, CONFIGURABLE) or f": there are {', '.join(CONFIGURABLE)}"
            raise GrammarError(f"no setting '{name}'{advice}")
        if not equals or not value:
            raise GrammarError(f"'{word}' gives no value: write {name}=VALUE, or {name}=default")
        settings.append((name, value))
    return {"settings": tuple(settings)}


def selector_words(words: list[str], values: Values) -> Values:
    """A selector, as it was typed."""
    return {"selector": " ".join(words)}


def name_words(words: list[str], values: Values) -> Values:
    """The name of a mesh, or nothing."""
    if len(words) > 1:
        raise GrammarError(f"'{words[1]}' is one word too many")
    return {"name": name(words[0]) if words else None}


def state_words(words: list[str], values: Values) -> Values:
    """`on`, `off` or `auto`, or nothing."""
    if len(words) > 1:
        raise GrammarError(f"'{words[1]}' is one word too many")
    if words and words[0] not in get_args(State):
        raise GrammarError(f"'{words[0]}' is not one of {', '.join(get_args(State))}")
    return {"state": words[0] if words else None}


def switch_words(words: list[str], values: Values) -> Values:
    """`on` or `off`, or nothing."""
    if len(words) > 1 or not {*words} <= {"on", "off"}:
        raise GrammarError(f"write `on` or `off`, not '{' '.join(words)}'")
    return {"is_on": words[0] == "on" if words else None}


def use_words(words: list[str], values: Values) -> Values:
    """A mesh and perhaps a slice of it."""
    found = re.fullmatch(r"(\w+)(?:\s*\[(.*)\]|\s+([^\[].*))?", " ".join(words))
    if found is None:
        raise GrammarError("write the mesh to use, such as m0 or m0[dp=0]")
    return {"name": name(found[1]), "selector": (found[2] or found[3] or "").strip()}


def resize_words(words: list[str], values: Values) -> Values:
    """Axes with their new sizes."""
    parts = words_of(words)
    if wrong := [part for part in parts if "=" not in part]:
        raise GrammarError(f"'{wrong[0]}' is not AXIS=N: write an axis with its new size, such as dp=8")
    axes = axes_of(parts)
    if not axes:
        raise GrammarError("write axes with their new sizes, such as dp=8")
    return {"axes": axes}


def file_words(words: list[str], values: Values) -> Values:
    """The name of a file."""
    if len(words) != 1:
        raise GrammarError("write the name of one file, such as train.py")
    return {"file": words[0]}


def names_words(words: list[str], values: Values) -> Values:
    """Names of variables."""
    found = tuple(each for word in words for each in names(word))
    if not found:
        raise GrammarError("write one name or more, such as x y")
    return {"names": found}


def up_words(words: list[str], values: Values) -> Values:
    """Perhaps a name, then axes with their sizes, or none where `-n` gives the number of ranks."""
    parts = words_of(words)
    plain = [part for part in parts if "=" not in part]
    axes = axes_of([part for part in parts if "=" in part])
    if len(plain) > 1:
        raise GrammarError(f"'{plain[1]}' is not AXIS=N: write a size without spaces, such as dp=2")
    if plain and plain[0].isdigit():
        raise GrammarError(f"'{plain[0]}' is not a name: write -n {plain[0]} for {plain[0]} ranks in a row")
    if "num_ranks" in values:
        if axes:
            raise GrammarError(f"-n and axes exclude each other: write -n {values['num_ranks']} or the axes")
        axes = {"rank": values["num_ranks"]}
    if not axes:
        raise GrammarError("write axes with their sizes, such as dp=2 tp=2, or -n 4 for 4 ranks in a row")
    return {"name": name(plain[0]) if plain else None, "axes": axes}
