"""What crosses a process is said in one file, and its document says the same."""

from __future__ import annotations

import ast
import typing
from pathlib import Path

import msgspec
import pytest

from meshbook.runtime.wire import messages
from tests.house import protocol


def test_messages_are_defined_in_one_file(modules: dict[str, ast.Module]) -> None:
    homes = {name for name, tree in modules.items() for node in ast.walk(tree) if _is_message_class(node)}
    assert homes == {"meshbook.runtime.wire.messages"}


def test_the_union_names_every_message() -> None:
    assert list(typing.get_args(messages.AnyMessage)) == protocol.message_kinds()


def test_a_message_says_who_sends_it_to_whom_on_which_lane() -> None:
    assert [kind for kind in protocol.message_kinds() if protocol.lane_of(kind) not in protocol.LANES] == []


def test_a_message_is_frozen_and_tagged_by_its_name() -> None:
    configs = {kind.__name__: kind.__struct_config__ for kind in protocol.message_kinds()}
    assert [name for name, config in configs.items() if not config.frozen or config.tag != name] == []


def test_the_document_equals_the_file(root: Path) -> None:
    document = root / "docs" / "messages.md"
    assert document.read_text() == protocol.as_markdown(), "run `make docs`"


def test_a_first_line_without_a_lane_is_refused() -> None:
    class Mumble(msgspec.Struct):
        """Somebody says something."""

    with pytest.raises(ValueError, match="docstring of Mumble must begin with `Sender to receiver, lane:"):
        protocol.lane_of(Mumble)  # pyright: ignore


def _is_message_class(node: ast.AST) -> bool:
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    return any(ast.unparse(base).rpartition(".")[2] == "Message" for base in bases)
