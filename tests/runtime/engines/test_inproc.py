"""What is about the engine of threads alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

TRACED = """
import sys
sys.path[:0] = {path!r}
from meshbook.runtime import this_host
from meshbook.runtime.controller import root
from tests.runtime.actors import Worker

root.default_engine[:] = ["inproc"]
procs = this_host().spawn_procs({{"r": 2}})
workers = procs.spawn("workers", Worker)
workers.rank.call().get(10)
{then}

def f():
    return 1

sys.settrace(lambda *_: None)
f()
sys.settrace(None)
print("traced")
"""

WAITING = """
import threading
begun = threading.Barrier(3)
vars(sys.modules["tests.runtime.actors"]).update(begun=begun)
waiting = workers.do.call("import time, tests.runtime.actors as a\\na.begun.wait()\\nwhile True: time.sleep(0.001)")
begun.wait(10)
"""


@pytest.mark.parametrize("then", ["", f"{WAITING}\nprocs.stop().get(10)"], ids=["calls", "ends in a call"])
def test_tracing_works_after(then: str) -> None:
    """On Python 3.11 a debugger, or coverage, never got on after an exception that was put into a thread in vain."""
    program = TRACED.format(path=sys.path, then=then)
    # In a process of its own: who is caught hears not even the signal of a timeout.
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert ended.stdout == "traced\n", ended


STREAMS = """
import faulthandler, sys
sys.path[:0] = {path!r}
before = sys.stderr
from meshbook.runtime import this_host
from meshbook.runtime.controller import root
from tests.runtime.actors import Worker

root.default_engine[:] = ["inproc"]
workers = this_host().spawn_procs({{"r": 2}}).spawn("workers", Worker)
workers.rank.call().get(10)
assert sys.stderr is not before
faulthandler.enable()
faulthandler.disable()
assert (sys.stderr.fileno(), sys.stderr.encoding, sys.stderr.errors) == (2, before.encoding, before.errors)
assert sys.stderr.isatty() == before.isatty() and sys.stderr.name == before.name
sys.stdout.reconfigure(line_buffering=True)
sys.stdout.buffer.write(b"bytes\\n")
assert not hasattr(sys.stdout, "nonsense")
"""


def test_the_streams_of_the_program_are_still_what_they_were_to_it() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STREAMS.format(path=sys.path)], capture_output=True, text=True, timeout=50
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("bytes\n", "", 0)
