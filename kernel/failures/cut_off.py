"""Failures that are another rank's: a collective whose peer has died raises on those that were connected to it."""

from __future__ import annotations

import re

from ...runtime.cut_off import lost_peer
from ..outcome import Failure

NO_STORE = "which serves their store, does not answer"
"""What a rank says instead of its slice's group when the store's rank has died while the group was made."""

_COMMUNICATES = re.compile(r"/torch/(distributed/|nn/parallel/distributed\.py|autograd/graph\.py|_ops\.py)")
"""Files of torch in which collectives raise: DDP's do in `backward`, functional ones in an operator."""


_TORN = re.compile(rb"gloo/transport/|Application timeout caused pair closure")


def is_torn(outcome: bytes) -> bool:
    """Whether gloo has given up a connection, as one of its time limits is over or the other end did so before.

    Also where that is the cause of what was raised: the connection is of no use any more in any case.
    """
    return _TORN.search(outcome) is not None


def is_cut_off(failure: Failure) -> bool:
    """Whether a rank failed because another one, to which it was connected, has gone.

    Example:
        >>> from meshbook.kernel.outcome import Frame
        >>> where = Frame("/lib/torch/distributed/distributed_c10d.py", 3169, "all_reduce", "work.wait()", False)
        >>> said = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]"
        >>> is_cut_off(Failure("RuntimeError", said, (where,), "")), is_cut_off(Failure("RuntimeError", said, (), ""))
        (True, False)
    """
    if NO_STORE in failure.message:  # torch puts the name of the group it was given into an error of its own
        return True
    if not lost_peer(failure.type_name, failure.message):
        return False
    return bool(failure.frames) and bool(_COMMUNICATES.search(failure.frames[-1].file))
