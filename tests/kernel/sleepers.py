"""Actors that sleep, for tests of who looks where they are."""

from __future__ import annotations

import asyncio
import re
import time

from meshbook.runtime.actor import Actor, endpoint


class Sync(Actor):
    @endpoint
    def nap(self) -> None:
        time.sleep(60)

    @endpoint
    def hold(self) -> None:
        re.match("(a+)+$", "a" * 60 + "b")  # for hours, with the GIL


class Async(Actor):
    @endpoint
    async def nap(self) -> None:
        await asyncio.sleep(60)
