"""What processes of ours must not inherit from whoever started the program: children would never be seen to end."""

from __future__ import annotations

import signal


def plain_signals() -> None:
    """Block no signal, and hear of children: some servers and schedulers start programs otherwise."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
