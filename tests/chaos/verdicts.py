"""How an operation of a random story can end, other than well."""

from __future__ import annotations


class Violation(Exception):
    """Something is not as it must be."""


class Unclear(Exception):
    """What must be true after it cannot be said: the operation is not done, and nothing has changed."""
