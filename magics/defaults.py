"""What `%mesh config` sets: how cells run whose line does not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from .book import Book
from .grammar import ON_MESH, OnMeshArgs
from .manage import CONFIGURABLE, Config
from .options import GrammarError

DEFAULT = "default"
"""What is written to let a setting be as it was at first."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds now.

    Example:
        >>> print(Settings({"tail": 50}))
        show      auto
        tail      50    (default: none)
        timeout   none
        on-error  stop
        grace     2
    """

    changed: Mapping[str, object]
    """By the fields of `OnMeshArgs`."""

    def __repr__(self) -> str:
        at_first = {each.name: each.default for each in fields(OnMeshArgs)}
        texts = {name: _text((at_first | dict(self.changed))[_field(name)]) for name in CONFIGURABLE}
        width = max(map(len, texts.values()))
        lines: list[str] = []
        for name, text in texts.items():
            first = _text(at_first[_field(name)])
            lines.append(f"{name:<8}  {text}" if text == first else f"{name:<8}  {text:<{width}}  (default: {first})")
        return "\n".join(lines)


def configure(book: Book, args: Config) -> Settings:
    """Change settings, all or none; what holds then. Raises `GrammarError` for a value that cannot be."""
    changed = dict(book.defaults)
    for name, text in args.settings:
        option = ON_MESH.options[_field(name)]
        if text == DEFAULT:
            changed.pop(_field(name), None)
            continue
        try:
            changed[_field(name)] = option.read(text)
        except GrammarError as error:
            raise GrammarError(f"%mesh config: {name}: {error}") from None
    book.defaults = changed
    return Settings(changed)


def _field(name: str) -> str:
    return name.replace("-", "_")


def _text(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
