"""The document of the protocol, made from `runtime/wire/messages.py`. `make docs` writes docs/messages.md."""

from __future__ import annotations

import inspect
import re

import msgspec

from meshbook.runtime.wire import messages

LANES = ("data", "control", "zygote", "host")

HEAD = """\
# Messages

Generated from `runtime/wire/messages.py` by `make docs`; a test holds the two together.
"""

_FIRST_LINE = re.compile(r"(?P<way>\w[\w ]* to [\w ']+), (?P<lane>\w+)[^:]*: (?P<text>.*)", re.DOTALL)


def as_markdown() -> str:
    """All messages, a section for each lane, and the structs that they are made of."""
    kinds = message_kinds()
    sections = [HEAD, inspect.getdoc(messages) or ""]
    for lane in LANES:
        sections.append(f"## On the {lane} lane")
        sections += [_section(kind) for kind in kinds if lane_of(kind) == lane]
    sections.append("## What they are made of")
    sections += [_section(part) for part in _structs() if not issubclass(part, messages.Message)]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def message_kinds() -> list[type[messages.Message]]:
    """The messages in the order of their file, without their base."""
    base = messages.Message
    return [kind for kind in _structs() if issubclass(kind, base) and kind is not base]


def lane_of(kind: type[messages.Message]) -> str:
    """The lane in the first line of a message: `<Sender> to <receiver>, <lane>: <what it says>`.

    Raises `ValueError` where that line is written in another way.
    """
    match = _FIRST_LINE.match(inspect.getdoc(kind) or "")
    if match is None or match["lane"] not in LANES:
        raise ValueError(
            f"the docstring of {kind.__name__} must begin with `Sender to receiver, lane: ...`, "
            f"where the lane is one of {', '.join(LANES)}"
        )
    return match["lane"]


def _structs() -> list[type[msgspec.Struct]]:
    return [
        thing
        for thing in vars(messages).values()
        if isinstance(thing, type) and issubclass(thing, msgspec.Struct) and thing.__module__ == messages.__name__
    ]


def _section(kind: type[msgspec.Struct]) -> str:
    text = inspect.getdoc(kind) or ""
    if match := _FIRST_LINE.match(text):
        text = f"*{match['way']}*: {match['text']}"
    fields = msgspec.structs.fields(kind)
    return "\n\n".join([f"### `{kind.__name__}`", text, *([_table(kind, fields)] if fields else [])])


def _table(kind: type[msgspec.Struct], fields: tuple[msgspec.structs.FieldInfo, ...]) -> str:
    written = inspect.get_annotations(kind)
    rows = [f"| `{field.name}` | `{_in_cell(written[field.name])}` | {_default(field)} |" for field in fields]
    return "\n".join(["| field | type | default |", "|---|---|---|", *rows])


def _default(field: msgspec.structs.FieldInfo) -> str:
    return "" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`"


def _in_cell(annotation: str) -> str:
    return annotation.replace("|", "\\|")


if __name__ == "__main__":
    print(as_markdown(), end="")
