"""What nccl is told before its first group: the notebook deals with ranks that die or wait, not torch's watchdog."""

from __future__ import annotations

import os
import socket

_SETTINGS = {
    # Else the watchdog ends the process of who waits for a rank that has died, and all its variables with it.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    # Else it writes a dump, for which it sleeps a minute after any error, and whoever drops the group waits for it.
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
    # Else a rank that a debugger or a signal has stopped for some minutes is ended when it goes on.
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}
"""Seen with torch 2.11. What the user has set stays."""


def settle(is_shared: bool) -> None:
    """Set what is not set in the environment. Does a rank share its GPU with another one (`is_shared`)?

    nccl refuses two ranks of a host on one GPU, and takes those that name different hosts for ranks of different hosts.
    """
    shared = {"NCCL_HOSTID": f"{socket.gethostname()}-{os.getpid()}"} if is_shared else {}
    for name, value in (_SETTINGS | shared).items():
        os.environ.setdefault(name, value)
