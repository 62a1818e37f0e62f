"""Small pictures of matrices: cividis from dark (low) to bright (high), nan in vermilion. As a PNG, in a few lines."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from functools import cache
from typing import Final

from ..kernel.outcome import Heat
from ..kernel.values.gist import LEVELS

NAN_COLOUR: Final = (213, 94, 0)
"""Vermilion of Okabe and Ito: in none of its sights is it one of cividis."""

_STOPS: Final = """
00224e 002e6a 1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78
8c8878 9b9476 aba072 bcae6c cdbb63 dec958 f0d846 fee838
"""
"""cividis at even steps (Nunez, Anderton and Renslow 2018, https://doi.org/10.1371/journal.pone.0199239)."""

_LONG_SIDE: Final = 128
"""Pixels of the page along a picture's longer side."""


def heat_html(heat: Heat, num_nans: int, side: int) -> str:
    """A picture of a matrix as an `<img>`, at most `side` cells wide and high."""
    small = shrunk(heat, side)
    scale = max(1, _LONG_SIDE // max(small.rows, small.columns))
    size = f'width="{small.columns * scale}" height="{small.rows * scale}"'
    nans = f", {num_nans:,} nan in orange" if num_nans else ""
    legend = f"heat map: {heat.low:.4g} is dark, {heat.high:.4g} is bright{nans}"
    data = b64encode(png(small)).decode()
    return f'<img class="mb-heat" {size} alt="{legend}" title="{legend}" src="data:image/png;base64,{data}">'


def shrunk(heat: Heat, side: int) -> Heat:
    """The picture with at most `side` rows and columns: every n-th of them, but each nan is kept.

    Example:
        >>> shrunk(Heat(2, 4, 0.0, 1.0, bytes([1, 2, 3, 0, 5, 6, 7, 8])), 2)
        Heat(rows=2, columns=2, low=0.0, high=1.0, cells=b'\\x01\\x00\\x05\\x07')
    """
    step_down, step_right = -(-heat.rows // side), -(-heat.columns // side)
    if step_down == step_right == 1:
        return heat
    lines = [heat.cells[i * heat.columns : (i + 1) * heat.columns] for i in range(heat.rows)]
    cells = [
        _cell(b"".join(line[j : j + step_right] for line in lines[i : i + step_down]))
        for i in range(0, heat.rows, step_down)
        for j in range(0, heat.columns, step_right)
    ]
    rows, columns = -(-heat.rows // step_down), -(-heat.columns // step_right)
    return Heat(rows, columns, heat.low, heat.high, bytes(cells))


def _cell(covered: bytes) -> int:
    return 0 if 0 in covered else covered[0]


def png(heat: Heat) -> bytes:
    """The picture as a PNG file with a palette (https://www.w3.org/TR/png-3/).

    Example:
        >>> png(Heat(1, 1, 0.0, 1.0, b"\\x01"))[:8]
        b'\\x89PNG\\r\\n\\x1a\\n'
    """
    lines = (heat.cells[i * heat.columns : (i + 1) * heat.columns] for i in range(heat.rows))
    header = struct.pack(">2I5B", heat.columns, heat.rows, 8, 3, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    chunks = ((b"IHDR", header), (b"PLTE", _palette()), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@cache
def _palette() -> bytes:
    return bytes(NAN_COLOUR) + b"".join(bytes(cividis(level / (LEVELS - 1))) for level in range(LEVELS))


def cividis(share: float) -> tuple[int, int, int]:
    """The colour at `share`, from 0 (dark) to 1 (bright).

    Example:
        >>> cividis(0.0), cividis(1.0)
        ((0, 34, 78), (254, 232, 56))
    """
    stops = _STOPS.split()
    place = share * (len(stops) - 1)
    index = min(int(place), len(stops) - 2)
    below, above = (bytes.fromhex(stop) for stop in stops[index : index + 2])
    red, green, blue = (round(a + (b - a) * (place - index)) for a, b in zip(below, above, strict=True))
    return red, green, blue
