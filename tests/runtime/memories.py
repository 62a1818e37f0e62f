"""Actors that have memory which others reach, and such that reach it. Ranks import this file by name."""

from __future__ import annotations

from typing import Any

from meshbook.runtime import Actor, endpoint
from meshbook.runtime.channel import Channel, Port
from meshbook.runtime.rdma import RDMABuffer


class Owner(Actor):
    """Has bytes, and is often busy."""

    @endpoint
    def lend(self, data: bytes) -> RDMABuffer:
        self.memory = bytearray(data)
        self.buffer = RDMABuffer(memoryview(self.memory))
        return self.buffer

    @endpoint
    def look(self) -> bytes:
        return bytes(self.memory)

    @endpoint
    def change(self, byte: int) -> None:
        self.memory[:] = bytes([byte]) * len(self.memory)

    @endpoint
    def hold(self, started: Port[Port[str]]) -> str:
        """Work until it is let go."""
        go, gone = Channel[str].open()
        started.send(go)
        return gone.recv().get(30)

    @endpoint
    def drop(self) -> None:
        self.buffer.drop().get(10)


class Reader(Actor):
    @endpoint
    def read(self, buffer: RDMABuffer, room: int) -> bytes:
        memory = bytearray(room)
        buffer.read_into(memoryview(memory)).get(30)
        return bytes(memory)

    @endpoint
    def write(self, buffer: RDMABuffer, data: bytes) -> None:
        buffer.write_from(memoryview(data)).get(30)

    @endpoint
    def tensor(self, buffer: RDMABuffer, dtype: str, size: int) -> Any:
        import torch

        tensor = torch.zeros(size, dtype=getattr(torch, dtype))
        buffer.read_into(tensor).get(30)
        return tensor
