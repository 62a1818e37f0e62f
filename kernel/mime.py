"""Mime bundles as they travel: every form a string, binary ones in base64, as Jupyter sends them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import cast

from ..runtime.wire.unicode import escaped


def portable(bundle: Mapping[str, object]) -> dict[str, str]:
    """The bundle with each form as text: `bytes` in base64, JSON as its source.

    >>> portable({"text/plain": "x", "image/png": b"PNG", "application/json": {"a": 1}, "text/html": None})
    {'text/plain': 'x', 'image/png': 'UE5H', 'application/json': '{"a": 1}'}
    """
    return {mime: _text(form) for mime, form in bundle.items() if form is not None}


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
    """
    return {mime: json.loads(form) if _is_json(mime) else form for mime, form in bundle.items()}


def _is_json(mime: str) -> bool:
    return mime == "application/json" or (mime.startswith("application/") and mime.endswith("+json"))


def _text(form: object) -> str:
    if isinstance(form, str):
        return escaped(form)
    if isinstance(form, bytes | bytearray):
        return base64.b64encode(form).decode("ascii")
    return json.dumps(form, default=str)
