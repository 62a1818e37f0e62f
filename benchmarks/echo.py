"""An actor that answers what it is asked. Every rank imports this file, so it imports little else."""

from __future__ import annotations

import socket
from typing import Any

from meshbook.runtime.actor import Actor, endpoint


class Echo(Actor):
    @endpoint
    def echo(self, value: int) -> int:
        return value

    @endpoint
    def length(self, value: bytes) -> int:
        return len(value)

    @endpoint
    def ends(self, tensor: Any) -> float:
        """The first and the last number of a tensor, added."""
        return float(tensor[0] + tensor[-1])


class Lender(Actor):
    @endpoint
    def lend(self, nbytes: int) -> Any:
        """A buffer of so many bytes."""
        import torch

        from meshbook.runtime.rdma import RDMABuffer

        return RDMABuffer(torch.zeros(nbytes, dtype=torch.uint8))


class Bare(Actor):
    @endpoint
    def serve(self, path: str) -> None:
        """Send back whatever comes over a socket, without any of meshbook, until it is closed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(path)
            room = bytearray(65536)
            view = memoryview(room)
            while size := sock.recv_into(room):
                sock.send(view[:size])
