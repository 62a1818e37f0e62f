"""An actor that answers what it is asked. Every rank imports this file, so it imports nothing else."""

from __future__ import annotations

from meshbook.runtime.actor import Actor, endpoint


class Echo(Actor):
    @endpoint
    def echo(self, value: int) -> int:
        return value
