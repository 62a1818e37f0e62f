"""A rank process from its first line to its last: forked from the zygote, or started by `python -m` of this module."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import sys
import threading

from .. import numbers
from ..engines.preload import import_named
from ..engines.spec import UNLESS_SAID, RankFds, RankSpec, decode_spec
from ..groups import ledger, models, nccl, optimizers, stores, waits
from ..groups.group_plan import GroupPlan
from ..groups.groups import Groups
from ..system.aliases import assume
from ..system.binding import bind
from ..system.inherited import plain_signals
from ..wire.awake import has_room
from ..wire.lane import Lane
from ..wire.link import Address, Link, PairLink
from ..wire.messages import Ready
from ..wire.pool import Pool
from ..wire.reactor import Reactor, contained
from . import (
    children,
    dumps,
    first_stop,
    handlers,
    leaving,
    lifeline,
    os_system,
    printed_stacks,
    seed,
    spawning,
    steward,
    swallowed,
    thread_ends,
    trackers,
)
from .cleanup import HEARING, PATIENCE
from .control import Control
from .imports import when_imported
from .interrupts import Interrupts
from .mailbox import Mailbox
from .outpost import Outpost
from .place import Place, enter
from .spare import wait_for_place
from .streams import Streams
from .title import take_title
from .visits import Visits


@functools.cache  # to look again whether it was done is to copy pages of who has forked us
def warm() -> None:
    """What is alike on all ranks: done before they are forked, it is not copied into each of them."""
    models.watch()
    optimizers.watch()
    printed_stacks.install()
    thread_ends.install()
    spawning.install()
    when_imported("torch", waits.install)
    when_imported("torch", stores.install)


def main(spec: RankSpec, fds: RankFds) -> None:
    """Be the rank that `spec` describes until the controller says goodbye or is gone."""
    warm()
    _detach(fds.lifeline)
    streams = Streams(spec.token, fds.out, fds.err)
    streams.install()
    _take_environment(spec)
    interrupts = _stand_guard()
    pool = Pool() if Pool.available() else None
    data = Lane(_link(fds.data, spec.data), pool, "data")
    control = Lane(_link(fds.control, spec.control), pool, "control")
    if spec.spare:
        spec = wait_for_place(spec, data)
        _take_environment(spec)
    numbers.join(spec.mesh)
    trouble = _bind(spec)
    groups = Groups(_group_plan(spec, fds))
    place = Place(spec.rank, spec.world_size, spec.local_rank, spec.axes, spec.device, groups)
    enter(place)
    take_title(place)
    place.visits = Visits(interrupts, lambda: not control.is_sending_here())
    place.visits.install()
    handlers.install(interrupts)
    outpost = _outpost(spec, place, control, pool, streams)
    mailbox = Mailbox(spec.mesh, place, data, streams, interrupts)
    place.movers += [outpost.move, mailbox.move]
    first_stop.install(place)
    mailbox.settle(numbers.STEWARD, "steward", steward.Steward(place))
    answering = Control(control, outpost.intake, mailbox, interrupts, outpost.strike, outpost.on_control, _die)
    threading.Thread(target=answering.run, name="meshbook-control", daemon=True).start()
    trouble = trouble or _prepare(spec, groups)
    outpost.release()
    data.send(Ready(os.getpid(), trouble))
    if not mailbox.run():
        _die()  # at once: one that left in good order might be gone, with its lifeline, before its children are ended
    outpost.has_heard_all.wait(HEARING)
    outpost.close(PATIENCE)
    place.leave()
    _leave(groups, streams)
    data.close()  # returns when the controller has, or can get, all that was sent


def _detach(lifeline_fd: int) -> None:
    """A session of its own, so that no terminal and no signal to the kernel's process group reaches the rank."""
    with contextlib.suppress(PermissionError):  # started by exec, it leads one already
        os.setsid()
    lifeline.arm(lifeline_fd)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _take_environment(spec: RankSpec) -> None:
    env = UNLESS_SAID | spec.env
    # Most is as the zygote has it: each assignment would copy pages of it.
    for name in [name for name in os.environ if name not in env]:
        del os.environ[name]
    os.environ.update({name: value for name, value in env.items() if os.environ.get(name) != value})
    os.chdir(spec.cwd)
    sys.path[:] = spec.path
    assume(spec.names)
    sys.argv[:] = [""]


def _stand_guard() -> Interrupts:
    """From here on a signal, a fork, a crash or an exit of user code meets somebody who knows what it means."""
    dumps.install()
    interrupts = Interrupts()
    interrupts.install()
    swallowed.install(interrupts)
    os_system.install(interrupts)
    children.note_rank()
    trackers.install()
    leaving.install(lambda: interrupts.running)
    return interrupts


def _outpost(spec: RankSpec, place: Place, control: Lane, pool: Pool | None, streams: Streams) -> Outpost:
    """The node of this rank, which holds calls back until the rank is ready."""
    outpost = Outpost(
        spec.mesh,
        place,
        Reactor(),
        control,
        pool,
        streams,
        spec.site,
        has_bootstrap=spec.has_bootstrap,
        stays_awake=has_room(spec.local_world_size),
    )
    outpost.host_addr = spec.host_addr
    outpost.patience = PATIENCE if spec.generation else None
    outpost.settle_here()
    outpost.hold()
    return outpost


def _bind(spec: RankSpec) -> str:
    """Bind what will be all threads of this rank; what is in the way, in one line, or nothing."""
    try:
        bind(spec.binding)
    except (ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _link(fd: int, address: Address | None) -> Link:
    if address is None:
        return PairLink(socket.socket(fileno=fd))
    from ..wire.zmq_link import ZmqLink  # only where it is used: it loads a library

    return ZmqLink(address)


def _group_plan(spec: RankSpec, fds: RankFds) -> GroupPlan:
    return GroupPlan(
        rank=spec.rank,
        world_size=spec.world_size,
        axes=spec.axes,
        backend=spec.backend,
        device=spec.device,
        master_addr=spec.master_addr,
        master_port=spec.master_port,
        host_addr=spec.host_addr,
        listen_fd=fds.listen if fds.listen >= 0 else None,
        generation=spec.generation,
    )


def _prepare(spec: RankSpec, groups: Groups) -> str:
    """Bring torch into the state a rank wants; what went wrong, in one line, or nothing."""
    ledger.enable()
    if spec.device.startswith("cuda"):
        nccl.settle(spec.shared_gpus > 0)
    try:
        for name in spec.preload:
            import_named(name)
        seed.prepare_torch(1 if spec.binding else spec.local_world_size, spec.rank, spec.env)
        if spec.device.startswith("cuda"):
            when_imported("torch", lambda: sys.modules["torch"].cuda.set_device(spec.device))
        groups.start()
    except Exception as error:  # noqa: BLE001 - the rim: `up` tells it in the notebook
        return f"{type(error).__name__}: {error}"
    return ""


def _leave(groups: Groups, streams: Streams) -> None:
    groups.close()
    _forsake_compilers()
    _run_exit_functions()
    streams.flush()


def _run_exit_functions() -> None:
    """What Python does as it ends: a forked child leaves by `_exit`, which skips it.

    Pools of processes let their workers go first, in functions that `threading` keeps; `multiprocessing` would wait for
    these workers for ever. Pools of threads wait for what they are at, and it is no more than a thread, which may go on
    between cells: that ends with us.
    """
    for call in reversed(getattr(threading, "_threading_atexits", ())):
        if getattr(call, "func", call).__module__ != "concurrent.futures.thread":
            contained(call)
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]


def _forsake_compilers() -> None:
    """Let torch not wait for its compile workers: with 16 it takes 2 s, and the agent ends our process group anyway."""
    for pool in getattr(sys.modules.get("torch._inductor.async_compile"), "_pool_set", ()):
        if isinstance(getattr(pool, "running", None), bool):
            pool.running = False  # `shutdown` does nothing then


def _die() -> None:
    """The controller is gone: so are we, with all children that stayed in our process group."""
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    plain_signals()
    birth = decode_spec(sys.stdin.buffer.read())
    main(birth, RankFds.of(birth, [int(fd) for fd in sys.argv[1:]]))
    sys.stdout.flush()
    os._exit(0)
