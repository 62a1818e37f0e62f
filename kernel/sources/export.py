"""A notebook as a script: the cells that ran on a mesh, as one file that `torchrun` runs. Pure: journal in, text out.

A slice becomes an `if` over coordinates, with the slice's process group; every group is made by all ranks, in the order
in which slices first appear. A cell's last value is printed by the first rank of its slice.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import textwrap
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType

from ...runtime.shape import Shape
from .journal import Entry, Pushed, is_plain, needed
from .plain_source import PlainSource, indented, plain_source

MARK = "# Written by meshbook's `%mesh export`"
"""The first line of every script: what may be written over."""

_LONGEST_LITERAL = 200


@dataclass(frozen=True, slots=True)
class Setting:
    """The mesh that the cells ran on."""

    axes: Mapping[str, int]
    device: str
    """`cpu` or `cuda`."""
    backend: str
    """Of its process groups; `none` without."""


_END = """dist.destroy_process_group()
# A thread of gloo may still hold the last collective, and would abort in the interpreter's end (torch 2.13).
_time.sleep(0.1)"""


def script(
    setting: Setting,
    notes: Iterable[Entry | Pushed],
    cells: Collection[int] | None = None,
    name: str = "train.py",
) -> str:
    """The script of what a journal has noted. With `cells`, only of the cells with these numbers.

    Example:
        >>> entries = [Entry("cell 2", "x = rank", 1, (0, 1)), Entry("cell 3", "x + 1", 1, (0,))]
        >>> print(script(Setting({"dp": 2}, "cpu", "none"), entries).partition("# cell 3")[2].strip())
        if coord["dp"] == 0:
            group = None
            _show(x + 1, by=0)
    """
    chosen = needed([note for note in notes if isinstance(note, Pushed) or cells is None or note.number in cells])
    ran = [note for note in chosen if isinstance(note, Entry) and note.source and not note.went_wrong]
    plain = {id(entry): _plain(entry) for entry in ran}
    futures = sorted({future for each in plain.values() for future in each.futures})
    slices = list(dict.fromkeys(entry.ranks for entry in ran if len(entry.ranks) < math.prod(setting.axes.values())))
    parts = [_header(setting, name, futures), _groups(setting, slices)]
    for _, group in itertools.groupby(chosen, type):
        found = list(group)
        parts.append(_given(setting, [note for note in found if isinstance(note, Pushed)]))
        for entry in (note for note in found if isinstance(note, Entry)):
            parts.append(_cell(setting, entry, plain[id(entry)], slices) if id(entry) in plain else _left_out(entry))
    if setting.backend != "none":
        parts.append(_END)
    text = "\n\n".join(part for part in parts if part) + "\n"
    fault = _fault(text)
    return f"{text}\n# WARNING {fault}\n" if fault else text


def _fault(text: str) -> str:
    """Why the script is no Python; empty if it is."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of what cells say oddly
            compile(text, "<script>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"this script does not compile: line {error.lineno}: {error.msg}"
    return ""


def _plain(entry: Entry) -> PlainSource:
    return plain_source(entry.source, f"_run_{_identifier(entry.name)}", entry.ranks[0])


def _identifier(name: str) -> str:
    return "".join(char if char.isalnum() and char.isascii() else "_" for char in name)


def _header(setting: Setting, name: str, futures: Sequence[str]) -> str:
    """All that stands before the first cell: what it is, its imports, the place of the rank, and its groups."""
    return "\n".join([*_imports(setting, name, futures), *_place(setting), *_SHOWING])


def _imports(setting: Setting, name: str, futures: Sequence[str]) -> list[str]:
    size = math.prod(setting.axes.values())
    has_groups = setting.backend != "none"
    return [
        MARK,
        f"# {' × '.join(f'{axis}={count}' for axis, count in setting.axes.items())}: the cells of a notebook that ran "
        "on its mesh, in order; those that ran in the notebook itself are not here.",
        "# The last value of a cell is printed by the first rank that the cell ran on. Run it with:",
        "#",
        f"#     torchrun --nproc-per-node {size} {name}",
        *([f"from __future__ import {', '.join(futures)}"] if futures else []),
        "",
        "import asyncio",
        "import os",
        *(["import time as _time"] if has_groups else []),
        "from types import SimpleNamespace",
        "",
        *(["import torch"] if setting.device == "cuda" else []),
        *(["import torch.distributed as dist", ""] if has_groups else []),
    ]


def _place(setting: Setting) -> list[str]:
    """The names that cells find on a rank: `rank`, `coord`, `device`, `mesh`."""
    size = math.prod(setting.axes.values())
    sizes = ", ".join(f'"{axis}": {count}' for axis, count in setting.axes.items())
    return [
        f"_sizes = {{{sizes}}}",
        'rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])',
        'local_rank = int(os.environ["LOCAL_RANK"])',
        f"if world_size != {size}:",
        f'    raise SystemExit("this script is for {size} ranks: torchrun --nproc-per-node {size}")',
        "coord, _rest = dict.fromkeys(_sizes, 0), rank",  # in the order of the axes
        "for _axis in reversed(_sizes):",
        "    _rest, coord[_axis] = divmod(_rest, _sizes[_axis])",
        'device = f"cuda:{local_rank}"' if setting.device == "cuda" else 'device = "cpu"',
        *(["torch.cuda.set_device(device)"] if setting.device == "cuda" else []),
        *(_start_groups(setting) if setting.backend != "none" else ["_device_mesh = group = None"]),
        "mesh = SimpleNamespace(rank=rank, coord=coord, sizes=_sizes, device_mesh=_device_mesh)",
        "_loop = asyncio.new_event_loop()",
        "asyncio.set_event_loop(_loop)",
    ]


_SHOWING = [
    "",
    "",
    "def _show(value, by):",
    "    if rank == by and value is not None:",
    '        print(f"{value!r}\\n", end="", flush=True)  # in one piece: other ranks print too',
    "",
    "",
    "def display(*values, **options):",
    "    print(*values, flush=True)",
]


def _start_groups(setting: Setting) -> list[str]:
    backend = (
        setting.backend if setting.backend != "auto" else ("cpu:gloo,cuda:nccl" if setting.device == "cuda" else "gloo")
    )
    return [
        f'dist.init_process_group("{backend}")',
        "_device_mesh = dist.device_mesh.init_device_mesh(",
        f'    "{setting.device}", tuple(_sizes.values()), mesh_dim_names=tuple(_sizes)',
        ")",
        "group = dist.group.WORLD",
    ]


def _groups(setting: Setting, slices: Sequence[tuple[int, ...]]) -> str:
    if not slices or setting.backend == "none":
        return ""
    lines = [f"    {ranks}: dist.new_group({list(ranks)})," for ranks in slices]
    return "\n".join(["# All ranks make the groups of all slices, in this order.", "_groups = {", *lines, "}"])


def _given(setting: Setting, pushed: Sequence[Pushed]) -> str:
    """What the notebook had pushed: literals and functions as they are, the rest is for who runs this to make."""
    lines: list[str] = []
    missing: list[str] = []
    for push in pushed:
        name = push.name
        if push.is_kept and (literal := _literal(push.value)) is not None:
            lines.append(_under(_condition(setting, push.ranks), f"{name} = {literal}"))
        elif push.is_kept and (definition := _definition(name, push.value)) is not None:
            lines.append(_under(_condition(setting, push.ranks), definition))
        elif name not in missing:
            missing.append(name)
    if missing:
        words = ", ".join(missing)
        lines.append(f"# TODO: make {words} here: the notebook made {'it' if len(missing) == 1 else 'them'}.")
        lines.append(f'raise NotImplementedError("make {words} here: pushed from the notebook with `%mesh push`")')
    return "\n".join(["# Pushed from the notebook.", *lines]) if lines else ""


def _definition(name: str, value: object) -> str | None:
    """The source of a function that the notebook has defined, if it can be had and stands alone."""
    if not isinstance(value, FunctionType) or value.__module__ != "__main__" or value.__closure__:
        return None
    try:
        source = textwrap.dedent(inspect.getsource(value)).rstrip()
    except OSError:
        return None
    if not source.startswith(("def ", "async def ", "@")):  # a lambda, in the midst of a line
        return None
    return source if value.__name__ == name else f"{source}\n\n{name} = {value.__name__}"


def _literal(value: object) -> str | None:
    """Its source, if it is made of plain values and short."""
    if not is_plain(value):
        return None
    text = repr(value)
    try:
        return text if len(text) <= _LONGEST_LITERAL and ast.literal_eval(text) == value else None
    except (ValueError, SyntaxError):  # inf, nan
        return None


def _left_out(entry: Entry) -> str:
    if not entry.source:
        return f"# WARNING {entry.name} is left out: the notebook called it by `Mesh.execute`, so that it is no cell"
    return f"# {entry.name} is left out: it failed in the notebook"


def _cell(setting: Setting, entry: Entry, plain: PlainSource, slices: Sequence[tuple[int, ...]]) -> str:
    head = [f"# {entry.name}", *(f"# WARNING {entry.name}: {each}" for each in plain.warnings)]
    return "\n".join([*head, _under(_condition(setting, entry.ranks), _body(setting, entry, plain, slices))])


def _body(setting: Setting, entry: Entry, plain: PlainSource, slices: Sequence[tuple[int, ...]]) -> str:
    text = plain.text
    if not slices:
        return text
    if setting.backend == "none":
        return f"group = None\n{text}"
    group = f"_groups[{entry.ranks}]" if entry.ranks in slices else "dist.group.WORLD"
    return f"group = {group}\n{text}"


def _under(condition: str, text: str) -> str:
    if not condition:
        return text
    is_empty = all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())
    return f"if {condition}:\n{indented(text)}" + ("\n    pass" if is_empty else "")


def _condition(setting: Setting, ranks: Sequence[int]) -> str:
    """What is true on exactly these ranks; empty for all of them."""
    shape = Shape.row_major(setting.axes)
    if len(ranks) == math.prod(setting.axes.values()):
        return ""
    points = [dict(shape.point_of(rank)) for rank in ranks]
    indices = {axis: sorted({point[axis] for point in points}) for axis in setting.axes}
    if math.prod(map(len, indices.values())) != len(ranks):
        return f"rank in {tuple(ranks)}"
    return " and ".join(_terms(setting, indices))


def _terms(setting: Setting, indices: Mapping[str, Sequence[int]]) -> Iterator[str]:
    for axis, found in indices.items():
        if len(found) == 1 and setting.axes[axis] > 1:
            yield f'coord["{axis}"] == {found[0]}'
        elif len(found) < setting.axes[axis]:
            yield f'coord["{axis}"] in {tuple(found)}'
