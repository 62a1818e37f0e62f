"""`%mesh stacks` as HTML that needs no kernel, no script and no style to be read."""

from __future__ import annotations

from html import escape
from typing import Any

from ..kernel.debug.converse import gutter
from ..kernel.outcome import Frame
from ..kernel.waiting.report import StackReport
from ..kernel.waiting.stacks import Branch, Stack, endings, folded_frames, place_of
from .style import STYLE

_INDENT = "margin-left:18px;padding-left:10px;border-left:1px solid var(--mb-line)"


class StacksView:
    """A report of stacks, as text, data and HTML."""

    def __init__(self, report: StackReport) -> None:
        self.report = report

    def data(self) -> list[dict[str, Any]]:
        """One dict a rank (see `StackReport.data`)."""
        return self.report.data()

    def __repr__(self) -> str:
        return repr(self.report)

    def _repr_html_(self) -> str:
        return stacks_html(self.report)


def stacks_html(report: StackReport) -> str:
    """The tree of stacks; the innermost line of the user's own in each branch is marked."""
    parts = [f"<b>{escape(report.title)}</b>"]
    parts += [_branch(report, branch) for branch in report.tree]
    for ranks, words, is_bad in report.rest:
        kind, mark = ("mb-bad", "✗ ") if is_bad else ("mb-dim", "")
        who = f'<span class="mb-mark">{mark}</span><strong>{escape(report.who(ranks))}</strong>'
        parts.append(f'<div class="{kind}">{who} &nbsp;{escape(words)}</div>')
    parts += _threads(report)
    if report.locals:
        parts.append(f"<pre>{escape(gutter(report.locals))}</pre>")
    if report.note:
        parts.append(f'<div class="mb-foot">{escape(report.note)}</div>')
    body = "\n".join(parts)
    return f'{STYLE}<div class="meshbook" role="region" aria-label="stacks of the mesh">{body}</div>'


def _branch(report: StackReport, branch: Branch) -> str:
    lines = [f"<div><strong>{escape(report.who(branch.ranks))}</strong>"]
    is_last = bool(branch.ends) or not any(map(_has_user, branch.branches))
    lines.append(f"<pre>{_frames(branch.frames, is_last)}</pre>")
    for ranks, words in endings(branch.ends):
        is_all = len(ranks) == len(branch.ranks)
        if words or not is_all:
            who = "" if is_all else f"<strong>{escape(report.who(ranks))}</strong> &nbsp;"
            lines.append(f'<div><span class="mb-mark">→</span> {who}{escape(words or "here")}</div>')
    if branch.branches:
        below = "".join(_branch(report, each) for each in branch.branches)
        lines.append(f'<div style="{_INDENT}">{below}</div>')
    return "".join([*lines, "</div>"])


def _has_user(branch: Branch) -> bool:
    return any(frame.is_user for frame in branch.frames) or any(map(_has_user, branch.branches))


def _frames(frames: Stack, is_last: bool = False) -> str:
    hot = next((frame for frame in reversed(frames) if frame.is_user), None) if is_last else None
    return "\n".join(_frame(each, is_hot=each is hot) for each in folded_frames(frames))


def _frame(frame: Frame | int, is_hot: bool) -> str:
    if isinstance(frame, int):
        return f'<span class="mb-dim">   … {frame} more</span>'
    text = f"   {place_of(frame)}   {frame.source}".rstrip()
    if is_hot:
        return f'<span class="mb-hot">{escape(text)}</span>'
    return escape(text) if frame.is_user else f'<span class="mb-dim">{escape(text)}</span>'


def _threads(report: StackReport) -> list[str]:
    if not report.threads:
        return []
    rows = [f"<div>{escape(report.thread_text(*each))}</div><pre>{_frames(each[2])}</pre>" for each in report.threads]
    count = f"{len(report.threads)} other thread{'s' * (len(report.threads) > 1)}"
    return [f'<details><summary class="mb-dim">{count}</summary>{"".join(rows)}</details>']
