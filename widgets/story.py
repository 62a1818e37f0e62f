"""The story of an error as HTML; what it says is made in `kernel.story`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ..kernel.outcome import Frame
from ..kernel.story import Chapter, Fate, Story, place_text, times
from .style import STYLE


def story_html(story: Story) -> str:
    """A story as HTML that needs no kernel, no script and no style to be read."""
    parts = [f'<p class="mb-head">✗ {escape(story.headline)}</p>']
    parts += map(_chapter, story.chapters)
    parts += map(_fate, story.fates)
    if story.num_more:
        parts.append(f'<p class="mb-dim">… and {story.num_more:,} more of the kind</p>')
    parts += [f'<p><span class="mb-mark">≠</span> {_text(note)}</p>' for note in story.notes]
    if story.mended:
        parts.append(f'<p><span class="mb-mark">↻</span> {_text(story.mended)}</p>')
    hints = [f"{escape(hint.purpose)}: <code>{escape(hint.command)}</code>" for hint in story.hints]
    parts.append(f'<p class="mb-foot">{" &nbsp; ".join(hints)}</p>')
    label = escape(story.headline)
    body = "\n".join(parts)
    story_div = f'<div class="mb-story">{body}</div>'
    return f'{STYLE}<div class="meshbook" role="region" aria-label="{label}">{story_div}</div>'


def _chapter(chapter: Chapter) -> str:
    first, *others = chapter.messages
    title = f"{chapter.type_name}: {first}".removesuffix(": ")
    lines = [f"{_who(chapter.where, chapter.num_ranks)} &nbsp;{_text(title)}"]
    lines += [f"also: {_text(message)}" for message in others]
    if hidden := chapter.num_messages - len(chapter.messages):
        lines.append(f'<span class="mb-dim">and {hidden:,} other message{"s" * (hidden != 1)}</span>')
    return f"<p>{'<br>'.join(lines)}</p>{frames_html(chapter.frames, chapter.library)}"


def frames_html(frames: Iterable[Frame | int], library: Frame | None = None) -> str:
    """Lines of the user's own that an error went through, and where it was raised if that is none of them."""
    lines = [line for frame in frames for line in _frame(frame)]
    if library is not None:
        lines.append(f'<span class="mb-dim">   raised in {escape(place_text(library))}</span>')
    return f"<pre>{_joined(lines)}</pre>" if lines else ""


def _frame(frame: Frame | int) -> list[str]:
    if isinstance(frame, int):
        return [f'<span class="mb-dim">   … {frame} more frames</span>']
    hot = f" → {frame.line}  {frame.source}".rstrip()
    return [f"   {escape(place_text(frame))}", f'<span class="mb-hot">{escape(hot)}</span>']


def _fate(fate: Fate) -> str:
    mark, kind = ("✗", "mb-bad mb-mark") if fate.is_lost else ("◌", "mb-mark")
    line = f'<span class="{kind}">{mark}</span> {_who(fate.where, fate.num_ranks)} &nbsp;{_text(fate.text)}'
    last = f'<pre class="mb-dim">{_joined(map(escape, fate.last_lines))}</pre>' if fate.last_lines else ""
    return f"<p>{line}</p>{last}"


def _who(where: str, num_ranks: int) -> str:
    return f"<strong>{escape(where)}</strong>{times(num_ranks)}"


def _text(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines)
