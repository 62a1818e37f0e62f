"""The end of a child as a descriptor, so that a loop hears of it."""

from __future__ import annotations

import os
import subprocess
import threading


def end_of(process: subprocess.Popen[bytes]) -> int:
    """A descriptor that is readable from the end of this process on. It is yours to close.

    Example:
        >>> import select, sys
        >>> process = subprocess.Popen([sys.executable, "-c", ""])
        >>> fd = end_of(process)
        >>> select.select([fd], [], [])[0] == [fd], process.wait()
        (True, 0)
        >>> os.close(fd)
    """
    if hasattr(os, "pidfd_open"):  # Linux
        return os.pidfd_open(process.pid)
    end, other_end = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(other_end)

    threading.Thread(target=wait, name="meshbook-end-of-child", daemon=True).start()
    return end
