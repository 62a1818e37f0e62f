"""An exception that ended a cell, taken apart for its journey: frames, text, itself if it can be rebuilt."""

from __future__ import annotations

import linecache
import re
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING

from ...runtime.ranks.failure import message_of, plain_name, plain_traceback, quoted, safe_str
from ...runtime.ranks.users import is_users
from ...runtime.system.ours import HOME, is_our_module
from ...runtime.wire import codec
from ..outcome import Failure, Frame
from ..sources.source import CELL_FILE, name_of
from ..values.size import pickles_to_at_least
from ..values.summary import shortened
from .causes import beneath

if TYPE_CHECKING:
    from ..ranks.shell import QuietShell

MAX_FRAMES = 64
"""Frames that travel; of more (a recursion without end) the outermost and the innermost half."""

_MOST_PRINTED = 2000
"""Frames that the traceback's text is made of, at most; Python's own recursion ends at 1,000."""

TRACEBACK_LIMIT = 1 << 18
"""Characters of the traceback's text."""

PICKLE_LIMIT = 1 << 18
"""Bytes of a pickled exception: some carry the batch that they complain about."""

_PLAIN = {str, bytes, int, float, bool, type(None)}

_TIMED = {"<timed eval>", "<timed exec>"}

_CELL_IN_TEXT = re.compile(f'File "({CELL_FILE})"')


def failure_of(error: BaseException, file: str, shell: QuietShell) -> Failure:
    """Tell of `error`, raised by the cell in `file`. Cuts its traceback: it begins with the cell's frame."""
    try:
        return _told(error, file, shell)
    except (Exception, SystemExit):  # noqa: BLE001 - what a user's class makes of its attributes may raise anything
        return bare_failure(error, file, shortened(safe_str(error)))


def bare_failure(error: BaseException, file: str, message: str) -> Failure:
    """Tell of it without any code of its class."""
    tb = _from_cell(plain_traceback(error), file)
    return Failure(plain_name(error), message, _frames_of(tb), "".join(traceback.format_tb(tb)))


def has_struck_users(stop: KeyboardInterrupt) -> bool:
    """Whether it is the user's code that was interrupted."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(stop.__traceback__)]
    # Not what dataclasses and the like have made.
    return any(is_users(file) and (name_of(file) is not None or not file.startswith("<")) for file in files)


def bare_text(error: BaseException) -> str:
    """Its text, where no code but Python's own makes that: what torch says of a peer that is gone, say."""
    is_plain = not isinstance(type(error).__str__, FunctionType) and _PLAIN.issuperset(map(type, error.args))
    return shortened(str(error)) if is_plain else "(it was interrupted before it could say more)"


def _told(error: BaseException, file: str, shell: QuietShell) -> Failure:
    error.__traceback__ = _from_cell(error.__traceback__, file)
    # How `exit` works is of no interest, and neither is how an interrupt gets to the user's line.
    is_told = is_users if isinstance(error, SystemExit | KeyboardInterrupt) else _is_not_ours
    _end_with(error.__traceback__, is_told)
    return Failure(
        type_name=type(error).__name__,
        message=shortened("\n".join([_message(error), *_beneath(error)])),
        frames=_frames(error),
        traceback=shortened(_printed(error, shell).rstrip("\n"), TRACEBACK_LIMIT),
        pickled=_survivor(error),
    )


def tell_lone(error: BaseException) -> None:
    """Tell on stderr of what has ended no cell, but a task between two: the user's lines of it."""
    error.__traceback__ = _from_cell(error.__traceback__, entry_of(error))
    _end_with(error.__traceback__, is_users)
    sys.stderr.write("".join(traceback.format_exception(error)))  # at once: of many ranks it is read whole


def entry_of(error: BaseException) -> str:
    """The file at which the user's part of a traceback begins; empty if it has none."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next(filter(is_users, files), "") or next(filter(_is_not_ours, files), "")


def _from_cell(tb: TracebackType | None, file: str) -> TracebackType | None:
    """Without what is above the cell (ours, asyncio's). None if the cell is not in it: a syntax error."""
    while tb is not None and tb.tb_frame.f_code.co_filename != file:
        tb = tb.tb_next
    return tb


def _end_with(tb: TracebackType | None, is_kept: Callable[[str], bool]) -> None:
    """Drop what is below the last frame of a file that is kept."""
    last = None
    while tb is not None:
        last = tb if is_kept(tb.tb_frame.f_code.co_filename) else last
        tb = tb.tb_next
    if last is not None:
        last.tb_next = None


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return f"sys.exit({code}) ended the cell; the rank lives on"
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.msg} ({name_of(error.filename) or error.filename}, line {error.lineno})"
    return message_of(error)


def _beneath(error: BaseException) -> list[str]:
    """What it says beside its message. How the cell came to be stopped is of no interest, nor what is beneath ours."""
    is_ours = is_our_module(type(error).__module__)
    return [] if is_ours or isinstance(error, SystemExit | KeyboardInterrupt) else beneath(error, _headline)


def _headline(error: BaseException) -> str:
    """An exception in one line, with the user's line that raised it."""
    told = quoted(error)
    files = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    files += [(file, line) for file, line, _ in (told.places if told else ())]
    message = _message(error).strip()
    file, line = next(filter(lambda place: is_users(place[0]), reversed(files)), ("", 0))
    place = f" ({name_of(file) or file}, line {line})" if file else ""
    message = message.partition("\n")[0]
    return f"{type(error).__name__}{message and ': '}{message}{place}"


def _frames(error: BaseException) -> tuple[Frame, ...]:
    told = quoted(error)
    places = [place for place in told.places if is_users(place[0])] if told else []
    frames = (*_frames_of(error.__traceback__), *(_frame(*place) for place in places[-MAX_FRAMES:]))
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return (*frames, _unreadable(error, error.filename, error.lineno))
    return frames


def _frames_of(tb: TracebackType | None) -> tuple[Frame, ...]:
    entries = list(traceback.walk_tb(tb))
    if len(entries) > MAX_FRAMES:
        entries = entries[: MAX_FRAMES // 2] + entries[-MAX_FRAMES // 2 :]
    places = [(frame.f_code.co_filename, line, frame.f_code.co_qualname) for frame, line in entries]
    return tuple(_frame(file, line, name) for file, line, name in _as_timed(places))


def _as_timed(places: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """`%%time` runs the lines below it as a file of its own: those are the cell's."""
    cell, top = places[0][:2] if places else ("", 0)
    if name_of(cell) is None or not linecache.getline(cell, top).startswith("%%time"):
        return places
    while linecache.getline(cell, top + 1).isspace():
        top += 1  # IPython leaves out empty lines at the beginning
    # Not the functions: they may be another cell's, of the same file name.
    is_timed = [file in _TIMED and name == "<module>" for file, _, name in places]
    return [(cell, top + place[1], place[2]) if timed else place for place, timed in zip(places, is_timed, strict=True)]


def _frame(file: str, line: int, name: str) -> Frame:
    return Frame(name_of(file) or file, line, name, linecache.getline(file, line).strip(), is_users(file))


def _unreadable(error: SyntaxError, file: str, line: int) -> Frame:
    """The line of a syntax error as it was typed, since its indent may be what is wrong, and below it what is meant."""
    read = (error.text or "").rstrip()
    text = linecache.getline(file, line).rstrip() or read
    is_same = text.lstrip() == read.lstrip()  # else what is meant was counted in other text
    below = f"\n{_caret(text, len(text) - len(read), error)}" if is_same and error.offset else ""
    return Frame(name_of(file) or file, line, "<module>", text + below, is_users(file))


def _caret(text: str, shift: int, error: SyntaxError) -> str:
    """Marks what a syntax error is about in its line, counted in one that has `shift` fewer blanks in front."""
    start = max((error.offset or 1) - 1 + shift, len(text) - len(text.lstrip()))
    end = (error.end_offset or 0) if error.end_lineno == error.lineno else 0
    blank = "".join(char if char.isspace() else " " for char in text[:start])
    return blank.ljust(start) + "^" * max(min(end - 1 + shift, len(text)) - start, 1)


@cache
def _is_not_ours(file: str) -> bool:
    path = Path(file)
    return not path.is_relative_to(HOME) or "site-packages" in path.relative_to(HOME).parts


def _printed(error: BaseException, shell: QuietShell) -> str:
    """The traceback in Python's own form; in another, where the user has asked for one.

    IPython's takes 8 ms of CPU for a line of a cell, and parses the whole of each file that a frame stands in: 160 ms
    for torch's collectives, 240 for a module's `forward`, 700 for a column that a DataFrame lacks. All ranks fail at
    once.
    """
    try:
        is_plain = not error.__traceback__ or _has_group(error) or _is_deep(error) or not shell.prints(error)
        return _in_python_style(error) if is_plain else "\n".join(shell.printed_error(error))
    except Exception:  # noqa: BLE001 - it calls the user's attributes, repr, str and _render_traceback_
        return _in_python_style(error)


def _is_deep(error: BaseException) -> bool:
    """IPython takes milliseconds a frame, even of those that it leaves out: seconds for a recursion without end."""
    return sum(1 for _ in traceback.walk_tb(error.__traceback__)) > MAX_FRAMES


def _in_python_style(error: BaseException) -> str:
    end = _end_of(error.__traceback__)
    told = traceback.TracebackException(type(error), error, end, limit=-_MOST_PRINTED)  # with its causes
    _leave_out_ours(told)
    text = "".join(told.format())
    return _CELL_IN_TEXT.sub(lambda match: f'File "{name_of(match[1])}"', text)


def _leave_out_ours(told: traceback.TracebackException) -> None:
    """What stands between the user's lines and those of a library: how a magic or a command is run, say."""
    left: list[traceback.TracebackException | None] = [told]
    while left:
        if (each := left.pop()) is not None:
            each.stack[:] = [frame for frame in each.stack if _is_not_ours(frame.filename)]
            left += [each.__cause__, each.__context__, *(each.exceptions or ())]


def _end_of(tb: TracebackType | None) -> TracebackType | None:
    """Its innermost frames: those of a recursion of a hundred thousand take half a minute to print."""
    for _ in range(sum(1 for _ in traceback.walk_tb(tb)) - _MOST_PRINTED):
        tb = tb.tb_next if tb is not None else None
    return tb


def _has_group(error: BaseException | None) -> bool:
    """IPython prints only the outside of an exception group."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, BaseExceptionGroup):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _survivor(error: BaseException) -> bytes | None:
    """Its pickle, if that gives the same exception again: many can be pickled, and then not be unpickled."""
    try:
        if pickles_to_at_least([error.args, vars(error)], PICKLE_LIMIT) > PICKLE_LIMIT:
            return None
        data = codec.dumps(error)
        copy = codec.loads(data)
        same = type(copy) is type(error) and str(copy) == str(error) and len(data) <= PICKLE_LIMIT
    except Exception:  # noqa: BLE001 - constructors and reducers of a user's class may raise anything
        return None
    return data if same else None
