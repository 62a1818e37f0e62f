"""A front-end of a real kernel: cells go in over its sockets, what a reader would see comes out."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import tempfile
import time
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tests.magics.outputs import Message, Outputs, plain, text_of
from tests.magics.said import who_said
from tests.profiles import leave_compiler_out

_WAIT = 30.0  # seconds that a cell may take unless a test says otherwise: a loaded machine must not fail it

_UP = re.compile(r"(%mesh up\b)(?![^\n]*--engine)")
_ENGINES = {"local": "", "hosts": " --engine hosts --hosts 2", "monarch": " --engine monarch --hosts 2"}
"""What a line that brings a mesh up says about where."""


class Cell:
    """A cell that was sent; more may come for it even after its end."""

    def __init__(self, kernel: Kernel, number: str) -> None:
        self._kernel = kernel
        self._number = number

    @property
    def messages(self) -> list[Message]:
        """What has come for this cell so far."""
        return self._kernel.messages_of(self._number)

    @property
    def text(self) -> str:
        """What a reader sees so far, without colours."""
        return plain("".join(map(text_of, self.messages)))

    def until(self, text: str, timeout: float = _WAIT) -> None:
        """Wait for this text in what the cell prints and shows."""
        self._kernel.listen_until(lambda: text in self.text, timeout, f"{text!r}")

    def until_all(self, num_ranks: int, text: str) -> None:
        """Wait until each of so many ranks has said this."""
        is_said = lambda: len(who_said(self.text, text)) == num_ranks  # noqa: E731
        self._kernel.listen_until(is_said, _WAIT, f"{text!r} of {num_ranks} ranks")

    def asked(self, timeout: float = _WAIT) -> str:
        """Wait until the cell asks for input; what it asks with."""
        return self._kernel.asked(timeout)

    def type(self, line: str) -> None:
        """Answer what the cell asks."""
        self._kernel.type(line)

    def talk(self, *lines: str, timeout: float = _WAIT) -> list[str]:
        """Answer one question after the other; the prompts that came."""
        prompts: list[str] = []
        for line in lines:
            prompts.append(self.asked(timeout))
            self.type(line)
        return prompts

    @property
    def is_idle(self) -> bool:
        """Is the kernel done with it?"""
        return any(map(_is_idle, self.messages))

    def idle(self, timeout: float = _WAIT) -> None:
        """Wait until the kernel is done with it."""
        self._kernel.listen_until(lambda: self.is_idle, timeout, "the end of the cell")

    def end(self, timeout: float = _WAIT) -> Outputs:
        """Wait for its reply, and for all that belongs before it."""
        self.idle(timeout)
        return Outputs(self.messages, self._kernel.reply_to(self._number, timeout))


def _is_idle(message: Message) -> bool:
    return message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"


class Kernel:
    """An ipykernel in a process of its own, with a profile in a folder of its own."""

    def __init__(
        self,
        prefix: Path | None = None,
        before: Path | None = None,
        on: str = "local",
        prepare: Callable[[Path], None] = leave_compiler_out,
    ) -> None:
        """With a `prefix`, the kernel `meshbook` that is installed there; else a plain one that runs this Python.

        What lies in the folder `before` is imported in place of what is installed: an ipykernel of another version.
        Meshes whose lines do not say where they come up do so `on` this engine. What is to `prepare` its profile: see
        `tests.profiles`.
        """
        self._where = _ENGINES[on]
        self.folder = Path(tempfile.mkdtemp(prefix="mb-"))  # short: it is part of the sockets' names
        self._by_cell: dict[str, list[Message]] = {}
        self._subshell = ""
        self._replies: dict[str, Message] = {}
        self._requests = itertools.count(1)
        dirs = [] if prefix is None else [str(prefix / "share" / "jupyter" / "kernels")]
        specs = KernelSpecManager(kernel_dirs=dirs)  # without any, ipykernel's own is left
        address = {"transport": "ipc", "ip": str(self.folder / "kernel")}
        name = {} if prefix is None else {"kernel_name": "meshbook"}
        self._manager = KernelManager(kernel_spec_manager=specs, **address, **name)
        environment = os.environ | {"IPYTHONDIR": str(self.folder / "profile")}
        prepare(self.folder / "profile")
        if before is not None:
            paths = [str(before), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        self._manager.start_kernel(cwd=str(self.folder), env=environment)
        self._connect()

    @property
    def pid(self) -> int:
        provisioner: Any = self._manager.provisioner
        return provisioner.pid

    def _connect(self) -> None:
        self._client: Any = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_WAIT)

    def start(self, source: str, **options: Any) -> Cell:
        """Send a cell."""
        number = self._client.execute(self._placed(source), **options)
        self._by_cell[number] = []
        return Cell(self, number)

    def _placed(self, source: str) -> str:
        return _UP.sub(rf"\1{self._where}", source)

    def start_in_cell(self, source: str) -> Cell:
        """Send a cell as a notebook does, which names the cell."""
        content = {
            "code": self._placed(source),
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": True,
        }
        message = self._client.session.msg("execute_request", content, metadata={"cellId": "c0ffee"})
        self._client.shell_channel.send(message)
        number = message["header"]["msg_id"]
        self._by_cell[number] = []
        return Cell(self, number)

    def start_aside(self, source: str) -> Cell:
        """Send a cell to a subshell, as a front-end does for a console beside a notebook: it runs beside others."""
        if not self._subshell:
            self._client.control_channel.send(self._client.session.msg("create_subshell_request"))
            self._subshell = self._client.get_control_msg(timeout=_WAIT)["content"]["subshell_id"]
        content = {
            "code": self._placed(source),
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
        }
        message = self._client.session.msg("execute_request", content)
        message["header"]["subshell_id"] = self._subshell
        self._client.shell_channel.send(message)
        number = message["header"]["msg_id"]
        self._by_cell[number] = []
        return Cell(self, number)

    def cell(self, source: str, timeout: float = _WAIT, **options: Any) -> Outputs:
        """Run a cell to its end."""
        return self.start(source, **options).end(timeout)

    def ok(self, source: str) -> Outputs:
        """Run a cell that must do well."""
        outputs = self.cell(source)
        assert outputs.status == "ok", outputs.text
        return outputs

    def value(self, expression: str) -> Any:
        """The value of an expression of literals in the notebook's own process."""
        outputs = self.cell("", silent=True, user_expressions={"it": expression})
        found = outputs.reply["user_expressions"]["it"]
        assert found["status"] == "ok", found
        return literal_eval(found["data"]["text/plain"])

    def host(self, rank: int, name: str) -> str:
        """What the host of a rank is called, of a mesh that has a name in the notebook."""
        return self.value(f"{name}.roster.host_of({rank})")

    def pids(self, name: str = "") -> dict[int, int]:
        """The process of each rank of a mesh."""
        mesh = f"-m {name}" if name else ""
        rows = json.loads(self.value(f"get_ipython().run_line_magic('mesh', 'status {mesh} --json')"))
        return {row["rank"]: row["pid"] for row in rows}

    def completions(self, text: str) -> list[str]:
        """What Tab offers at the end of a text: each the whole text that it would give."""
        content = self._client.complete(text, len(text), reply=True, timeout=_WAIT)["content"]
        return [text[: content["cursor_start"]] + match for match in content["matches"]]

    def inspected(self, text: str) -> str:
        """What shift-tab shows at the end of a text; empty if nothing."""
        content = self._client.inspect(text, len(text), reply=True, timeout=_WAIT)["content"]
        return plain(content["data"]["text/plain"]) if content["found"] else ""

    def say(self, comm_id: str, data: dict[str, Any]) -> None:
        """What the browser's half of a widget says."""
        self._client.shell_channel.send(self._client.session.msg("comm_msg", {"comm_id": comm_id, "data": data}))

    def debug(self, command: str, **arguments: Any) -> Message:
        """Ask the kernel's debugger something, as JupyterLab's panel does; the answer, success or not."""
        content = {"type": "request", "seq": next(self._requests), "command": command, "arguments": arguments}
        message = self._client.session.msg("debug_request", content)
        self._client.control_channel.send(message)
        while (reply := self._client.get_control_msg(timeout=_WAIT))["parent_header"]["msg_id"] != message["msg_id"]:
            pass
        return reply["content"]

    @property
    def debug_events(self) -> list[Message]:
        """What the debugger has told so far."""
        return [each["content"] for each in self.messages if each["msg_type"] == "debug_event"]

    def interrupt(self) -> None:
        """What the stop button does."""
        self._manager.interrupt_kernel()

    def reconnect(self) -> None:
        """The front-end goes away, whatever it was asked, and another comes; it does not wait for the kernel's cell."""
        self._client.stop_channels()
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        while not self._client.iopub_channel.socket.poll(100):  # what is said before it has subscribed there is lost
            self._client.control_channel.send(self._client.session.msg("kernel_info_request"))
            self._client.get_control_msg(timeout=_WAIT)

    def restart(self) -> None:
        """What the restart button does."""
        self._client.stop_channels()
        self._manager.restart_kernel()
        self._connect()

    def kill(self) -> None:
        """End its process as the kernel of the operating system would for want of memory."""
        psutil.Process(self.pid).kill()

    def shut_down(self) -> None:
        """What closing the notebook does."""
        self._manager.shutdown_kernel()

    def close(self) -> None:
        """Take back all that it holds."""
        self._client.stop_channels()
        if self._manager.is_alive():
            self.shut_down()
        self._manager.cleanup_resources()
        self._client.context.destroy()
        shutil.rmtree(self.folder)

    def messages_of(self, number: str) -> list[Message]:
        return self._by_cell[number]

    @property
    def messages(self) -> list[Message]:
        """What has come so far, cell by cell."""
        return [message for messages in self._by_cell.values() for message in messages]

    def listen_until(self, is_there: Callable[[], bool], timeout: float, what: str) -> None:
        """Take messages of all cells until a condition holds."""
        deadline = time.monotonic() + timeout
        while not is_there():
            try:
                message = self._client.get_iopub_msg(timeout=max(deadline - time.monotonic(), 0))
            except Empty:
                seen = "".join(text_of(message) for messages in self._by_cell.values() for message in messages)
                raise AssertionError(f"no {what} after {timeout:g} s; so far: {seen[-2000:]}") from None
            self._by_cell.setdefault(message["parent_header"].get("msg_id", ""), []).append(message)

    def until_stopped(self, *ranks: int, desk: str = "m.desk") -> None:
        """Wait until these ranks of a mesh are stopped in the debugger, while a cell that asks goes on."""
        waits = f"{desk}.wait(lambda: set({ranks}) <= set({desk}.stops.ranks), {_WAIT})"
        done = self.start_aside(f"assert {waits}, {desk}.stops").end()
        assert done.status == "ok", done.text

    def asked(self, timeout: float) -> str:
        """Wait for a question to the user; the prompt."""
        try:
            message = self._client.get_stdin_msg(timeout=timeout)
        except Empty:
            with contextlib.suppress(AssertionError):
                self.listen_until(lambda: False, 0.1, "")  # all that has come belongs to the story
            seen = "".join(text_of(message) for messages in self._by_cell.values() for message in messages)
            raise AssertionError(f"nothing was asked for {timeout:g} s; so far: {seen[-2000:]}") from None
        return message["content"]["prompt"]

    def asked_or_idle(self, cell: Cell, timeout: float = _WAIT) -> bool:
        """Wait for a question to the user, or for the end of a cell; whether it is a question."""
        deadline = time.monotonic() + timeout
        while not cell.is_idle:
            if self._client.stdin_channel.msg_ready():
                return bool(self.asked(0))
            with contextlib.suppress(AssertionError):
                self.listen_until(lambda: cell.is_idle, 0.05 if time.monotonic() < deadline else 0, "end")
            assert time.monotonic() < deadline, (
                f"no question and no end after {timeout:g} s; so far: {cell.text[-2000:]}"
            )
        return False

    def type(self, line: str) -> None:
        """Answer it."""
        self._client.input(line)

    def reply_to(self, number: str, timeout: float) -> Message:
        while number not in self._replies:
            reply = self._client.get_shell_msg(timeout=timeout)
            self._replies[reply["parent_header"]["msg_id"]] = reply
        return self._replies.pop(number)
