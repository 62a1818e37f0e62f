"""What a rank that stopped tells the notebook, and what the notebook may answer. Plain data."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["live", "post-mortem", "inspector", "input", "password"]
"""Why a thread asks: it is stopped in its code; it has failed; it runs on and is only looked at; its code asks."""


class Stop(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A thread of a rank waits for a line from the notebook.

    `talk` numbers the conversation on its rank, `turn` the question in it. `out` is what there is to show first.
    """

    rank: int
    talk: int
    turn: int
    kind: Kind
    prompt: str
    out: str = ""
    place: str = ""
    """Where it stands, in one line: `cell 5 line 2 in forward`."""
    thread: str = ""
    """The name of the thread, if it is not the main one."""


class Went(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """It goes on: the conversation has ended, or pauses until the next stop. `out` is what it said last."""

    rank: int
    talk: int
    out: str = ""
    steps: bool = False
    """Only to the next line, or the end of its function."""


Event = Stop | Went

decode = msgspec.msgpack.Decoder(Event).decode

LEAVE = "\x04"
"""The line that ends a conversation from outside: the thread goes on, and stops no more in this run."""

CANNOT_ASK = "\x15"
"""The line for who asks where nobody can answer."""
