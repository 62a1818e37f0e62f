"""The result of 1,024 ranks: made into text and HTML, painted by a browser, scrolled."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import torch
from measure import Row, check, medians, seconds_text, timed

from meshbook.kernel.outcome import Outcome, Value
from meshbook.kernel.values.results import MeshResult
from meshbook.kernel.values.summary import describe
from meshbook.widgets.base import STATIC, script
from meshbook.widgets.explorer import columns_of, facts_of
from meshbook.widgets.style import RESULT_STYLE
from meshbook.widgets.table import result_html

RANKS = 1024
AXES = {"dp": 32, "tp": 32}
SHOWN = 0.5
"""Seconds in which such a table is on the page."""

SIZE = 1 << 20
"""Bytes of HTML that it may have."""

OPEN = """async ({ source, message, columns }) => {
    const bytes = text => Uint8Array.from(atob(text), char => char.charCodeAt(0));
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const { default: { initialize, render } } = await import(url);
    let take;
    const started = performance.now();
    const model = {
        get: () => "benchmark",
        on: (_, heard) => { take = heard },
        send: ({ kind }) => kind === "hello" && queueMicrotask(() => take(message, columns.map(bytes))),
    };
    initialize({ model });
    render({ el: document.body, model });
    while (!document.querySelector("[data-frame]")) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return (performance.now() - started) / 1e3;
}"""

SCROLL = """async seconds => {
    const scroller = document.querySelector(".mb-scroll"), times = [];
    const started = performance.now();
    let last = started, top = 0;
    while (last - started < seconds * 1e3) {
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - last);
        last = performance.now();
        top = (top + 100) % (scroller.scrollHeight - scroller.clientHeight);
        scroller.scrollTop = top;
    }
    return 1e3 * times.length / (last - started);
}"""

PAINT = """async html => {
    const started = performance.now();
    document.body.innerHTML = html;
    document.body.getBoundingClientRect();
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return (performance.now() - started) / 1e3;
}"""


def measure(is_quick: bool) -> Iterator[Row]:
    repeats = 2 if is_quick else 9
    generator = torch.Generator().manual_seed(0)
    numbers = [msgspec.msgpack.encode(Outcome(Value("float", repr(rank / 7)))) for rank in range(RANKS)]
    seen = [describe(torch.rand(64, 64, generator=generator)) for _ in range(RANKS)]
    matrices = [msgspec.msgpack.encode(Outcome(msgspec.structs.replace(value, pickled=None))) for value in seen]
    works = {
        "numbers": timed(partial(bundle, numbers)),
        "matrices": timed(partial(bundle, matrices)),
        "message": timed(partial(message_of, numbers)),
    }
    bundle(numbers)
    times = medians(repeats, works)
    for name, outcomes in (("numbers", numbers), ("64 x 64 matrices", matrices)):
        seconds, size = times[name.split()[-1]], len(bundle(outcomes)["text/html"])
        yield Row(f"{RANKS:,} {name} as a bundle", seconds_text(seconds), "", seconds * 1e3, "ms", SHOWN * 1e3)
        yield Row("  their size", f"{size:,} chars", "", size / SIZE, "MiB", 1.0)
    size = len(message_of(numbers)[0])
    yield Row("  message of r.table()", f"{size:,} chars", "", times["message"] * 1e3, "ms")
    yield from in_a_browser(numbers, times["numbers"], 1.0 if is_quick else 5.0)


def result_of(outcomes: list[bytes]) -> MeshResult:
    """A result that nothing has been asked of yet."""
    seconds = {rank: rank / 1e3 for rank in range(RANKS)}
    return MeshResult(AXES, range(RANKS), dict(enumerate(outcomes)), seconds, {}, pickle.loads, result_html, "r")


def bundle(outcomes: list[bytes]) -> dict[str, str]:
    made = result_of(outcomes)._repr_mimebundle_()
    whole = made["text/html"].rpartition("<table")[2]  # below the rows at a glance, where there are any
    check(whole.count("<tr") == RANKS + 1, "rows are missing")
    return made


def message_of(outcomes: list[bytes]) -> tuple[str, list[bytes]]:
    result = result_of(outcomes)
    return json.dumps({"kind": "rows", **facts_of(result)}), columns_of(result)


def in_a_browser(outcomes: list[bytes], made: float, seconds: float) -> Iterator[Row]:
    """Nothing where there is no chromium or no playwright."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("results: no chromium and playwright here, so nothing is painted", file=sys.stderr)
        return
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        yield from painted(page, outcomes, made, seconds)
        browser.close()


def painted(page: Any, outcomes: list[bytes], made: float, seconds: float) -> Iterator[Row]:
    html = bundle(outcomes)["text/html"]
    page.set_content("<body></body>")
    took = sorted(page.evaluate(PAINT, html) for _ in range(3))[1]
    check(page.locator("table").last.locator("tbody tr").count() == RANKS, "rows are not on the page")
    more = f"{seconds_text(made)} to make it"
    yield Row("  static table on the page", seconds_text(took), more, (made + took) * 1e3, "ms", SHOWN * 1e3)
    page.set_content(f"{RESULT_STYLE}<style>{(STATIC / 'table.css').read_text()}</style><body></body>")
    text, columns = message_of(outcomes)
    facts = {"message": json.loads(text), "columns": [b64encode(column).decode() for column in columns]}
    started = time.perf_counter()
    took = page.evaluate(OPEN, {"source": script("home.js", "table.js"), **facts})
    check(page.locator("tbody tr").count() < 100, "rows out of sight are on the page")
    whole = f"{seconds_text(time.perf_counter() - started)} with its transfer"
    yield Row("  r.table() on the page", seconds_text(took), whole, took * 1e3, "ms", SHOWN * 1e3)
    yield Row("  while it scrolls", "", "", page.evaluate(SCROLL, seconds), "frames/s", 59.0, at_least=True)
