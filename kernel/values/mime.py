"""Mime bundles as they travel: every form a string, binary ones in base64, as Jupyter sends them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import cast

from ...runtime.wire.unicode import escaped

AS_THEY_ARE = ("text/html", "image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp")
"""Forms that can stand in a table of HTML."""

AS_PROSE = ("text/markdown", "text/latex")
"""Forms that can stand there as their source."""


def portable(bundle: Mapping[str, object]) -> dict[str, str]:
    """The bundle with each form as text: `bytes` in base64, JSON as its source.

    >>> portable({"text/plain": "x", "image/png": b"PNG", "application/json": {"a": 1}, "text/html": None})
    {'text/plain': 'x', 'image/png': 'UE5H', 'application/json': '{"a": 1}'}
    """
    return {mime: _text(form, _is_json(mime)) for mime, form in bundle.items() if form is not None}


def plain(metadata: Mapping[str, object]) -> dict[str, object]:
    """Metadata without objects that only the rank knows: what is not JSON becomes its `str`.

    >>> plain({"image/png": {"width": 3, "unit": complex(0, 1)}})
    {'image/png': {'width': 3, 'unit': '1j'}}
    """
    return cast("dict[str, object]", json.loads(json.dumps(metadata, default=str))) if metadata else {}


def unpacked(bundle: Mapping[str, str]) -> dict[str, object]:
    """The bundle as a front-end wants it: forms that are JSON as objects again.

    >>> unpacked({"text/plain": "x", "application/vnd.jupyter.widget-view+json": '{"model_id": "7"}'})
    {'text/plain': 'x', 'application/vnd.jupyter.widget-view+json': {'model_id': '7'}}
    >>> unpacked(portable({"application/vnd.bokehjs_load.v0+json": "a script"}))
    {'application/vnd.bokehjs_load.v0+json': 'a script'}
    """
    return {mime: json.loads(form) if _is_json(mime) else form for mime, form in bundle.items()}


def wants_front_end(bundle: Mapping[str, str]) -> bool:
    """Are there richer forms, but none for a table? Then only the front-end can show them, each as it knows them.

    >>> wants_front_end({"application/vnd.vegalite.v5+json": "{}"}), wants_front_end({"image/png": "UE5H"})
    (True, False)
    """
    return bool(bundle) and bundle.keys().isdisjoint((*AS_THEY_ARE, *AS_PROSE))


def _is_json(mime: str) -> bool:
    return mime == "application/json" or (mime.startswith("application/") and mime.endswith("+json"))


def _text(form: object, is_json: bool) -> str:
    """A string of a form that is JSON is one of JSON: a script, for Bokeh, which has a kind of its own for them."""
    if isinstance(form, bytes | bytearray):
        return base64.b64encode(form).decode("ascii")
    form = escaped(form) if isinstance(form, str) else form
    return form if isinstance(form, str) and not is_json else json.dumps(form, default=str)
