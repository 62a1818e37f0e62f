"""Whether a store still answers, before a rank waits for it in C."""

from __future__ import annotations

import select
import socket
import threading
from typing import Any

import pytest
import torch.distributed as dist

from meshbook.runtime.groups.c10d import check_answers


def test_a_store_that_is_served_answers_and_goes_on() -> None:
    """Without libuv, which keeps a pipe for good; with it, those of all meshes of other tests."""
    make: Any = dist.TCPStore  # pyright: ignore[reportPrivateImportUsage] - torch documents it
    store = make("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False)
    check_answers("127.0.0.1", store.port)
    store.set("key", "value")
    assert store.get("key") == b"value"


def test_where_nobody_listens_is_no_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        check_answers("127.0.0.1", port)


def test_a_process_that_is_about_to_be_gone_is_not_believed() -> None:
    """Its socket takes connections for as long as its memory is given back."""
    server = socket.create_server(("127.0.0.1", 0))

    def end() -> None:
        select.select([server], [], [], 10)
        server.close()

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(ConnectionResetError):
        check_answers("127.0.0.1", server.getsockname()[1])
    ending.join()
