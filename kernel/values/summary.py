"""What to tell of a value that a cell ended with: text, richer forms, shape, and itself if it is small."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, cast

from ...runtime.wire import codec
from ..outcome import Value
from .gist import gist_of
from .mime import portable
from .odd_tensors import is_emptied, shape_of
from .records import record_of
from .size import bytes_of_data, is_array, is_tensor, pickles_to_at_least

if TYPE_CHECKING:
    from IPython.core.formatters import DisplayFormatter

TEXT_LIMIT = 1 << 16
"""Characters of `text/plain` that travel: the page shows less, and the whole value is still on its rank."""

MIME_LIMIT = 8 << 20
"""Characters of one rich form; a larger one would freeze the browser before it informs anybody."""

_ATOMS = frozenset({int, bool, str, bytes})
"""Types with a bounded repr and no richer form: the machinery of IPython would cost more than the cell."""


def describe(
    value: object,
    *,
    limit: int = 1 << 20,
    dumps: Callable[[object], bytes] = codec.dumps,
    formatter: DisplayFormatter | None = None,
) -> Value:
    """Summarise `value`; it travels along if its pickle has at most `limit` bytes.

    With a `formatter`, a shell's, the rich forms (HTML, PNG, SVG, Markdown, LaTeX, JSON) come along, and the
    shell's own printers make the text. Raises nothing of what the value's own methods may raise: their error
    becomes the text.

    >>> seen = describe([1, 2])
    >>> seen.type_name, seen.text, seen.stayed
    ('list', '[1, 2]', None)
    >>> describe("x" * 5_000_000).stayed
    '4.8 MB, over the limit of 1 MB'
    """
    if type(value) in _ATOMS:
        return _described_atom(value, limit, dumps)
    try:
        facts = _facts(value)
    except Exception:  # noqa: BLE001 - nested and other odd tensors have no shape, and say so by raising
        facts = _Facts()
    pickled, stayed = _travel(value, limit, dumps)
    text, mime = _forms(value, formatter)
    return Value(
        type_name=type(value).__qualname__,
        text=text,
        mime=mime,
        shape=facts.shape,
        dtype=facts.dtype,
        device=facts.device,
        nbytes=facts.nbytes,
        pickled=pickled,
        stayed=stayed,
        gist=gist_of(value),
        record=record_of(value),
    )


def shown_above(value: object) -> str:
    """The text of a value that a rank has displayed: its own may be the data of a whole chart."""
    return f"{type(value).__qualname__} (shown above)"


def _forms(value: object, formatter: DisplayFormatter | None) -> tuple[str, dict[str, str]]:
    """Its text, and its richer forms."""
    if formatter is not None and (_is_drawn_at_end(value) or _shows_itself(value, formatter)):
        return shown_above(value), {}
    mime = {} if formatter is None else _rich(value, formatter)
    own = shortened(mime.pop("text/plain", "").strip("\n"))
    return own or _shown(value, lambda value: _pretty(value, formatter)), mime


def _described_atom(value: object, limit: int, dumps: Callable[[object], bytes]) -> Value:
    pickled, stayed = _travel(value, limit, dumps)
    return Value(type(value).__qualname__, _shown(value, _repr), pickled=pickled, stayed=stayed)


def is_widget(value: object) -> bool:
    """Whether this is an ipywidget: what it shows is not in a bundle, but comes over its comm."""
    ipywidgets = sys.modules.get("ipywidgets")
    return ipywidgets is not None and isinstance(value, ipywidgets.Widget)


def readable(size: int) -> str:
    """A number of bytes for people.

    >>> readable(12), readable(1 << 20), readable(220_000_000)
    ('12 B', '1 MB', '210 MB')
    """
    amount, unit = float(size), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f}".removesuffix(".0") + f" {unit}" if amount < 10 else f"{amount:.0f} {unit}"


@dataclass(frozen=True, slots=True)
class _Facts:
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    nbytes: int | None = None


def _facts(value: Any) -> _Facts:
    """Shape and size of arrays, of the libraries that are imported: no other can have made them."""
    pandas = sys.modules.get("pandas")
    if is_tensor(value):
        return _Facts(shape_of(value), str(value.dtype), str(value.device), bytes_of_data(value))
    if is_array(value):
        return _Facts(value.shape, str(value.dtype), None, value.nbytes)
    jax: Any = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.Array):
        return _Facts(tuple(value.shape), str(value.dtype), None, int(value.nbytes))
    if pandas is not None and isinstance(value, pandas.DataFrame):
        frame: Any = value
        return _Facts(frame.shape, None, None, int(frame.memory_usage(index=False).sum()))
    if pandas is not None and isinstance(value, pandas.Series):
        series: Any = value
        return _Facts(series.shape, str(series.dtype), None, int(series.memory_usage(index=False)))
    return _Facts()


def _travel(value: object, limit: int, dumps: Callable[[object], bytes]) -> tuple[bytes | None, str | None]:
    """The pickle, or why there is none."""
    try:
        if not isinstance(value, int) and (size := pickles_to_at_least(value, limit)) > limit:
            more = "" if bytes_of_data(value) else "at least "
            return None, f"{more}{readable(size)}, over the limit of {readable(limit)}"
        data = dumps(value)
    except codec.EncodeError as reason:
        return None, str(reason).partition("\n")[0]
    except Exception as reason:  # noqa: BLE001 - a user's class may raise anything while it is pickled
        return None, f"cannot pickle: {brief(reason)}"
    if len(data) > limit:
        return None, f"{readable(len(data))}, over the limit of {readable(limit)}"
    return data, None


def brief(error: BaseException) -> str:
    """An error in one short line, whatever its `str` does.

    >>> brief(ValueError("no such axis"))
    'ValueError: no such axis'
    """
    try:
        message = str(error).strip()
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        message = "(its message cannot be printed)"
    first = message.partition("\n")[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def shortened(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text`, or its two ends with the number of characters left out between them.

    >>> shortened("abcdefghij", 4)
    'abc\\n... 6 more characters ...\\nj'
    """
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n... {len(text) - head - tail} more characters ...\n{text[-tail:]}"


def _shown(value: object, text_of: Callable[[object], str]) -> str:
    try:
        text = text_of(value)
    except Exception as broken:  # noqa: BLE001 - a user's __repr__ may raise anything
        text = f"<{type(value).__qualname__} whose repr fails: {brief(broken)}>"
    return shortened(text) or f"<{type(value).__qualname__} with an empty repr>"


def _repr(value: Any) -> str:
    """`repr` of a number or text; of a long text only as much as is shown (repr of 100 MB takes a second)."""
    if isinstance(value, str | bytes) and len(value) > TEXT_LIMIT:
        half = TEXT_LIMIT // 2 - 50
        return f"{value[:half]!r}\n... {len(value) - 2 * half} more ...\n{value[-half:]!r}"
    return repr(value)


class _Full(Exception):
    """More text was printed than will be shown."""


class _Page(StringIO):
    """Where the pretty printer writes: it has an end, so that a huge structure stops being printed."""

    def __init__(self) -> None:
        super().__init__()
        self._room = TEXT_LIMIT * 4

    def write(self, s: str, /) -> int:
        self._room -= len(s)
        written = super().write(s[: TEXT_LIMIT * 4])
        if self._room < 0:
            raise _Full
        return written


def _pretty(value: object, formatter: DisplayFormatter | None) -> str:
    """What IPython prints, with the shell's own printers. (Its formatter prints errors.)"""
    if is_tensor(value) and is_emptied(value):
        return f"<{type(value).__qualname__} whose memory was given back>"
    from IPython.lib.pretty import RepresentationPrinter

    plain = None if formatter is None else cast("Any", formatter).formatters["text/plain"]
    page, printers = _Page(), {}
    if plain is not None:
        if not hasattr(plain, "max_seq_length"):  # another kind, such as that of `rich.pretty.install`
            return str(plain(value) or repr(value))
        printers = {
            "max_seq_length": plain.max_seq_length,
            "singleton_pprinters": plain.singleton_printers,
            "type_pprinters": plain.type_printers,
            "deferred_pprinters": plain.deferred_printers,
        }
    try:
        printer: Any = RepresentationPrinter(page, **cast("Any", printers))
        printer.pretty(value)
        printer.flush()
    except _Full:
        return page.getvalue() + "..."
    return page.getvalue()


def _is_drawn_at_end(value: object) -> bool:
    """Is it a figure of pyplot's that matplotlib's inline backend shows when the cell has ended? Not twice, then."""
    matplotlib, inline = sys.modules.get("matplotlib"), sys.modules.get("matplotlib_inline.backend_inline")
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if matplotlib is None or inline is None or helpers is None or "inline" not in matplotlib.get_backend():
        return False
    figures = [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]
    return inline.InlineBackend.instance().close_figures and any(figure is value for figure in figures)


def _shows_itself(value: object, formatter: DisplayFormatter) -> bool:
    """Has its type said how it is displayed (`_ipython_display_`)? It is, then."""
    from IPython.utils.dir2 import get_real_method

    shows: Any = cast("Any", formatter).ipython_display_formatter
    return get_real_method(value, shows.print_method) is not None and bool(shows(value))


def _rich(value: object, formatter: DisplayFormatter) -> dict[str, str]:
    """Its richer forms, and its text where its type makes all of them at once, as those of rich and altair do."""
    from IPython.utils.dir2 import get_real_method

    makes_all = get_real_method(value, "_repr_mimebundle_") is not None
    bundle, _ = cast("Any", formatter).format(value, exclude=() if makes_all else {"text/plain"})
    return {mime: form for mime, form in portable(bundle).items() if len(form) <= MIME_LIMIT}
