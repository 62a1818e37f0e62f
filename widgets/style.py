"""The one style of what meshbook draws: the frontend's own theme, Okabe-Ito accents, quiet type.

All of it is scoped to `.meshbook`, doubled or more where JupyterLab's rules are as specific. A frontend
that strips the style (GitHub, an untrusted notebook) leaves plain tables and `<details>`, which read as well.
"""

from __future__ import annotations

from typing import Final

_LIGHT: Final = "--mb-ok:#0072b2;--mb-wait:#8f5d00;--mb-bar:#e69f00;--mb-bad:#c04f00;"
_DARK: Final = "--mb-ok:#56b4e9;--mb-wait:#f0b429;--mb-bar:#f0b429;--mb-bad:#ff8552;"

_NAMES: Final = f"""
.meshbook,.mb-wall{{{_LIGHT}
--mb-fg:var(--jp-ui-font-color1,CanvasText);--mb-dim:var(--jp-ui-font-color2,GrayText);
--mb-line:var(--jp-border-color2,color-mix(in srgb,CanvasText 20%,transparent));
--mb-mono:var(--jp-code-font-family,ui-monospace,Menlo,monospace)}}
:is(body[data-jp-theme-light=false],.vscode-dark) :is(.meshbook,.mb-wall){{{_DARK}}}
"""

_LINE: Final = f"""{_NAMES.rstrip()}
.meshbook{{color:var(--mb-fg);font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);overflow-x:auto}}
.meshbook.meshbook.meshbook code,.meshbook.meshbook pre,.meshbook summary{{font:12.5px/1.5 var(--mb-mono);color:inherit;
background:none;border:0;margin:0;padding:0;white-space:pre-wrap}}
.meshbook .mb-dim{{color:var(--mb-dim)}}
"""

_BASE: Final = f"""{_LINE.strip()}
.meshbook.meshbook table{{border-collapse:collapse;margin:2px 0;border:0;table-layout:auto;font-size:12.5px}}
.meshbook.meshbook tbody tr{{background:none}}
.meshbook.meshbook thead th{{font-weight:600;font-size:11px;color:var(--mb-dim);background:none;
border:0;border-bottom:1px solid var(--mb-line)}}
.meshbook.meshbook tr>*{{text-align:left;vertical-align:baseline;padding:3px 18px 3px 0;max-width:none;
border:0;border-bottom:1px solid color-mix(in srgb,var(--mb-line) 55%,transparent)}}
.meshbook.meshbook tbody th{{font-weight:400;white-space:nowrap}}
.meshbook.meshbook .mb-sheet :is(td,th){{white-space:nowrap}}.meshbook.meshbook .mb-sheet .mb-long{{white-space:normal}}
.meshbook.meshbook tr.mb-odd>*{{background:color-mix(in srgb,var(--mb-bar) 9%,transparent)}}
.meshbook.meshbook tr.mb-bad>*{{background:color-mix(in srgb,var(--mb-bad) 11%,transparent)}}
.meshbook tr.mb-odd,.meshbook tr.mb-bad{{--mb-dim:color-mix(in srgb,var(--mb-fg) 72%,transparent)}}
.meshbook tr.mb-odd>:first-child{{box-shadow:inset 3px 0 var(--mb-bar)}}
.meshbook tr.mb-bad>:first-child{{box-shadow:inset 3px 0 var(--mb-bad)}}
.meshbook.meshbook tr.mb-odd>:first-child,.meshbook.meshbook tr.mb-bad>:first-child{{padding-left:9px}}
.meshbook .mb-mark{{color:var(--mb-wait)}}
.meshbook .mb-bad .mb-mark,.meshbook .mb-bad.mb-mark{{color:var(--mb-bad)}}
.meshbook .mb-foot{{color:var(--mb-dim);font-size:11.5px}}
.meshbook.meshbook.meshbook .mb-foot code{{font-size:11.5px;
border:1px solid var(--mb-line);border-radius:3px;padding:0 5px}}
.meshbook img,.meshbook svg{{max-width:100%;height:auto;background:none}}
.meshbook details{{margin:0}}.meshbook summary{{cursor:pointer;display:list-item}}
.meshbook .mb-head{{color:var(--mb-bad);font-weight:600}}
.meshbook .mb-hot{{display:inline-block;width:100%;
background:color-mix(in srgb,var(--mb-bad) 15%,transparent)}}
"""

RESULT_CSS: Final = f"""{_BASE.strip()}
:is(.mb-result,.mb-all)>table>tbody>tr>td:not(.mb-value){{color:var(--mb-dim);white-space:nowrap}}
.meshbook img.mb-heat{{image-rendering:pixelated;display:block;flex:none}}
.meshbook .mb-side{{display:flex;gap:14px;align-items:start;margin:3px 0}}
.meshbook.meshbook .mb-side pre{{white-space:pre;overflow:auto;max-height:128px;font-size:11px;line-height:1.35}}
.meshbook caption.mb-heard{{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);
white-space:nowrap}}
.meshbook .mb-all>summary{{color:var(--mb-dim);font-size:11.5px;width:max-content}}
.meshbook .mb-tools{{display:flex;gap:14px;align-items:center;margin:2px 0 4px;font-size:11.5px}}
.meshbook .mb-tools button,.meshbook .mb-tools input[type=search]{{font:inherit;color:inherit;
background:transparent;border:1px solid var(--mb-line);border-radius:3px;padding:2px 6px;margin:0}}
.meshbook .mb-tools label{{display:flex;gap:4px;align-items:center}}
.meshbook thead th button{{all:unset;cursor:pointer}}
.meshbook thead th button:hover{{color:var(--mb-fg)}}
.meshbook .mb-tools :focus-visible,.meshbook thead button:focus-visible,.meshbook summary:focus-visible{{
outline:2px solid var(--mb-ok);outline-offset:1px}}
.meshbook th[aria-sort=ascending] button::after{{content:" ↑"}}
.meshbook th[aria-sort=descending] button::after{{content:" ↓"}}
.meshbook .mb-page>summary{{padding:2px 9px}}.meshbook .mb-page>div{{padding:2px 0 8px 24px}}
.meshbook .mb-page.mb-odd>summary{{background:color-mix(in srgb,var(--mb-bar) 9%,transparent);
box-shadow:inset 3px 0 var(--mb-bar)}}
.meshbook .mb-page.mb-bad>summary{{background:color-mix(in srgb,var(--mb-bad) 11%,transparent);
box-shadow:inset 3px 0 var(--mb-bad)}}
"""
"""The rules for results: tables with their tools, pictures and pages."""

LINE_STYLE: Final = f"<style>{_LINE.strip()}</style>"
"""For an output that is one line."""

_WALL: Final = """
.mb-wall{display:flex;flex-wrap:wrap;gap:8px;margin:4px 0;align-items:start;overflow-x:auto}
.mb-wall:focus-visible{outline:2px solid var(--mb-ok);outline-offset:-2px}
.mb-wall>details{margin:0;max-width:max(90px,calc((100% - (var(--mb-columns) - 1)*8px)/var(--mb-columns)))}
.mb-wall>details[open]{flex-basis:100%;max-width:100%}
.mb-wall>*>:is(summary,figcaption){font:12.5px/1.5 var(--mb-mono);color:var(--mb-dim)}
.mb-wall>*>summary{display:block;list-style:none;cursor:zoom-in}
.mb-wall>details[open]>summary{cursor:zoom-out}
.mb-wall>*>summary::-webkit-details-marker{display:none}
.mb-wall>*>summary:focus-visible{outline:2px solid var(--mb-ok);outline-offset:1px}
.mb-wall>*>summary>img{display:block;max-width:100%;height:auto}
.mb-wall>figure{margin:0 16px 8px 0}
"""
# Not inside of `.meshbook`: tables of the user's look as everywhere in the notebook.

WALL_STYLE: Final = f"<style>{_NAMES.strip()}{_WALL.rstrip()}</style>"
"""For pictures and tables side by side."""

RESULT_STYLE: Final = f"<style>{RESULT_CSS.strip()}</style>"

EXHIBITS_STYLE: Final = f"<style>{_BASE.strip()}{_WALL.rstrip()}</style>"
"""For a result that is pictures or tables."""

STYLE: Final = f"<style>{_BASE.strip()}</style>"
"""One `<style>` element; every output carries its own, so that each stands alone in the saved notebook."""
