"""What the same trivial work takes in a notebook that uses another tool: a cell, or the nearest thing that it has.

Each tool has a kernel of its own, and takes turns with a plain cell of it. What is not installed is passed over:
none of them is needed for anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from cell import shown
from front_end import Notebook
from measure import Row, check, medians, seconds_text

SIZES = 4, 8


class Peer(NamedTuple):
    """A tool, and the cells that make so many processes work for it; `{n}` is their number."""

    name: str
    module: str
    setup: tuple[str, ...]
    """Make them, and wait until they are there."""
    work: str
    """Each of them evaluates `1`, and the cell shows what came."""
    end: str = "pass"


ACTORS = """
from monarch.actor import Actor, endpoint, this_host
class One(Actor):
    @endpoint
    def one(self):
        return 1
ones = this_host().spawn_procs(per_host={{"gpus": {n}}}).spawn("ones", One)
ones.one.call().get()
"""

RAY = """
import logging, ray
ray.init(num_cpus={n}, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
@ray.remote
class One:
    def one(self):
        return 1
ones = [One.remote() for _ in range({n})]
ray.get([each.one.remote() for each in ones])
"""

DASK = """
from distributed import Client
client = Client(n_workers={n}, threads_per_worker=1, dashboard_address=None)
client.wait_for_workers({n})
"""

IPYPARALLEL = """
import ipyparallel
client = ipyparallel.Cluster(n={n}, log_level=40).start_and_connect_sync()
client[:].activate()
"""

OURS = Peer("meshbook, %%on_mesh", "meshbook", ("%load_ext meshbook", "%mesh up m dp={n}"), "%%on_mesh\n1")

PEERS = (
    Peer("Monarch, call of an actor", "monarch", (ACTORS,), "ones.one.call().get()"),
    Peer("Ray, get of actors", "ray", (RAY,), "ray.get([each.one.remote() for each in ones])", "ray.shutdown()"),
    Peer("Dask, client.run", "distributed", (DASK,), "client.run(lambda: 1)", "client.shutdown()"),
    Peer("ipyparallel, %%px", "ipyparallel", (IPYPARALLEL,), "%%px\n1", "client.shutdown(hub=True)"),
)


def measure(is_quick: bool) -> Iterator[Row]:
    present = [peer for peer in PEERS if find_spec(peer.module) is not None]
    for size in SIZES:
        ours = more_than_plain(OURS, size, is_quick)
        yield Row(f"{OURS.name}, {size} ranks", seconds_text(ours), "over a plain cell", ours * 1e3, "ms more")
        for peer in present:
            theirs = more_than_plain(peer, size, is_quick)
            yield Row(f"{peer.name}, {size}", "", f"{seconds_text(theirs)} over a plain cell", theirs / ours, "x ours")


def more_than_plain(peer: Peer, size: int, is_quick: bool) -> float:
    """The seconds that a cell takes more than a plain one in the same kernel."""
    with Notebook() as notebook:
        for cell in peer.setup:
            notebook.execute(cell.format(n=size))
        works = {"plain": lambda: shown(notebook, "1"), "theirs": lambda: answered(notebook, peer.work)}
        medians(5, works)
        times = medians(20 if is_quick else 100, works)
        notebook.execute(peer.end)
    return times["theirs"] - times["plain"]


def answered(notebook: Notebook, code: str) -> float:
    done = notebook.execute(code)
    check(bool(done.shown or done.text), f"{code} showed nothing")
    return done.seconds
