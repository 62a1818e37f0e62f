"""Waiting in torch's stores, which a signal interrupts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from meshbook.kernel.mesh import Mesh
from meshbook.kernel.outcome import Outcome
from tests.kernel.cells import ran, until_at, values

pytestmark = [pytest.mark.slow, pytest.mark.real]

SETUP = """
import socket, threading, torch.distributed as dist
from datetime import timedelta
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]  # at which nobody listens
store = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=timedelta(seconds=60))

def told(use):
    try:
        return use()
    except dist.DistStoreError as error:
        return str(error)
"""


@pytest.fixture(scope="module")
def mesh(engine: str) -> Iterator[Mesh]:
    with Mesh.up("stores", {"dp": 1}, engine=engine, path=sys.path) as mesh:
        assert not ran(mesh, SETUP).progress.failed
        yield mesh


@pytest.fixture(autouse=True)
def shared(leaks: Any) -> Iterator[None]:
    yield
    leaks.allow_what_stands()


@pytest.mark.parametrize(
    "wait",
    [
        "dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=1, world_size=2)",
        "dist.TCPStore('127.0.0.1', 0, 2, True)",
        "store.get('nowhere')",
        "dist.PrefixStore('in', store).wait(['nowhere'], timedelta(seconds=60))",
    ],
    ids=["nobody serves it", "nobody joins it", "get", "wait"],
)
def test_a_stop_ends_it_and_the_rank_keeps_its_state(mesh: Mesh, wait: str) -> None:
    """It ended with the rank only, or after the timeout of a group: days."""
    run = mesh.run(f"kept = 1\n{wait}", name="cell 1")
    until_at(mesh, "cell 1 line 2", [0])
    mesh.interrupt([0], run.call)
    run.finished.get(20)
    failure = msgspec.msgpack.decode(run.progress.outcomes[0], type=Outcome).failure
    assert failure is not None and failure.type_name == "KeyboardInterrupt"
    assert values(mesh, "kept, store.num_keys()")[0].startswith("(1, ")


def test_a_key_is_there_as_soon_as_it_is_set(mesh: Mesh) -> None:
    late = (
        "threading.Timer(0.05, lambda: store.clone().set('late', 'x')).start()\nstore.get('late'), store.wait(['late'])"
    )
    assert values(mesh, late) == ["(b'x', None)"]


@pytest.mark.parametrize("use", ["wait(['nowhere'], timedelta(seconds=0.05))", "wait(['nowhere'])", "get('nowhere')"])
def test_what_does_not_come_is_told_as_torch_does(mesh: Mesh, use: str) -> None:
    cell = f"brief = store.clone()\nbrief.set_timeout(timedelta(seconds=0.05))\ntold(lambda: brief.{use})"
    assert values(mesh, cell) == ["'wait timeout after 50ms, keys: /nowhere'"]


def test_other_threads_wait_as_before(mesh: Mesh) -> None:
    cell = (
        "found = []\nother = store.clone()\n"
        "thread = threading.Thread(target=lambda: (other.wait(['other']), found.append(other.get('other'))))\n"
        "thread.start()\nstore.set('other', 'y')\nthread.join(20)\nfound"
    )
    assert values(mesh, cell) == ["[b'y']"]
