"""What an agent on another host is started with: where its controller is, and the keys that prove who they are.

It travels in the environment of the launcher (`VARIABLE`) or through its standard input, never on a command line, which
everybody on a machine can read.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping

import msgspec

from ..wire.link import Address

VARIABLE = "MESHBOOK_SUMMONS"

INDICES = ("MESHBOOK_HOST_INDEX", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
"""Variables that say which of the hosts this is, where one launcher starts all agents; the first that is set."""


class Summons(msgspec.Struct, frozen=True):
    """The word to one agent, or to all that one launcher starts: each then takes the address of its own index."""

    addresses: tuple[Address, ...]
    modules: tuple[str, ...] = ()
    """What the zygote of the host imports."""
    keep: float = 0.0
    """Seconds that agents wait for another controller when theirs is gone."""

    def text(self) -> str:
        """One line of ASCII."""
        return base64.b64encode(msgspec.msgpack.encode(self)).decode()

    @classmethod
    def read(cls, text: str) -> Summons:
        """What `text` gave. Raises `ValueError` for anything else."""
        try:
            return msgspec.msgpack.decode(base64.b64decode(text, validate=True), type=cls)
        except (ValueError, msgspec.MsgspecError) as error:
            raise ValueError(f"this is no summons of a controller: {error}") from error

    def address(self, env: Mapping[str, str] = os.environ) -> Address:
        """That of this host.

        Raises `ValueError` where nothing says which one it is.

        Example:
            >>> two = Summons((Address("tcp://a:1", b"x"), Address("tcp://a:1", b"y")))
            >>> two.address({"SLURM_PROCID": "1"}).id
            b'y'
        """
        if len(self.addresses) == 1:
            return self.addresses[0]
        index = next((env[name] for name in INDICES if name in env), "")
        if not index.isdecimal() or int(index) >= len(self.addresses):
            said = f"{index!r} is no host" if index else f"none of {', '.join(INDICES)} is set"
            raise ValueError(f"which of {len(self.addresses)} hosts is this? {said}")
        return self.addresses[int(index)]
