"""Programs that were started with signals blocked or ignored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal
from meshbook.runtime import Actor, endpoint, this_host
import meshbook.runtime
from meshbook.runtime.session import ZYGOTE_MODULES
ZYGOTE_MODULES.remove("torch?")  # takes a second
meshbook.runtime.unhandled_fault_hook = lambda failure: None

class A(Actor):
    @endpoint
    def run(self):
        import subprocess
        return subprocess.run(["false"]).returncode, sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))

    @endpoint
    def leave(self):
        os._exit(3)

with this_host().spawn_procs({"r": 1}) as procs:
    a = procs.spawn("a", A)
    print(a.run.call_one().get(30))
    print("exited with code 3" in str(a.leave.call_one().exception(30)))
"""

BEFORE = {
    "ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM])",
}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("how", BEFORE)
def test_ranks_have_plain_signals(tmp_path: Path, how: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    start = f"import os, signal, sys; {BEFORE[how]}; os.execv(sys.executable, [sys.executable, 'program.py'])"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ran = subprocess.run(
        [sys.executable, "-c", start], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90
    )
    assert (ran.stdout, ran.stderr) == ("(1, [])\nTrue\n", "")
