"""A notebook as a script: what is written for which cells, and that it is Python."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshbook.kernel.sources.export import MARK, Setting, script
from meshbook.kernel.sources.journal import Entry, Journal
from meshbook.kernel.sources.plain_source import indented, plain_source

TWO_BY_TWO = Setting({"dp": 2, "tp": 2}, "cpu", "gloo")
ALL = (0, 1, 2, 3)


def written(*cells: tuple[str, tuple[int, ...]], setting: Setting = TWO_BY_TWO, **options: Any) -> str:
    entries = [Entry(f"cell {number}", source, 1, ranks) for number, (source, ranks) in enumerate(cells, 1)]
    text = script(setting, entries, **options)
    compile(text, "script.py", "exec")
    return text


@pytest.mark.parametrize(
    ("ranks", "condition"),
    [
        ((0, 1), 'if coord["dp"] == 0:'),
        ((1, 3), 'if coord["tp"] == 1:'),
        ((3,), 'if coord["dp"] == 1 and coord["tp"] == 1:'),
        ((0, 3), "if rank in (0, 3):"),
    ],
)
def test_a_slice_is_an_if_over_coordinates_with_its_group(ranks: tuple[int, ...], condition: str) -> None:
    text = written(("x = 1", ALL), ("dist.barrier(group=group)", ranks))
    assert f"    {ranks}: dist.new_group({list(ranks)})," in text
    assert (
        f"# cell 2\n{condition}\n    group = _groups[{ranks}]\n    _show(dist.barrier(group=group), by={ranks[0]})"
        in text
    )
    assert "# cell 1\ngroup = dist.group.WORLD\nx = 1" in text


def test_a_slice_of_a_long_axis_names_its_indices() -> None:
    text = written(("1;", (1, 2)), setting=Setting({"dp": 4}, "cpu", "none"))
    assert 'if coord["dp"] in (1, 2):' in text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x + 1", "_show(x + 1, by=0)"),
        ("x, y  # both", "_show((x, y), by=0)  # both"),
        ("'é' * (2 +\n 3)", "_show('é' * (2 +\n 3), by=0)"),
        ("x = 1; x", "x = 1; _show(x, by=0)"),
        ("x;", "x;"),
        ("print(1)", "_show(print(1), by=0)"),
        ("if x:\n    !ls {x}\n    y = 1", "if x:\n    pass  # !ls {x}\n    y = 1"),
        ("%matplotlib inline\nx = 1", "pass  # %matplotlib inline\nx = 1"),
        ("files = !ls\nx = 1", "pass  # files = !ls\nx = 1"),
        ("x = (5\n  % 3)", "x = (5\n  % 3)"),
        ("text = '''\n!not a command\n'''", "text = '''\n!not a command\n'''"),
        ("%%time\nx = 1", "x = 1"),
        ("x = 'a\u2028b'\nx", "x = 'a\u2028b'\n_show(x, by=0)"),
        ("%%bash\nls", "# %%bash\n# ls"),
        ("len?", "pass  # len?"),
        ("def broken(", "# def broken("),
        ("from __future__ import annotations\nx: Odd = 1", "x: Odd = 1"),
        (
            "import asyncio\ny = await work()\ny",
            "async def cell():\n    global asyncio, y\n    import asyncio\n    y = await work()\n    _show(y, by=0)\n\n"
            "_loop.run_until_complete(cell())",
        ),
    ],
)
def test_a_cell_is_plain_python(source: str, expected: str) -> None:
    assert plain_source(source, "cell").text == expected


AWAITS = "import asyncio\nawait asyncio.sleep(0)"


def ran_as_script(source: str) -> dict[str, Any]:
    """The names that a cell leaves behind in a script."""
    text = plain_source(source, "_run").text
    names: dict[str, Any] = {"_loop": asyncio.new_event_loop(), "_show": lambda value, by: None}
    try:
        exec(compile(text, "script.py", "exec", dont_inherit=True), names)
    finally:
        names["_loop"].close()
    return {name: value for name, value in names.items() if not name.startswith("_") and name != "asyncio"}


@pytest.mark.parametrize(
    ("source", "bound"),
    [
        ("steps: int = 3\nbare: int", {"steps": 3}),
        ("x: dict[str, int]={'é': 1}; y: (  # a = b\n  int) = (1 +\n  2)\nif y: z: int", {"x": {"é": 1}, "y": 3}),
        ('text: str = """a\n = b"""\n(kept): int = 2', {"text": "a\n = b", "kept": 2}),
        ("match [1, 2, 3]:\n    case [a, *b]: pass", {"a": 1, "b": [2, 3]}),
        ("match {'k': 1, 'm': 2}:\n    case {'k': c, **d}: pass", {"c": 1, "d": {"m": 2}}),
        ("match 4:\n    case int() as e: pass\nmatch 5:\n    case n: pass", {"e": 4, "n": 5}),
        ("x = [w := i for i in range(3)]", {"x": [0, 1, 2], "w": 2}),
        ("for i, (j, *k) in [(1, (2, 3))]: pass", {"i": 1, "j": 2, "k": [3]}),
        (
            "from contextlib import nullcontext as n\nwith n(1) as w: pass\nasync with n(2) as v: pass\ndel n",
            {"w": 1, "v": 2},
        ),
        ("try: 1 / 0\nexcept ZeroDivisionError as e: y = 1\ndel asyncio", {"y": 1}),
        ("global g\ng = 1\nclass C:\n    x: int = 1\ny, C = C.x, 2", {"g": 1, "y": 1, "C": 2}),
        ("def f(a: int):\n    b: int = a\n    global c\n    c = b\nf(5)\ndel f", {"c": 5}),
    ],
)
def test_a_cell_that_awaits_binds_the_names_of_the_script(source: str, bound: dict[str, Any]) -> None:
    assert ran_as_script(f"{AWAITS}\n{source}") == bound


def test_a_cell_that_awaits_imports_all_of_a_module_where_it_stands() -> None:
    source = f"{AWAITS}\nif True:\n    from colorsys import *; x = rgb_to_hsv(0, 0, 0)"
    assert set(ran_as_script(source)) >= {"rgb_to_hsv", "x"}


@pytest.mark.parametrize(
    "source",
    [
        "async def agen():\n    yield 1\nx = [i async for i in agen()]",
        "async def f(): return 1\nclass A:\n    x = 1\ndef g(a=await f()): return a\nx = [g()]",
        "async def f(): return lambda g: [1]\n@(await f())\ndef x(): pass",
    ],
)
def test_what_awaits_without_a_statement_of_its_own_awaits_too(source: str) -> None:
    assert ran_as_script(source)["x"] == [1]


def test_a_name_is_used_before_another_cell_calls_it_global() -> None:
    assert "# WARNING" not in written(("x = 1", ALL), ("if x:\n    global x\n    x = 2", ALL), ("global x; x = 3", ALL))


def test_a_script_that_is_no_python_says_so() -> None:
    text = script(TWO_BY_TWO, [Entry("cell 1", "def f():\n    return 1\nreturn f()", 1, ALL)])
    assert re.search(r"\n# WARNING this script does not compile: line \d+: 'return' outside function\n$", text)


def test_what_was_left_out_is_warned_of() -> None:
    text = written(("x = 1\n!ls", ALL), ("%%bash\nls", ALL))
    assert "# cell 1\n# WARNING cell 1: line 2 is notebook syntax and was left out\n" in text
    assert "# WARNING cell 2: left out: %%bash is notebook syntax" in text


def test_text_in_strings_stays_where_it_is() -> None:
    source = 'def f():\n    return """a\n  b\n"""\nx = f"""{1}\nc"""'
    names: dict[str, Any] = {}
    exec(f"if True:\n{indented(source)}", names)
    assert (names["f"](), names["x"]) == ("a\n  b\n", "1\nc")


def test_awaiting_cells_bind_their_names_for_all() -> None:
    cell = """from math import *
import asyncio
steps: int = 3; more = 4
bare: float
long: dict[
    str, int
] = {
    "a": 1,
}
await asyncio.sleep(0)
match [1, 2, {"k": 5, "z": 6}]:
    case [one, *others, {"k": five, **rest}] as whole:
        pass
(walrus := 9)
for i in range(2):
    inner: int = i
"""
    names: dict[str, Any] = {"_loop": asyncio.new_event_loop(), "_show": lambda *_, **__: None}
    exec(plain_source(cell, "cell_1").text, names)
    names["_loop"].close()
    found = [names[name] for name in ("steps", "more", "long", "one", "others", "five", "rest", "walrus", "inner")]
    assert found == [3, 4, {"a": 1}, 1, [2], 5, {"z": 6}, 9, 1]
    assert names["pi"] > 3 and names["whole"][0] == 1 and "bare" not in names


def test_cells_that_failed_and_those_not_asked_for_are_left_out() -> None:
    entries = [Entry(f"cell {number}", f"x{number} = 1", 1, ALL) for number in (1, 2, 3)]
    entries[1].failed.add(0)
    text = script(TWO_BY_TWO, entries, cells={2, 3})
    assert "x1" not in text
    assert "# cell 2 is left out: it failed in the notebook" in text
    assert "x3 = 1" in text


def test_futures_stand_at_the_top() -> None:
    text = written(("from __future__ import annotations\nx: Odd = 1", ALL))
    assert text.index("from __future__ import annotations") < text.index("import asyncio")


def test_what_was_pushed_is_written_or_asked_for() -> None:
    journal = Journal()
    journal.note_push({"lr": 0.1, "names": ["a", ("b", 2)]}, ALL)
    journal.note_push({"only": 5}, (2, 3))
    text = script(TWO_BY_TWO, journal.notes)
    assert "lr = 0.1\nnames = ['a', ('b', 2)]\nif coord[\"dp\"] == 1:\n    only = 5" in text
    assert "NotImplementedError" not in text
    journal.note_push({"data": object(), "far": float("inf")}, ALL)
    text = script(TWO_BY_TWO, journal.notes)
    assert 'raise NotImplementedError("make data, far here: pushed from the notebook with `%mesh push`")' in text


def test_pushes_stand_between_the_cells_between_which_they_were_made() -> None:
    journal = Journal()
    journal.note_push({"lr": 0.3}, ALL)
    journal.note("cell 1", "lr = 0.1", 1, ALL)
    journal.note_push({"lr": 0.4, "unread": 1}, ALL)
    journal.note_push({"lr": 0.5}, ALL)
    journal.note("cell 2", "lr;", 1, ALL)
    text = script(TWO_BY_TWO, journal.notes)
    assert text.count("# Pushed from the notebook.") == 2
    assert re.findall(r"^lr.*$", text, re.MULTILINE) == ["lr = 0.3", "lr = 0.1", "lr = 0.5", "lr;"]


@pytest.mark.slow
def test_without_groups_it_runs_as_it_is(tmp_path: Path) -> None:
    setting = Setting({"dp": 1}, "cpu", "none")
    cells = ("import asyncio\nx = await asyncio.sleep(0, 7)", "x + rank", "mesh.coord, mesh.sizes, device")
    text = written(*((cell, (0,)) for cell in cells), setting=setting)
    assert text.startswith(MARK)
    (tmp_path / "script.py").write_text(text)
    env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("7\n({'dp': 0}, {'dp': 1}, 'cpu')\n", "")


@pytest.mark.slow
def test_coordinates_are_in_the_order_of_the_axes(tmp_path: Path) -> None:
    text = written(("print(list(coord.items()))", (0, 1, 2, 3)), setting=Setting({"dp": 2, "tp": 2}, "cpu", "none"))
    (tmp_path / "script.py").write_text(text)
    env = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[('dp', 0), ('tp', 1)]\n", "")
