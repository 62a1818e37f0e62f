"""Processes that a test stops."""

from __future__ import annotations

import time

import psutil


def stop(pid: int) -> psutil.Process:
    """Stop a process, and wait until it stands: on a busy machine it may answer for a moment after the signal."""
    process = psutil.Process(pid)
    process.suspend()
    while process.status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)
    return process
