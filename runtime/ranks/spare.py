"""A spare: the process of a rank that waits, warm, until a rank dies whose place it takes."""

from __future__ import annotations

from ..engines.preload import at_once, import_all
from ..engines.spec import RankSpec, decode_spec
from ..wire.lane import Lane
from ..wire.messages import Become, Warmed


def wait_for_place(spec: RankSpec, data: Lane) -> RankSpec:
    """Import what ranks need, then wait until the controller says which rank to be. Raises `LinkClosed` if it is gone.

    What cannot be imported the rank will tell, when its own cells or options ask for it.
    """
    import_all([*at_once(spec.spare), *(f"{name}?" for name in spec.preload)])
    data.send(Warmed())
    message, _ = data.recv()
    assert isinstance(message, Become), message
    return decode_spec(message.spec)
