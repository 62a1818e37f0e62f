"""The collectives that this rank has issued, as PyTorch's Flight Recorder wrote them down.

The recorder is part of torch: with `TORCH_FR_BUFFER_SIZE` it keeps the last collectives of gloo and NCCL in a ring,
and any thread may dump it, also while the main thread is stuck in one of them. What dumps it and what knows the
groups are private names of torch; they stand here and nowhere else. Where they are missing, a plain count is left.

Not recorded by torch 2.13: gloo's `monitored_barrier`, `send` and `recv`, of which `waits` knows those that somebody
waits in. What NCCL's recorder dumps is taken to have the form that torch's own analysis of such dumps reads; no GPU was
there to try it on.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from traceback import walk_stack
from types import FrameType
from typing import Any

import msgspec

from ..ranks.users import is_users
from . import renewal, waits

BUFFER_SIZE = 256
"""Collectives that a rank remembers; torch's own 2,000 take 2 MB a rank more, and ten times as long to dump."""

_SIZE_NAMES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")
"""The first has what runs on CPUs, the second (in builds with CUDA) what NCCL runs."""

_FACE = "distributed_c10d.py"

_IN_C = (("autograd/graph.py", "_engine_run_backward"), ("_functional_collectives.py", "wait_tensor"))
"""Functions of torch, each with the end of its file, below which a wait in C++ is seen by nobody."""
"""The file of torch's own functions that users call: `all_reduce`, `all_gather_object`."""

_MAIN = "ranks/mailbox.py"
"""The file of ours from which all is called that runs on the main thread."""


class Group(msgspec.Struct, frozen=True):
    """A process group as one rank knows it. The same group has the same name and ranks on all its ranks."""

    name: str
    backend: str
    about: str = ""
    """What its maker called it; `default_pg` is the default group."""
    ranks: tuple[int, ...] | None = None
    """Its members, as ranks of the mesh; None where that is not known."""
    num_issued: int = -1
    """Operations that this rank has issued in it, sends among them; -1 where that is not known."""


class Entry(msgspec.Struct, frozen=True):
    """One collective that one rank issued."""

    group: int
    """Its place in `RankLedger.groups`."""
    number: int
    """Counted in its group from 1; the same on all ranks that are in step."""
    op: str
    """As torch recorded it: `all_gather`."""
    call: str
    """The function that the user's line called: `all_gather_object`."""
    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    is_open: bool
    """Issued and not complete: this rank waits for others, or has left the collective open behind it."""
    seconds: float
    """Since it was issued."""
    file: str
    """The user's innermost frame, a cell or a file; empty if there is none."""
    line: int
    on_main: bool = False
    """Issued on the main thread, where cells run; actors have others."""


class Exchange(msgspec.Struct, frozen=True):
    """A rank waits for one other, which is to send something or to take it, or for all in a `monitored_barrier`."""

    call: str
    """The function of torch: `send`, `recv`, `monitored_barrier`."""
    peers: tuple[int, ...]
    """The others, as ranks of the mesh; none where they are not known."""
    seconds: float
    file: str
    """The user's innermost frame, a cell or a file; empty if there is none."""
    line: int


class RankLedger(msgspec.Struct, frozen=True):
    """What one rank has issued, the oldest first."""

    groups: tuple[Group, ...] = ()
    """Those that it has used, and behind them those that it has made and not used."""
    entries: tuple[Entry, ...] = ()
    is_recorded: bool = True
    """False where this torch keeps no record that can be read: only `Group.num_issued` counts then."""
    is_whole: bool = True
    """False if older entries were dropped."""
    exchanges: tuple[Exchange, ...] = ()
    """What its threads wait in now that is not recorded."""
    read_at: float = 0.0
    """When it was read, in seconds since 1970 by the clock of its host: `Entry.seconds` are counted back from there."""
    generation: int = 0
    """How often the groups had been made anew: a rank that was busy meanwhile may have those of before still."""


class Waiting(msgspec.Struct, frozen=True):
    """What a rank waits in for others."""

    call: str
    """The function of torch that was called: `all_reduce`, `new_group`."""
    ranks: tuple[int, ...] | None = None
    """Whom it is of; None where that is not known."""


_groups_since = 0
"""When the last default group ended, in nanoseconds since 1970; a group made later may have the same name again."""


def enable() -> None:
    """Let torch record the collectives of this process; before its first group. What the user has set stays."""
    if not any(name in os.environ for name in _SIZE_NAMES):
        os.environ[_SIZE_NAMES[0]] = str(BUFFER_SIZE)


def forget() -> None:
    """All groups were destroyed: what was issued in them is of no interest any more."""
    global _groups_since
    _groups_since = time.time_ns()


def read(limit: int = BUFFER_SIZE, generation: int = 0) -> RankLedger:
    """The last `limit` collectives of this process, from any thread. About 3 ms for 256 entries."""
    return msgspec.structs.replace(_recorded(limit), exchanges=tuple(_exchanges()), generation=generation)


def _exchanges() -> Iterator[Exchange]:
    now, frames = time.monotonic(), sys._current_frames()  # pyright: ignore[reportPrivateUsage] - it is documented
    for thread, wait in waits.exchanges().items():
        stack = walk_stack(frames[thread]) if thread in frames else ()
        places = ((frame.f_code.co_filename, line) for frame, line in stack)
        file, line = next((place for place in places if is_users(place[0])), ("", 0))
        yield Exchange(wait.call, wait.peers, now - wait.since, file, line)


def _recorded(limit: int) -> RankLedger:
    groups = _living_groups()
    if not groups:
        return RankLedger()
    if _is_off() or not _dump_functions():
        return RankLedger(tuple(groups), is_recorded=False)
    try:
        records = [record for dump in _dumps() for record in dump.get("entries", ())]
        return _ledger_of(records, groups, limit)
    except (KeyError, TypeError, ValueError):  # a torch whose records have another form
        return RankLedger(tuple(groups), is_recorded=False)


def waits_in() -> Waiting | None:
    """What a thread of this process waits in for other ranks, if one does: a collective, or groups that are made."""
    ledger = read()
    for entry in ledger.entries:
        if entry.is_open:
            return Waiting(entry.call, ledger.groups[entry.group].ranks)
    for frame in sys._current_frames().values():  # pyright: ignore[reportPrivateUsage] - it is documented
        if call := _face_of(frame):
            return Waiting(call)
    return None


def blocked_in(thread: int) -> str:
    """The function of torch in which this thread waits for other ranks; empty if it works.

    Where an operation of a GPU is open any line of the thread may wait for that: it counts.
    """
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage] - it is documented
    if call := waits.own(thread) or _face_of(frame):
        return call
    ledger = read()
    of_gpus = (each for each in ledger.entries if ledger.groups[each.group].backend == "nccl")
    return next((each.call for each in of_gpus if each.is_open), "")


def is_held_up(thread: int) -> bool:
    """Whether this thread goes on only when a collective ends: it waits in one, or in what torch does with gradients.

    Who has issued one with `async_op=True`, or on a GPU, and does something else meanwhile is not.
    """
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage] - it is documented
    if waits.own(thread) or _face_of(frame):
        return True
    stack = walk_stack(frame) if frame is not None else ()
    codes = [each.f_code for each, _ in stack]
    return any(code.co_name == name and code.co_filename.endswith(file) for code in codes for file, name in _IN_C)


def _face_of(frame: FrameType | None) -> str:
    """The function of `torch.distributed` that user code has called there, if it is in one."""
    stack = walk_stack(frame) if frame is not None else ()  # else it walks ours
    names = [each.f_code.co_name for each, _ in stack if each.f_code.co_filename.endswith(_FACE)]
    return names[-1] if names else ""


def _ledger_of(records: Sequence[dict[str, Any]], living: Sequence[Group], limit: int) -> RankLedger:
    now = time.time_ns()
    by_name = {group.name: group for group in living}
    newest = {_key(record): record["pg_id"] for record in records}
    kept: list[dict[str, Any]] = []
    for record in records:
        key = _key(record)
        # A name may also be that of a group destroyed since: of what remains, the last one is the living one.
        is_old = record["time_created_ns"] < _groups_since or record["pg_id"] != newest[key]
        if not (is_old or record.get("is_p2p") or key[0] not in by_name):
            kept.append(record)
    places: dict[tuple[str, str], int] = {}
    entries = [_entry(each, places.setdefault(_key(each), len(places)), now) for each in kept[-limit:]]
    groups = [msgspec.structs.replace(by_name[name], backend=backend) for name, backend in places]
    groups += [group for group in living if group.name not in {name for name, _ in places}]
    is_whole = len(kept) <= limit and not any(own[0]["record_id"] for own in _by_backend(records))
    return RankLedger(tuple(groups), tuple(entries), is_whole=is_whole, read_at=now / 1e9)


def _key(record: dict[str, Any]) -> tuple[str, str]:
    """Name and backend: a group may have one for CPUs and one for GPUs, each of which counts for itself."""
    return record["process_group"][0], record["profiling_name"].partition(":")[0]


def _by_backend(records: Sequence[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(_key(record)[1], []).append(record)
    return found.values()


def _entry(record: dict[str, Any], group: int, now: int) -> Entry:
    op = record["profiling_name"].partition(":")[2]
    call, file, line = _place(record["frames"])
    return Entry(
        group=group,
        number=record["collective_seq_id"],
        op=op,
        call=call or op,
        sizes=tuple(map(tuple, record["input_sizes"])),
        dtypes=tuple(record["input_dtypes"]),
        is_open=not record["retired"] and record["state"] != "completed",
        seconds=max(now - record["time_created_ns"], 0) / 1e9,
        file=file,
        line=line,
        on_main=any(frame["filename"].endswith(_MAIN) for frame in record["frames"]),
    )


def _place(frames: Sequence[dict[str, Any]]) -> tuple[str, str, int]:
    """The function of torch that was called, and the file and line that called it; frames go from the inside out."""
    call = ""
    for frame in frames:
        file = frame["filename"]
        if is_users(file):
            return call, file, int(frame["line"])
        if file.endswith(_FACE) and not frame["name"].startswith("_"):
            call = frame["name"]
    return call, "", 0


def _living_groups() -> list[Group]:
    """The groups of this process; backends are not known here."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    found: list[Group] = []
    for group in list(getattr(getattr(c10d, "_world", None), "pg_map", ())):
        with contextlib.suppress(KeyError, ValueError):  # the main thread has destroyed it meanwhile
            found.append(_group_of(c10d, group))
    return found


def _group_of(c10d: Any, group: Any) -> Group:
    try:
        num_issued = renewal.num_issued(group)
    except RuntimeError:  # not every backend counts
        num_issued = -1
    about = getattr(group, "group_desc", "")
    ranks = tuple(c10d.get_process_group_ranks(group))
    return Group(group.group_name, "", "" if about == "undefined" else about, ranks, num_issued)


def _is_off() -> bool:
    return next((os.environ[name] for name in _SIZE_NAMES if name in os.environ), "") == "0"


def _dump_functions() -> list[Callable[[], bytes]]:
    module = sys.modules.get("torch._C._distributed_c10d")
    return [getattr(module, name) for name in _DUMPS if hasattr(module, name)]


def _dumps() -> Iterator[dict[str, Any]]:
    with _without_lazy_inductor():
        dumped = [dump() for dump in _dump_functions()]
    yield from map(pickle.loads, dumped)


@contextlib.contextmanager
def _without_lazy_inductor() -> Generator[None]:
    """Keep torch from importing its compiler, only to ask it for names of generated code.

    The dump looks at `torch._inductor`, which imports it: measured 0.9 s at best, and 70 MB, for what else takes 1 ms.
    """
    torch: Any = sys.modules.get("torch")
    lazy: Any = getattr(torch, "_lazy_modules", None)
    if lazy is None or "_inductor" not in lazy or "_inductor" in vars(torch):
        yield
        return
    lazy.discard("_inductor")
    try:
        yield
    finally:
        lazy.add("_inductor")
