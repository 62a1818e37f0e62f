"""An actor that starts processes from the host it lives on. Ranks import this file by name."""

from __future__ import annotations

import importlib
from typing import Any

import psutil

from meshbook.runtime import Actor, attach_to_workers, endpoint, this_host
from tests.runtime.troupe import Diary


class Guest(Actor):
    """Starts processes from a host where it is one itself; says which agents they belong to."""

    @endpoint
    def hosts_here(self) -> list[int]:
        return self.started_on(this_host())

    @endpoint
    def hosts_on(self, hosts: Any) -> list[int]:
        return self.started_on(hosts)

    @endpoint
    def host_here(self) -> Any:
        return this_host()

    @endpoint
    def host_of(self, procs: Any) -> Any:
        return procs.host_mesh

    @endpoint
    def keep_on(self, hosts: Any) -> Any:
        self.kept = hosts.spawn_procs({"gpus": 1})
        return self.kept.spawn("diary", Diary)

    @endpoint
    def host_of_kept(self) -> Any:
        return self.kept.slice(hosts=0, gpus=0).host_mesh

    @endpoint
    def module(self, name: str) -> tuple[str, int]:
        found = importlib.import_module(name)
        return str(found.__file__), found.VALUE

    @endpoint
    def stop_kept(self) -> None:
        self.kept.stop().get()

    @endpoint
    def attach(self, workers: list[str]) -> Any:
        return attach_to_workers(ca="trust_all_connections", workers=workers)

    def started_on(self, hosts: Any) -> list[int]:
        with hosts.spawn_procs({"gpus": 1}) as procs:
            pids = procs.spawn("diary", Diary).pid.call().get(20).values()
            return [psutil.Process(psutil.Process(pid).ppid()).ppid() for pid in pids]

    @endpoint
    def tell(self, counters: Any) -> None:
        counters.add.broadcast(1)
