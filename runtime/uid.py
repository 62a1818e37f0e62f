"""Identifiers in Monarch's spelling: a label for what there is one of, `label<3fg>` for one of many of that label.

The number of an instance is 64 bits, written in the 58 digits that are not easily taken for each other.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex

_DIGITS = "123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"

_BITS = 64

_MOST_LETTERS = 63

_WRITTEN = re.compile(r"(?P<label>[^<>]*)(<(?P<number>[^<>]*)>)?")


@dataclass(frozen=True, eq=False, repr=False)
class Uid:
    """What names an actor or a process for good. Two are equal if their numbers are, or, without, their labels.

    Example:
        >>> trainer = Uid.from_string("trainer<3fg>")
        >>> trainer.label, trainer.instance_value, trainer.is_singleton, Uid.from_string("logger").is_singleton
        ('trainer', 7555, False, True)
    """

    label: str | None
    instance_value: int | None = None

    @staticmethod
    def from_string(text: str) -> Uid:
        """The identifier that is written so. Raises `ValueError` where it is none."""
        try:
            return _read(text)
        except ValueError as error:
            raise ValueError(f"invalid uid: invalid uid syntax: {error}") from None

    @staticmethod
    def instance(label: str | None = None) -> Uid:
        """A new one of this label. Raises `ValueError` where a label is not written so."""
        return Uid.instance_from_value(secrets.randbits(_BITS), label)

    @staticmethod
    def anonymous() -> Uid:
        """A new one without a label."""
        return Uid.instance()

    @staticmethod
    def instance_from_value(value: SupportsIndex, label: str | None = None) -> Uid:
        """The one of this number. Raises `OverflowError` where it has more than 64 bits, or is negative."""
        if not 0 <= index(value) < 1 << _BITS:
            small = index(value) < 0
            raise OverflowError("can't convert negative int to unsigned" if small else "int too big to convert")
        if label is not None and (problem := _problem(label)):
            raise ValueError(f"invalid uid label: {problem}")
        return Uid(label, index(value))

    @property
    def is_singleton(self) -> bool:
        """Whether there is one of its label alone."""
        return self.instance_value is None

    @property
    def is_instance(self) -> bool:
        """Whether there may be more of its label."""
        return self.instance_value is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uid) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        label = self.label or ""
        return label if self.instance_value is None else f"{label}<{_base58(self.instance_value)}>"

    def __repr__(self) -> str:
        return f"Uid({str(self)!r})"

    def _key(self) -> str | int | None:
        return self.label if self.instance_value is None else self.instance_value


@dataclass(frozen=True)
class ProcId:
    """What names a process."""

    uid: Uid

    @staticmethod
    def from_string(text: str) -> ProcId:
        """The process that is written so. Raises `ValueError` where it is none."""
        try:
            return ProcId(Uid.from_string(text))
        except ValueError as error:
            raise ValueError(f"invalid proc id: {error}") from None

    @property
    def label(self) -> str | None:
        """The label of its identifier."""
        return self.uid.label

    def __str__(self) -> str:
        return str(self.uid)


def _read(text: str) -> Uid:
    written = _WRITTEN.fullmatch(text)
    if written is None:
        raise ValueError(f"{text!r} is neither a label nor label<number>")
    label, number = written["label"] or None, written["number"]
    if label is not None and (problem := _problem(label)):
        raise ValueError(f"invalid label: {problem}")
    if number is None and label is None:
        raise ValueError('expected "label" or "<", found end of input')
    return Uid(label, None if number is None else _from_base58(number))


def _problem(label: str) -> str:
    """What is wrong with a label; nothing if it is fine."""
    if not label:
        return "label must not be empty"
    if len(label) > _MOST_LETTERS:
        return f"label exceeds {_MOST_LETTERS} characters"
    if not re.match("[a-z]", label):
        return "label must start with a lowercase letter"
    if not re.search("[a-z0-9]$", label):
        return "label must end with a lowercase letter or digit"
    wrong = re.search("[^a-z0-9_-]", label)
    return f"label contains invalid character {wrong[0]!r}" if wrong else ""


def _base58(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def _from_base58(digits: str) -> int:
    if not digits:
        raise ValueError('expected uid text, found ">"')
    number = 0
    for digit in digits:
        if digit not in _DIGITS:
            raise ValueError(f"invalid base58 uid: {digits}")
        number = number * len(_DIGITS) + _DIGITS.index(digit)
    if number >= 1 << _BITS:
        raise ValueError(f"invalid base58 uid: {digits}")
    return number
