"""`%mesh` and `%%on_mesh` in a real kernel, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture(scope="module", autouse=True)
def well(shared_kernel: Kernel) -> None:
    """No rank has failed in its last cell, whatever the tests of other files have done."""
    shared_kernel.ok("%%on_mesh -m m\nNone")


def test_a_mesh_that_is_assigned_comes_back_and_one_alone_on_its_line_shows_its_banner(kernel: Kernel) -> None:
    taken = kernel.ok("other = %mesh up other -n 2 --pg none --device cpu")
    assert taken.results == []
    assert taken.text.startswith("mesh other   rank=2 · 2 ranks on cpu · no process group · ready in ")
    assert kernel.value("repr(other)") == "<Mesh other rank=2>"
    assert kernel.ok("%mesh down other").stdout == "mesh 'other' is down: ranks 0-1 exited with code 0\n"
    alone = kernel.ok("# a comment\n%mesh up dp=1 --device cpu --pg none")
    assert alone.results == []
    assert alone.text.count("mesh m0") == 1
    assert "text/html" in alone.shown[0]
    assert kernel.ok("%mesh down").stdout.startswith("mesh 'm0' is down")


def test_a_mesh_can_be_brought_up_by_code(kernel: Kernel) -> None:
    kernel.ok("names = [get_ipython().run_line_magic('mesh', f'up {n} dp=1 --pg none').name for n in ('a', 'b')]")
    assert kernel.value("names") == ["a", "b"]
    for name in ("b", "a"):
        kernel.ok(f"%mesh down {name}")


def test_status_shows_every_rank(kernel: Kernel) -> None:
    outputs = kernel.ok("%mesh")
    assert outputs.results[0].startswith("mesh m   dp=2 × tp=2   4 idle\n● rank 0 (dp=0,tp=0)  idle for ")
    assert outputs.shown[0]["text/html"].count("<tr") == 5
    rows = json.loads(kernel.value("get_ipython().run_line_magic('mesh', 'status tp=1 --json')"))
    assert [(row["rank"], row["coord"], row["state"]) for row in rows] == [
        (1, {"dp": 0, "tp": 1}, "idle"),
        (3, {"dp": 1, "tp": 1}, "idle"),
    ]


def test_use_makes_a_mesh_or_a_slice_current(kernel: Kernel) -> None:
    kernel.ok("%mesh up side dp=1 --pg none")
    assert kernel.ok("%mesh ls").results == ["  m   dp=2 × tp=2 · 4 ranks · idle 0-3\n* side   dp=1 · 1 ranks · idle 0"]
    told = kernel.ok("%mesh use m[dp=1]").stdout
    assert told == "m[dp=1]: cells, push and pull go to ranks 2-3; `%mesh use m` to all\n"
    assert "* m[dp=1]   dp=2 × tp=2" in kernel.ok("%mesh ls").text
    kernel.ok("r = %on_mesh -- rank")
    assert kernel.value("r.values()") == [2, 3]
    kernel.ok("r = %on_mesh -m side -- world_size")
    assert kernel.value("r.values()") == [1]
    kernel.ok("%mesh down side")
    listed = json.loads(kernel.value("get_ipython().run_line_magic('mesh', 'ls --json')"))
    assert [(mesh["name"], mesh["is_current"], mesh["states"]) for mesh in listed] == [("m", True, {"idle": "0-3"})]


def test_restart_gives_fresh_ranks_and_the_same_mesh(kernel: Kernel, gone: Any) -> None:
    kernel.ok("old = %mesh up again dp=2 --pg none --env WHO=me")
    kernel.ok("%%on_mesh\nx = 1")
    pids = kernel.pids()
    assert kernel.ok("new = %mesh restart --replay none").stdout.startswith("ranks 0-1 are back in ")
    gone(pids)
    kernel.ok("r = %on_mesh -- ('x' in globals(), __import__('os').environ['WHO'])")
    assert kernel.value("r.values()") == [(False, "me")] * 2
    assert kernel.value("(new is old, old.is_down, new.name)") == (True, False, "again")
    kernel.ok("%mesh down again")


def test_push_and_pull(kernel: Kernel) -> None:
    kernel.ok("a, b = 3, [1]")
    assert kernel.ok("%mesh push a b --sel dp=0").stdout == "pushed a, b to ranks 0-1\n"
    kernel.ok("r = %on_mesh dp=0 -- (a + rank, b)")
    assert kernel.value("r.values()") == [(3, [1]), (4, [1])]
    # The rank that answers last is the first all the same.
    body = "class Slow:\n    def __reduce__(self):\n        time.sleep(0.2 * (rank == 0))\n        return int, (rank,)"
    kernel.ok(f"%%on_mesh\n{body}\nslow, x = Slow(), torch.ones(2) * rank")
    kernel.ok("listed = %mesh pull slow\nby_rank = %mesh pull slow --sel tp=1 --as dict\nxs = %mesh pull x --as stack")
    assert kernel.value("(listed, by_rank, slow is by_rank)") == ([0, 1, 2, 3], {1: 1, 3: 3}, True)
    assert kernel.value("xs.tolist()") == [[0, 0], [1, 1], [2, 2], [3, 3]]
    kernel.ok("both = %mesh pull slow x")
    assert kernel.value("(both['slow'], len(both['x']))") == ([0, 1, 2, 3], 4)


def test_a_large_value_is_pulled_when_it_is_asked_for(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh 0\nlarge = bytes(10_000)")
    refused = kernel.cell("%mesh pull large --sel 0 --max-bytes 1k")
    assert refused.status == "error"
    assert "over the limit of 1 KB: ask for it with --max-bytes 10" in refused.error
    kernel.ok("%mesh pull large --sel 0 --max-bytes 20k;")
    assert kernel.value("len(large[0])") == 10_000


def test_help(kernel: Kernel) -> None:
    for line, usage in [
        ("%mesh -h", "usage: %mesh [COMMAND]"),
        ("%mesh up -h", "usage: %mesh up [NAME] AXIS=N"),
        ("%%on_mesh -h", "usage: %%on_mesh [SELECTOR] [options]"),
        ("%on_mesh -h", "usage: %%on_mesh [SELECTOR] [options]"),
    ]:
        assert kernel.ok(line).stdout.startswith(usage)
    for line, part in [("%mesh?", "Make a mesh, or a slice of it, the current one."), ("%%on_mesh?", "--timeout S")]:
        assert part in kernel.ok(line).reply["payload"][0]["data"]["text/plain"]


def test_completion(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\nmodel_a = torch.nn.Linear(1, 1)")
    for text, expected in [
        ("%mesh res", ["%mesh restart", "%mesh resize"]),
        ("%mesh up --dev", ["%mesh up --device"]),
        ("%mesh up --device cu", ["%mesh up --device cuda"]),
        ("%mesh use ", ["%mesh use m"]),
        ("%%on_mesh dp=", ["%%on_mesh dp=0", "%%on_mesh dp=1", "%%on_mesh dp=:"]),
        ("%%on_mesh --sh", ["%%on_mesh --show"]),
        ("%%on_mesh dp=0,t", ["%%on_mesh dp=0,tp="]),
        ("%%on_mesh\nmodel_", ["%%on_mesh\nmodel_a"]),
        ("%%on_mesh dp=0\nmodel_a.in_", ["%%on_mesh dp=0\nmodel_a.in_features"]),
        ("x = %on_mesh -- model_a.out", ["x = %on_mesh -- model_a.out_features"]),
    ]:
        assert kernel.completions(text) == expected
    assert "%mesh interrupt" in kernel.completions("%mesh ")
    assert "isinstance" in kernel.completions("isinst")


def test_a_cell_runs_on_all_ranks_and_its_result_is_kept(kernel: Kernel) -> None:
    outputs = kernel.ok("# first\n\n%%on_mesh -o r\nx = torch.ones(2) * rank\ndist.all_reduce(x)\nx")
    assert "tensor([6., 6.])   ranks 0-3" in outputs.text
    assert outputs.results == []
    assert "text/html" in outputs.shown[0]
    assert kernel.value("(_mesh is r, r[3].tolist(), r.stack().shape == (2, 2, 2))") == (True, [6.0, 6.0], True)
    assert kernel.value("[dict(point) for point, _ in r.sel(tp=1)]") == [{"dp": 0, "tp": 1}, {"dp": 1, "tp": 1}]


def test_a_cell_on_a_slice_has_its_group(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh dp=1 -o r\ny = torch.ones(1) * rank\ndist.all_reduce(y, group=group)\ny.item()")
    assert "5.0   ranks 2-3" in outputs.text
    kernel.ok("%%on_mesh tp=(0,) -o r\ngroup.size(), mesh.coord, mesh.sizes, device, local_rank, world_size")
    sizes = {"dp": 2, "tp": 2}
    expected = [(2, {"dp": dp, "tp": 0}, sizes, "cpu", rank, 4) for dp, rank in ((0, 0), (1, 2))]
    assert kernel.value("r.values()") == expected


def test_the_line_form_returns_its_result_and_shows_it_once(kernel: Kernel) -> None:
    assert kernel.ok("r = %on_mesh dp=0 -- {rank: '{a}'}").text == ""
    assert kernel.value("r.values()") == [{0: "{a}"}, {1: "{a}"}]
    alone = kernel.ok("%on_mesh -- world_size")
    assert (len(alone.shown), alone.results[0].partition("   ")[0]) == (1, "4")
    kernel.ok("def on(i):\n    r = %on_mesh dp={i} --show first -- rank\n    return r")
    assert kernel.value("on(1).item()") == 2


def test_braces_are_filled_in_on_the_line_and_nowhere_else(kernel: Kernel) -> None:
    kernel.ok("i = 1")
    kernel.ok("%%on_mesh dp={i} tp=$i -o r\n'{i}', f'{rank}'")
    assert kernel.value("r.values()") == [("{i}", "3")]
    kernel.ok("%%time\n%%on_mesh dp={i} tp=$i -o r\n'{i}', f'{rank}'")
    assert kernel.value("r.values()") == [("{i}", "3")]


def test_how_a_result_is_shown(kernel: Kernel) -> None:
    assert len(kernel.ok("%%on_mesh --show table\nworld_size").text.splitlines()) == 4
    assert kernel.ok("%%on_mesh --show first\nrank").text.startswith("0   rank 0")
    assert kernel.ok("%%on_mesh --show none\nrank").text == ""
    assert kernel.value("_mesh.values()") == [0, 1, 2, 3]
    assert kernel.ok("%%on_mesh\nrank;").text == ""


def test_under_other_magics_a_cell_waits_without_await(kernel: Kernel) -> None:
    timed = kernel.ok("%%time\n# said twice\n%%on_mesh\nprint('hi')\n1")
    assert timed.text.startswith("0-3 │ hi\n1   ranks 0-3")
    assert "Wall time" in timed.text
    assert kernel.ok("%%capture caught\n%%on_mesh\nprint('hi')\nrank").text == ""
    assert kernel.value("(caught.stdout, len(caught.outputs))") == ("0-3 │ hi\n", 1)


@pytest.mark.parametrize("is_awaited", [True, False])
def test_both_ways_to_wait_give_the_same(kernel: Kernel, is_awaited: bool) -> None:
    kernel.ok(f"%autoawait {is_awaited}")
    try:
        outputs = kernel.ok("%%on_mesh\nprint('hi')\nworld_size")
        failed = kernel.cell("%%on_mesh 1\n1/0")
    finally:
        kernel.ok("%autoawait True")
    assert outputs.text.startswith("0-3 │ hi\n4   ranks 0-3")
    assert failed.error == "MeshError: 1 of 1 rank failed (dp=0,tp=1)"


def test_code_can_run_a_cell(kernel: Kernel) -> None:
    outputs = kernel.ok("for i in range(2):\n    get_ipython().run_cell_magic('on_mesh', f'rank={i}', 'print(rank)')")
    assert outputs.stdout == "  0 │ 0\n  1 │ 1\n"


def test_cells_in_other_cells_run_too(kernel: Kernel, tmp_path: Path) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%%on_mesh 1\nset_up = rank * 7\nset_up")])
    nbformat.write(book, tmp_path / "set_up.ipynb")
    assert kernel.ok(f"%run {tmp_path / 'set_up.ipynb'}").text.startswith("7   rank 1")
    ran = kernel.ok("done = get_ipython().run_cell('%%on_mesh 1\\nset_up + 1', store_history=False).success\ndone")
    assert ran.text.startswith("8   rank 1") and ran.results == ["True"]


def test_reset_and_names_of_ipython_that_are_used_otherwise(kernel: Kernel) -> None:
    kernel.ok("In, Out = 784, 10")
    failed = kernel.cell("%%on_mesh\n1/0")
    assert f"cell {failed.reply['execution_count']}, line 2\n" in failed.traceback
    kernel.ok("%reset -f in")
    kernel.ok("%reset -f")
    assert kernel.ok("%%on_mesh 0\nrank").text.startswith("0   rank 0")


def test_a_line_is_expanded_with_the_names_of_the_notebook(kernel: Kernel) -> None:
    kernel.ok("line = body = self = '1'")
    assert kernel.ok("%%on_mesh {line} --label '{body}{self}'\nrank").text.startswith("1   rank 1")


def test_an_expression_that_fails_is_where_it_stands(kernel: Kernel) -> None:
    cell = "a = 1\nr = %on_mesh 0 -- int('x')\nprint(\"int('x') is\", r)"
    failed = kernel.cell(cell)
    assert f"cell {failed.reply['execution_count']}, line 2\n" in failed.traceback


def test_tb_shows_the_whole_traceback_afterwards(kernel: Kernel) -> None:
    failed = kernel.cell("%%on_mesh dp=1\nimport json\njson.loads('{')").traceback
    assert "raised in …/json/decoder.py" in failed and "   whole traceback: %tb   " in failed
    whole = kernel.cell("%tb").traceback
    assert whole.startswith("dp=1,tp=0-1 ×2\nTraceback (most recent call last):\n") and "in raw_decode\n" in whole
    assert "look inside" not in whole and whole.endswith("MeshError: 2 of 2 ranks failed (dp=1,tp=0-1)")
    assert "%tb" not in kernel.cell("%%on_mesh dp=1\n1/0").traceback
    kernel.ok("future = %on_mesh -b 2 -- json.loads('{')\ntry: future.result()\nexcept RuntimeError: caught = 1")
    assert "in raw_decode" not in kernel.cell("%tb").traceback, "a cell in the background is not the last error"
    kernel.cell("future.result()")
    assert "in raw_decode" in kernel.cell("%tb").traceback


def test_a_cell_may_run_here_too(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh --local --show first\nfrom math import pi as both\nboth > 3")
    assert outputs.results == ["True"]
    assert "True   rank 0" in outputs.text
    failed = kernel.cell("%%on_mesh -l\ncounted = 1\n1/0")
    assert failed.error == "UsageError: --local: the cell failed here, so it was not sent to the ranks"
    assert "ZeroDivisionError" in failed.text
    kernel.ok("r = %on_mesh -- 'counted' in globals()")
    assert kernel.value("r.values()") == [False] * 4


NAPS = "import time\nfor _ in range(600): time.sleep(0.1)"  # a signal as it begins to sleep would not end a long one


@pytest.mark.parametrize("wait", [NAPS, "import asyncio\nawait asyncio.sleep(60)"])
def test_what_is_stopped_here_is_not_sent(kernel: Kernel, wait: str) -> None:
    cell = kernel.start(f"%%on_mesh --local\nsent = 1\nprint('here', flush=True)\n{wait}")
    cell.until("here")
    kernel.interrupt()
    assert cell.end().error == "KeyboardInterrupt: --local: the cell was stopped here, so it was not sent to the ranks"
    kernel.ok("r = %on_mesh -- 'sent' in globals()")
    assert kernel.value("r.values()") == [False] * 4


PRESSED = """import ast
class Pressed:
    def __getattr__(self, name):
        return getattr(former, name)
    def __call__(self, tree, *args, **options):
        if "Name(id='late'" in ast.dump(tree):
            raise KeyboardInterrupt
        return former(tree, *args, **options)
former = get_ipython().compile
get_ipython().compile = Pressed()"""


def test_a_stop_between_two_statements_is_one_too(kernel: Kernel) -> None:
    kernel.ok(PRESSED)
    stopped = kernel.cell("%%on_mesh --local\nsoon = 1\nlate = 1")
    kernel.ok("get_ipython().compile = former")
    assert stopped.error == "KeyboardInterrupt: --local: the cell was stopped here, so it was not sent to the ranks"


def test_a_cell_that_awaits_may_run_here_too(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh --local\nimport asyncio\nawait asyncio.sleep(0)\nprint('both')")
    assert outputs.stdout == "both\n0-3 │ both\n"


def test_names_are_pulled_after_a_cell(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh dp=1 --get c,d\nc, d = rank, str(rank)")
    assert kernel.value("(c, d)") == ([2, 3], ["2", "3"])


def test_a_label_stands_for_the_number_of_the_cell(kernel: Kernel) -> None:
    assert "warm up, line 3\n" in kernel.cell("%%on_mesh --label 'warm up'\n\n1/0").traceback
    failed = kernel.cell("%%on_mesh\n1/0")
    assert f"cell {failed.reply['execution_count']}, line 2\n" in failed.traceback


def test_a_cell_that_leaves_no_history_is_told_with_its_own_lines(kernel: Kernel) -> None:
    failed = kernel.cell("%%on_mesh\n\n1/0", store_history=False)
    assert f"cell {failed.reply['execution_count'] + 1}, line 3\n" in failed.traceback
    assert kernel.cell("%mesh up quiet -n 1 --pg none --device cpu", store_history=False).results == []
    kernel.ok("%mesh down quiet")


def test_a_second_load_changes_nothing(kernel: Kernel) -> None:
    pids = kernel.pids()
    assert kernel.ok("%load_ext meshbook").status == "ok"
    kernel.ok("import meshbook\nmeshbook.load_ipython_extension(get_ipython())")
    outputs = kernel.ok("%%on_mesh\nprint('once')")
    assert (outputs.text, kernel.pids()) == ("0-3 │ once\n", pids)


def test_what_is_captured_on_a_rank_is_not_shown(kernel: Kernel) -> None:
    assert kernel.ok("%%on_mesh 0\n%%capture caught\nprint(1); 3").text == ""
    kernel.ok("r = %on_mesh 0 -- (caught.stdout, len(caught.outputs))")
    assert kernel.value("r.values()") == [("1\n", 1)]
    kernel.ok("%on_mesh 0 -- 11")
    assert kernel.ok("%on_mesh 0 -- _").text.startswith("11 "), "as of any other cell"


def test_the_history_has_cells_as_calls_that_run_anywhere(kernel: Kernel, tmp_path: Path) -> None:
    kernel.ok("%%on_mesh 0\nprint('said', 'again')")
    last = kernel.value("len(In) - 1")
    assert kernel.value("In[-1]") == "get_ipython().run_cell_magic('on_mesh', ' 0', \"print('said', 'again')\\n\")"
    assert kernel.value("get_ipython().history_manager.input_hist_raw[-1]").startswith("%%on_mesh 0\n")
    kernel.ok(f"%save {tmp_path / 'saved.py'} {last}")
    assert "0 │ said again" in kernel.ok(f"%run -i {tmp_path / 'saved.py'}").text


def test_what_is_printed_and_what_is_displayed_keep_their_order(kernel: Kernel) -> None:
    """A display waits for what was printed before it, and only where something was."""
    ran = kernel.ok("from IPython.display import display\nfor n in range(100):\n    print(n)\n    display(n)")
    shown = [message["content"] for message in ran.messages if message["msg_type"] in ("stream", "display_data")]
    texts = [content.get("text") or content["data"]["text/plain"] for content in shown]
    said = "".join(texts).replace("\n", "")
    assert said == "".join(f"{n}{n}" for n in range(100))
