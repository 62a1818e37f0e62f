from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from meshbook.kernel.ranks.command import code_of


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(
    "script, tidied",
    [
        ("trap 'echo done > tidied; exit' INT; sleep 100 & echo $$ > told; wait", True),
        ("trap '' INT; echo $$ > told; sleep 100", False),
    ],
)
def test_an_interrupt_reaches_all_that_a_command_has_started_and_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, tidied: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("told")
    Path("script").write_text(script)
    begun: list[psutil.Process] = []

    def interrupt() -> None:
        begun.append(psutil.Process(int(Path("told").read_text())))
        os.kill(os.getpid(), signal.SIGINT)

    asker = threading.Thread(target=interrupt)
    asker.start()
    with pytest.raises(KeyboardInterrupt):
        code_of("sh script; true")
    asker.join()
    psutil.wait_procs(begun, timeout=5)
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in begun)
    assert Path("tidied").exists() is tidied
