"""Every message that crosses a process, in one tagged union.

A message is a frozen struct; what a user passes or gets back travels beside it as frames (`codec`). The first line of
each says who sends it to whom, and on which lane: *data* is read by the main thread of a rank, *control* by its second
one, also while a cell runs; *zygote* is the socket of the process that forks; *host* is the link to another's agent.
"""

from __future__ import annotations

from typing import TypeGuard

import msgspec

from ..system.proc import Stat
from .tape import Event


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The base of all messages."""


class BlockRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame in shared memory: `length` bytes at `offset` of a segment whose descriptor was passed before."""

    segment: int
    offset: int
    length: int
    id: int


class View(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The slice of a mesh that a call went to, as labels and an n-d slice over base ranks."""

    labels: tuple[str, ...]
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class Segment(Message, frozen=True):
    """Either end to the other, data: here is the descriptor of a region of shared memory, used by later frames."""

    id: int
    size: int


class Dropped(Message, frozen=True):
    """Either end to the other, data: these regions are closed; forget them when nothing uses them any more."""

    segments: tuple[int, ...]


class Released(Message, frozen=True):
    """Either end to the other, data: these blocks of your shared memory are no longer used here."""

    blocks: tuple[int, ...]
    unknown: tuple[int, ...] = ()
    """Segments that could not be taken in, to be announced again."""


class Spawn(Message, frozen=True):
    """Caller to rank, data or control: make an actor; the frames hold class and arguments. Answered by `Reply`.

    `owner` is the actor that made it: mesh, rank, actor. `run` as in `Call`.
    """

    seq: int
    actor: int
    name: str
    view: View
    owner: tuple[int, int, int] = (0, 0, 0)
    run: int = -1


class Call(Message, frozen=True):
    """Caller to rank, data (cells) or control: run an endpoint; the frames hold the arguments. Answered by `Reply`.

    What is printed meanwhile belongs to `run`: the controller's call that the caller works on; -1: to this one.
    """

    seq: int
    actor: int
    endpoint: str
    view: View | None = None
    wants_reply: bool = True
    run: int = -1


class StopActor(Message, frozen=True):
    """Caller to rank, data or control: clean up and forget an actor. Answered by `Reply`."""

    seq: int
    actor: int
    reason: str = ""
    run: int = -1
    """As in `Call`: what is printed meanwhile belongs to it."""


class Connect(Message, frozen=True):
    """Rank to controller, control: I want to talk to this rank directly. Answered by `Peer`, or by `Died`."""

    mesh: int
    rank: int
    is_direct: bool = True
    """Otherwise by way of the controller: this rank had no descriptor left for its end of a link."""


class Peer(Message, frozen=True):
    """Controller to rank, control: your link to this rank, or use `Forwarded`. Then rank to rank: I have my end."""

    mesh: int
    rank: int
    has_link: bool = False
    """Whether the descriptor of one comes along, where the rank has room for it."""


class Forwarded(Message, frozen=True):
    """Rank to controller and controller to rank, control: a datagram for, or of, this rank; `Peer` brought no link."""

    mesh: int
    rank: int


class Died(Message, frozen=True):
    """Controller to rank, control: this rank of a mesh you know is gone, and why; a fault, or taken down."""

    mesh: int
    rank: int
    why: str
    is_fault: bool = True
    has_ended: bool = False
    """Whether the process has: else it may be the rank of another mesh now."""


class Revived(Message, frozen=True):
    """Controller to rank, control: this rank, of which `Died` told, is there again: a new process in its place."""

    mesh: int
    rank: int


class PortSend(Message, frozen=True):
    """Any process to any other, control: a value (the frames) for a port there; `ok` False: it is an exception."""

    port: int
    rank: int
    ok: bool = True


class Fault(Message, frozen=True):
    """Rank to the process of an actor's owner, control: an actor has failed that nobody was waiting for."""

    owner: tuple[int, int, int]
    mesh_name: str
    actor: int
    rank: int
    report: str


class Bye(Message, frozen=True):
    """Controller to rank, control and data, or to agent, host: leave when you have done what was sent before."""


class Ready(Message, frozen=True):
    """Rank to controller, data: I am up, or (`trouble`) why not."""

    pid: int
    trouble: str = ""


class Reply(Message, frozen=True):
    """Rank to controller, data: the answer to call `seq`; the frames hold the result or the `RemoteFailure`."""

    seq: int
    ok: bool = True
    seconds: float = 0.0
    talked: bool = False
    """Whether it said something, which comes first: its pipes are to be read, up to an `end` mark if there is one."""


class Note(Message, frozen=True):
    """Rank to controller, data: something an actor says unasked while it works on call `seq` (a display)."""

    seq: int
    topic: str


Point = tuple[float, float, float]
"""A number that user code has reported: at which step, its value, when (seconds since the epoch)."""


class BarState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far one loop of a rank is; `total` is -1 where it is not known."""

    number: int
    desc: str
    done: int
    total: int
    seconds: float
    """Since it began."""
    is_over: bool = False


class Metered(Message, frozen=True):
    """Rank to controller, control: what user code has reported by `log` and `progress` since the last time, unasked."""

    points: dict[str, tuple[Point, ...]]
    bars: tuple[BarState, ...] = ()


class Interrupt(Message, frozen=True):
    """Controller to rank, control: raise KeyboardInterrupt in call `seq` if that is what you are running.

    Answered by `Answer` with the call that runs (0: none).
    """

    seq: int
    call: int


class Strike(Message, frozen=True):
    """Controller to rank, control: raise KeyboardInterrupt in all that actors do, and refuse what waits for them.

    Answered by `Answer` with the endpoints that were at work, as `trainer.step`.
    """

    seq: int


class Ask(Message, frozen=True):
    """Controller to rank, control: run a control endpoint of an actor, now. Answered by `Answer`."""

    seq: int
    actor: int
    endpoint: str


class Sample(Message, frozen=True):
    """Controller to rank, control: tell where your threads are. Answered by `Answer`, with a `StackSample`."""

    seq: int


class Answer(Message, frozen=True):
    """Rank to controller, control: the answer to `Ask`, `Interrupt`, `Strike` or `Sample`; frames hold the result."""

    seq: int
    ok: bool = True


class Fork(Message, frozen=True):
    """Controller to zygote, zygote: make a rank with the descriptors that come along. Answered by `Forked`."""

    ticket: int
    spec: bytes


class Forked(Message, frozen=True):
    """Zygote to controller, zygote: the process of this ticket, or (`trouble`) why there is none."""

    ticket: int
    pid: int
    trouble: str = ""


class Exited(Message, frozen=True):
    """Zygote to controller, zygote: a process it forked has ended, with this wait status."""

    pid: int
    status: int


class Warm(Message, frozen=True):
    """Zygote to controller, zygote: imports are done (`is_complete`: all), or (`trouble`) why it cannot fork."""

    trouble: str = ""
    is_complete: bool = False


class Warmed(Message, frozen=True):
    """Spare to controller, data: what ranks need is imported; from now on `Become` is heard at once."""


class Become(Message, frozen=True):
    """Controller to spare, data: be the rank of this encoded `RankSpec`."""

    spec: bytes


class Hello(Message, frozen=True):
    """Agent to controller, host: I am there; this is the machine, and what runs on it."""

    host: str
    addr: str
    """Where ranks of other hosts reach ranks of this one."""
    pid: int
    meshbook: str
    python: str
    torch: str
    """Of all three the version; empty where there is none."""
    num_gpus: int


class Beat(Message, frozen=True):
    """Either end to the other, host: I live; an agent also says what it sees of the processes, by crew and rank."""

    stats: dict[int, dict[int, Stat]] = {}
    spares: dict[int, tuple[int, int]] = {}
    """By crew, how many spares wait, and how many of them have done their imports."""


class Hold(Message, frozen=True):
    """Controller to agent, host: keep ports free where the ranks of this crew meet. Answered by `Done` with them."""

    seq: int
    crew: int


class Enlist(Message, frozen=True):
    """Controller to agent, host: start these ranks, encoded `RankSpec`s, of a crew that may be new. Answered by `Done`.

    `how` as in `Engine.spawn`.
    """

    seq: int
    crew: int
    specs: tuple[bytes, ...]
    how: str


class Room(Message, frozen=True):
    """Controller to agent, host: is there room for so many more ranks, and for so many again? Answered by `Done`."""

    seq: int
    more: int
    again: int = 0


class Muster(Message, frozen=True):
    """Controller to agent, host: have so many spares of this crew, like this encoded `RankSpec`. Answered by `Done`."""

    seq: int
    crew: int
    count: int
    spec: bytes


class Renumber(Message, frozen=True):
    """Controller to agent, host: call ranks by other numbers from now on, by their old ones; forget those left out.

    Answered by `Renumbered`.
    """

    crew: int
    numbers: dict[int, int]


class Relay(Message, frozen=True):
    """Controller to agent, host: hand this encoded message, with the frames, to these ranks on one of their lanes."""

    crew: int
    ranks: tuple[int, ...]
    packet: bytes
    is_control: bool


class Kill(Message, frozen=True):
    """Controller to agent, host: end these ranks at once."""

    crew: int
    ranks: tuple[int, ...]


class Look(Message, frozen=True):
    """Controller to agent, host: look at these ranks without their help. Answered by `Done`, with `Glimpse`s."""

    seq: int
    crew: int
    ranks: tuple[int, ...]
    native: bool


class Disband(Message, frozen=True):
    """Controller to agent, host: end all ranks of this crew and forget it. Answered by `Done` when they are gone."""

    seq: int
    crew: int


class Introduce(Message, frozen=True):
    """Controller to agent, host: link two ranks of yours, each given by crew, mesh and rank."""

    one: tuple[int, int, int]
    other: tuple[int, int, int]


class FileMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a file holds, by the SHA-256 of it, and whether it may be run."""

    digest: bytes
    is_executable: bool = False


class Mirror(Message, frozen=True):
    """Controller to agent, host: your copy of this folder of mine is to hold these files, by path in it.

    Answered by `Done`; where that says what it `lacks`, nothing was done yet, and the question is to be put again.
    """

    seq: int
    folder: str
    files: dict[str, FileMark]


class Store(Message, frozen=True):
    """Controller to agent, host: the content (the frame) of files that `Mirror` will name, by its SHA-256."""

    digest: bytes


class Done(Message, frozen=True):
    """Agent to controller, host: what was asked by this number is done, or (`trouble`) why not."""

    seq: int
    trouble: str = ""
    ports: tuple[int, int] = (0, 0)
    lacks: tuple[bytes, ...] = ()


class Renumbered(Message, frozen=True):
    """Agent to controller, host: what follows names the ranks of this crew as `Renumber` said."""

    crew: int


class Heard(Message, frozen=True):
    """Agent to controller, host: a rank said this encoded message, with the frames."""

    crew: int
    rank: int
    packet: bytes


class Replies(Message, frozen=True):
    """Agent to controller, host: these ranks have answered call `seq`, all well; equal answers have one frame.

    Of each rank the number of its frame, and what else its `Reply` says.
    """

    crew: int
    seq: int
    ranks: tuple[int, ...]
    bodies: tuple[int, ...]
    seconds: tuple[float, ...]
    talked: tuple[bool, ...]


class Said(Message, frozen=True):
    """Agent to controller, host: a rank printed these events (`tape`)."""

    crew: int
    rank: int
    events: tuple[Event, ...]


class Gone(Message, frozen=True):
    """Agent to controller, host: a rank has ended, as in `engines.base.Exit`."""

    crew: int
    rank: int
    code: int | None
    signum: int | None
    why: str


# A line each would be half a screen.
# fmt: off
AnyMessage = (
    Segment | Dropped | Released | Spawn | Call | StopActor | Connect | Peer | Forwarded | Died | Revived | PortSend
    | Fault | Bye | Ready | Reply | Note | Metered | Interrupt | Strike | Ask | Sample | Answer | Fork | Forked | Exited
    | Warm | Warmed | Become | Hello | Beat | Hold | Enlist | Room | Muster | Renumber | Relay | Kill | Look | Disband
    | Introduce | Mirror | Store | Done | Renumbered | Heard | Replies | Said | Gone
)
# fmt: on


def wants_reply(message: AnyMessage) -> TypeGuard[Spawn | Call | StopActor]:
    """Whether a rank answers this on its data lane, by a `Reply` of the same number."""
    return message.wants_reply if isinstance(message, Call) else isinstance(message, Spawn | StopActor)


class Packet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What stands at the head of every datagram: the message, and of each frame its length or where it lies."""

    message: AnyMessage
    frames: tuple[int | BlockRef, ...] = ()


decoder = msgspec.msgpack.Decoder(Packet)
