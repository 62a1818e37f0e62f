"""What a user may get wrong: one clear line, which names what would have been right, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.magics.front_end import Kernel
from tests.profiles import leave_torch_out

pytestmark = [pytest.mark.slow, pytest.mark.real]


def refusal(kernel: Kernel, source: str) -> str:
    """The one line that a cell is refused with: a usage error, shown without a traceback."""
    outputs = kernel.cell(source)
    assert outputs.status == "error", outputs.text
    assert outputs.error.startswith("UsageError: "), outputs.text
    assert outputs.text.strip() == outputs.error
    assert "\n" not in outputs.error
    return outputs.error.removeprefix("UsageError: ")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("%%on_mesh dq=0\n1", "no axis 'dq' in this mesh (dp=2, tp=2) at column 1: did you mean 'dp'?"),
        ("%%on_mesh dp=2\n1", "dp=2 is out of range at column 4: dp is 0 to 1 in this mesh (dp=2, tp=2)"),
        ("%%on_mesh -5\n1", "rank=-5 is out of range"),
        (
            "%%on_mesh\n%debug\n",
            "the error of a cell before is looked into by `%mesh debug --pm`, in a cell of its own",
        ),
        ("%on_mesh 0 -- %pdb on", "ranks stop where a cell fails with `%%on_mesh --on-error debug`"),
        ("%%on_mesh 4\n1", "rank=4 is out of range at column 1: rank is 0 to 3"),
        ("%%on_mesh dp=1:1\n1", "'dp=1:1' selects nothing"),
        ("%%on_mesh @dead\n1", "no rank is dead now"),
        ("%%on_mesh dp=x\n1", "expected an index at column 4, such as 0, -1, 1:3, (0,2) or !0"),
        ("%%on_mesh @asleep\n1", "@asleep"),
        ("%%on_mesh -m nope\n1", "there is no mesh 'nope': there is m"),
        ("%%on_mesh --shwo first\n1", "no option --shwo: did you mean '--show'?"),
        ("%%on_mesh -t soon\n1", "'soon' is not a number of seconds over 0, such as 30"),
        ("%%on_mesh\n", "there is nothing to run: put Python lines below %%on_mesh, or write `%on_mesh [SEL"),
        (
            "y = 3\n%%on_mesh 0\ny",
            "`%%on_mesh` must be the first line of its cell: put what stands above it into a cell",
        ),
        ("%on_mesh dp=0", "there is nothing to run: put Python lines below %%on_mesh"),
        ("%on_mesh dp=9 -- 1", "dp=9 is out of range"),
        ("%on_mesh rank * 2", "(what is to run goes behind --, such as `%on_mesh -- rank * 2`)"),
        ("%on_mesh 0 rank * 2", "(what is to run goes behind --, such as `%on_mesh 0 -- rank * 2`)"),
        ("%on_mesh %run train.py --lr 1", "no option --lr: "),
        ("%on_mesh %run train.py --lr 1", "such as `%on_mesh -- %run train.py --lr 1`)"),
        ("%mesh up gpus=0", "%mesh up: 'gpus=0' gives no size: write a whole number of 1 or more, such as gpus=2"),
        ("%mesh up gpus=-1", "'gpus=-1' gives no size: write a whole number of 1 or more"),
        ("%mesh up dp=10000000", "10,000,000 ranks need more memory than this machine has"),
        ("%mesh up gpus=abc", "'gpus=abc' gives no size: write a whole number of 1 or more"),
        ("%mesh up", "write axes with their sizes, such as dp=2 tp=2, or -n 4 for 4 ranks in a row"),
        ("%mesh up gpus=99 --device cuda", "99 ranks on cuda, but this machine has"),
        ("%mesh up m dp=2", "mesh 'm' is up: `%mesh down m` ends it, `%mesh up OTHER ...` starts one beside it"),
        ("other = %mesh up m dp=2", "mesh 'm' is up"),
        ("%mesh up x dp=1 --import no_such_module", "rank 0 (dp=0"),
        ("%mesh up x dp=1 --cwd /no/such/folder", "--cwd: there is no folder '/no/such/folder'"),
        ("one = m\n%mesh use one[dp=0]", "there is no mesh 'one': what the variable one holds is mesh 'm'"),
        ("%mesh use nope", "there is no mesh 'nope': there is m"),
        ("%mesh use mm[dp=0]", "there is no mesh 'mm': there is m"),
        ("%mesh use m[dq=0]", "no axis 'dq' in this mesh"),
        ("%mesh down nope", "there is no mesh 'nope': there is m"),
        ("%mesh restart 1 --replay 999", "%mesh restart: --replay: no cell 999 has run on the mesh: there is "),
        ("%mesh resize dp=3 --replay 999", "%mesh resize: no cell 999 has run on the mesh: there is "),
        ("%mesh m", "; `%mesh use m` makes that mesh the current one"),
        ("%mesh m[dp=0]", "; `%mesh use m[dp=0]` makes that mesh the current one"),
        (
            "%mesh push m",
            "(TypeError: mesh 'm' stays in the notebook: code on a rank is on the mesh, and knows its `rank`)",
        ),
        ("%mesh restart nope", "there is no mesh 'nope': there is m"),
        ("%mesh resize pp=2", "%mesh resize: the mesh has no axis 'pp' to resize: it has dp, tp"),
        ("%mesh resize dp=4 -m nope", "there is no mesh 'nope': there is m"),
        ("%mesh interrupt dp=7", "dp=7 is out of range"),
        ("%mesh stauts", "no sub-command 'stauts': did you mean 'status'?"),
        ("%mesh push nothing_here", "there is no 'nothing_here' in the notebook to push: assign it first"),
        ("%mesh pull nothing_here", "name 'nothing_here' is not defined on rank 0"),
        ("%%on_mesh --show none --get nothing_here\n1", "name 'nothing_here' is not defined on rank 0"),
        (
            "import threading\nlock = [threading.Lock()]\n%mesh push lock",
            "nothing was pushed: lock: cannot pickle: list[0] is a _thread.lock",
        ),
    ],
    ids=lambda text: text.partition("\n")[0][:40],
)
def test_a_mistake_gets_one_line(kernel: Kernel, source: str, expected: str) -> None:
    assert expected in refusal(kernel, source)
    [listed] = kernel.ok("%mesh ls").results[0].splitlines()
    assert listed.startswith("* m   dp=2 × tp=2 · 4 ranks · ")
    assert "dead" not in listed


def test_state_survives_mistakes(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh\nkept = rank + 1")
    refusal(kernel, "%%on_mesh dq=0\nkept = 0")
    refusal(kernel, "%mesh up m dp=1")
    kernel.cell("%%on_mesh\nimport sys\nsys.exit()")
    kernel.ok("r = %on_mesh -- kept")
    assert kernel.value("r.values()") == [1, 2, 3, 4]


def test_the_extension_is_not_for_ranks(kernel: Kernel) -> None:
    failed = kernel.cell("%%on_mesh 0\n%load_ext meshbook")
    assert "UsageError: meshbook is loaded in the notebook, not on its ranks: `%load_ext meshbook` in a" in failed.text
    assert "EOFError" in kernel.cell("%%on_mesh 0\ninput()", allow_stdin=False).text, "it asks the notebook as before"


def test_a_value_that_cannot_be_pickled_is_told_by_its_text(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh -o r\nimport threading\nthreading.Lock()")
    assert "<unlocked _thread.lock object at" in outputs.text
    assert kernel.value("'stayed on rank 0' in repr(r[0])") is True
    kernel.ok("%%on_mesh\nlock = threading.Lock()")
    refused = refusal(kernel, "%mesh pull lock")
    assert "rank 0" in refused
    assert "lock" in refused


def test_a_class_of_the_notebook_travels(kernel: Kernel) -> None:
    kernel.ok("class Point:\n    def __init__(self, x):\n        self.x = x\npoint = Point(3)")
    kernel.ok("%mesh push point")
    kernel.ok("%%on_mesh -o r\nclass There:\n    y = point.x + rank\nThere()")
    assert kernel.value("[there.y for there in r.values()]") == [3, 4, 5, 6]


def test_a_line_of_100_mb_is_cut_in_the_notebook_and_whole_in_the_log(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh 1\nprint('start', 'y' * 100_000_000, 'end', end='')")
    assert len(outputs.stdout) < 100_000
    assert outputs.stdout.endswith("yyy end\n")
    assert kernel.ok("%on_mesh 1 -- 1").text.startswith("1   rank 1")


def test_bytes_that_are_no_text_are_shown_all_the_same(kernel: Kernel) -> None:
    outputs = kernel.ok(
        "%%on_mesh 0\nos.write(1, b'caf\\xe9 \\xff\\n')\nos.write(2, b'\\x80\\n')\nprint('caf\\u00e9');"
    )
    assert "0 │ caf\ufffd \ufffd\n" in outputs.stdout
    assert "0 │ café\n" in outputs.stdout
    assert "0 │ \ufffd\n" in outputs.stderr


def test_a_result_too_large_to_travel_stays(kernel: Kernel) -> None:
    kernel.ok("%%on_mesh -o r\nlarge = bytes(3_000_000)\nlarge")
    assert "over the limit of 1 MB; get it by %mesh pull NAME" in kernel.value("repr(r[0])")
    kernel.ok("%mesh pull large --sel 0;")
    assert kernel.value("len(large[0])") == 3_000_000


def test_there_is_no_mesh(new_kernel: Callable[..., Kernel]) -> None:
    kernel = new_kernel(prepare=leave_torch_out)
    kernel.ok("%load_ext meshbook")
    hint = "there is no mesh yet: bring one up with `%mesh up dp=2` (or any axis names and sizes)"
    for source in ("%%on_mesh\n1", "%on_mesh -- 1", "%mesh down", "%mesh push x", "%mesh interrupt", "%mesh use m"):
        assert refusal(kernel, source) == hint
    assert kernel.ok("%mesh").results == ["no mesh: bring one up with `%mesh up dp=2`"]
    assert kernel.ok("%mesh ls").results == ["no mesh: bring one up with `%mesh up dp=2`"]
    assert kernel.ok("%mesh --json").results == ["'[]'"]
    kernel.ok("m = %mesh up dp=1 --pg none")
    kernel.ok("%mesh down")
    assert refusal(kernel, "%%on_mesh\n1") == hint
    assert "was taken down: bring it up again with %mesh up" in kernel.cell("m.run('1')").error


def test_a_line_that_is_run_again_says_what_it_has_left_up(kernel: Kernel) -> None:
    first = kernel.ok("again = %mesh up dp=2 --pg none\nprint(again.name)").stdout.strip()
    second = kernel.ok("again = %mesh up dp=2 --pg none\nprint(again.name)").stdout.splitlines()
    assert second[0] == f"{first} is still up, from this line when it ran before: `%mesh down {first}` ends it"
    assert "still up" not in kernel.ok(f"%mesh down {first}\n%mesh up other dp=2 --pg none").stdout
    kernel.ok(f"%mesh down {second[1]}\n%mesh down other")


def test_a_mesh_taken_down_by_its_own_method_is_named_with_what_goes_on(kernel: Kernel) -> None:
    kernel.ok("%mesh up one dp=2 --pg none\ntwo = %mesh up two dp=2 --pg none\n%mesh up three dp=2 --pg none")
    assert kernel.ok("print(two)").stdout == "<Mesh two dp=2>\n", "another line ends the cell"
    kernel.ok("two.down()\n%mesh use two")
    failed = kernel.cell("%%on_mesh\n1")
    told = "mesh 'two' was taken down: `%mesh up two dp=2` brings it up again, `%mesh use three` goes on with three"
    assert failed.error == f"UsageError: {told}"
    kernel.ok("%mesh use three\n%mesh down three")
    assert "2   ranks 0-1" in kernel.ok("%on_mesh -- world_size").text, "not the one that is down"
    assert "* one" in kernel.ok("%mesh ls").text
    kernel.ok("%mesh down one\n%mesh down two")


def test_a_variable_that_is_set_too_late_is_told_before_the_cell_runs(kernel: Kernel) -> None:
    source = "%%on_mesh\nimport os\nos.environ['OMP_NUM_THREADS'] = '8'\n%env TORCH_LOGS=dynamo"
    assert kernel.ok(source).stderr == (
        "warning: line 3: OMP_NUM_THREADS is read when torch is imported, which ranks have done: "
        "%mesh up ... --env OMP_NUM_THREADS=8\n"
        "warning: line 4: TORCH_LOGS is read when torch is imported, which ranks have done: "
        "%mesh up ... --env TORCH_LOGS=dynamo\n"
    )
    assert kernel.ok("%%on_mesh --no-check\nos.environ['OMP_NUM_THREADS'] = '8'").stderr == ""
    kernel.ok("m.roster.specs[0].env['OMP_NUM_THREADS'] = '8'")  # as after `--env`, without another zygote
    assert kernel.ok("%%on_mesh\nos.environ['OMP_NUM_THREADS'] = '8'").stderr == ""
