"""What ranks print and show while a cell runs, as a front-end gets it."""

from __future__ import annotations

import pytest

from tests.magics.front_end import Kernel
from tests.magics.said import who_said

pytestmark = [pytest.mark.slow, pytest.mark.real]


def test_equal_lines_are_told_once_and_stderr_apart(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh\nimport sys\nprint('step')\nprint('odd' if rank == 2 else 'even', file=sys.stderr)")
    assert outputs.stdout == "0-3 │ step\n"
    assert sorted(outputs.stderr.splitlines()) == ["  2 │ odd", "0-1,3 │ even"]


def test_a_cell_that_takes_a_given_name_is_told_so(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh\nfor rank in range(3): pass")
    told = "note: `rank` has been set, for later cells too: `del rank` brings back the number of the rank"
    assert outputs.stderr == f"0-1,3 │ {told}\n"
    assert kernel.ok("%%on_mesh\nassert rank == 2\ndel rank").stderr == ""
    assert kernel.ok("%%on_mesh -o back\nrank").stderr == "" and kernel.value("back.values()") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "body",
    [
        "import traceback\ndef f(): traceback.print_stack()\nf()",
        "import logging\nlogging.warning('here', stack_info=True)",
        "import torch\nwith torch.autograd.detect_anomaly(check_nan=False):\n"
        "    print(torch.ones(1, requires_grad=True).sqrt().grad_fn.metadata['traceback_'])",
    ],
)
def test_stacks_that_ranks_print_begin_in_the_cell(kernel: Kernel, body: str) -> None:
    said = kernel.ok(f"%%on_mesh 0\n{body}").text
    assert 'File "<ipython-input-' in said
    assert "mailbox.py" not in said and "runpy" not in said and "agent.py" not in said


def test_displays_keep_their_place_between_prints(kernel: Kernel) -> None:
    outputs = kernel.ok(
        "%%on_mesh 0\nfrom IPython.display import HTML, display\n"
        "print('one')\ndisplay(HTML('<b>two</b>'))\nprint('three')\ndisplay({'four': 4})\nprint('five')"
    )
    words = ["0 │ one", "IPython.core.display.HTML", "0 │ three", "{'four': 4}", "0 │ five"]
    places = [outputs.text.index(word) for word in words]
    assert places == sorted(places)
    assert outputs.shown[0]["text/html"] == "<b>two</b>"


def test_equal_displays_are_shown_once(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh\nfrom IPython.display import Markdown, display\ndisplay(Markdown('# hi'))")
    assert outputs.stdout == "0-3 │\n"
    assert [bundle["text/markdown"] for bundle in outputs.shown] == ["# hi"]


def test_a_display_can_be_updated_by_its_rank(kernel: Kernel) -> None:
    outputs = kernel.ok(
        "%%on_mesh dp=0\nfrom IPython.display import display\n"
        "bar = display('at 0 %', display_id=True)\nprint('working')\nbar.update(f'rank {rank} at 100 %')"
    )
    shown = [m["content"]["transient"]["display_id"] for m in outputs.messages if m["msg_type"] == "display_data"]
    updated = {update["transient"]["display_id"]: update["data"]["text/plain"] for update in outputs.updates}
    assert sorted(updated) == sorted(shown)
    assert sorted(updated.values()) == ["'rank 0 at 100 %'", "'rank 1 at 100 %'"]


def test_a_display_can_be_updated_by_a_later_cell(kernel: Kernel) -> None:
    show = "h = display('one', display_id='there')\nother = display('same', display_id='there')"
    outputs = kernel.ok(f"%%on_mesh 0\nfrom IPython.display import display, update_display\n{show}")
    shown = [m["content"]["transient"]["display_id"] for m in outputs.messages if m["msg_type"] == "display_data"]
    assert len(shown) == 2 and len(set(shown)) == 1, "both are updated, as in any notebook"
    for update in ("h.update('two')", "update_display('two', display_id='there')"):
        updates = kernel.ok(f"%%on_mesh 0\n{update}").updates
        assert [(each["transient"]["display_id"], each["data"]["text/plain"]) for each in updates] == [
            (shown[0], "'two'")
        ]
    assert kernel.ok("%%on_mesh 0\nupdate_display(3, display_id='nowhere')").updates == []


def test_figures_arrive(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh 1\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('drawn')")
    assert outputs.stdout == "  1 │ drawn\n"
    assert any(bundle.get("image/png") for bundle in outputs.shown)


def test_data_frames_arrive_as_tables(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh 0 -o r\nimport pandas as pd\npd.DataFrame({'loss': [0.5]})")
    assert "<table" in outputs.shown[0]["text/html"]
    assert kernel.value("r.item()['loss'].tolist()") == [0.5]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("import asyncio\nawait asyncio.sleep(0)\nprint('awaited')", "awaited"),
        ("!echo $WORLD_SIZE", "4"),
        ("%%bash\necho from bash", "from bash"),
        ("os.write(1, b'by C\\n');", "by C"),
        ("import subprocess\nsubprocess.run(['echo', 'child']);", "child"),
        ("print('no end', end='')", "no end"),
        ("len?", ""),
    ],
)
def test_what_notebooks_write_works_on_ranks(kernel: Kernel, body: str, expected: str) -> None:
    assert who_said(kernel.ok(f"%%on_mesh\n{body}").stdout, expected) == {0, 1, 2, 3}


def test_timeit_works_on_ranks(kernel: Kernel) -> None:
    assert "per loop" in kernel.ok("%%on_mesh\n%timeit -n1 -r1 pass").stdout


def test_nothing_comes_before_the_end_if_so_asked(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh 0 --no-stream\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.1)")
    outputs = cell.end()
    streams = [message for message in outputs.messages if message["msg_type"] == "stream"]
    assert [message["content"]["text"] for message in streams] == ["  0 │ 0\n  0 │ 1\n  0 │ 2\n"]


def test_a_cell_streams_while_it_runs(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh 0\nprint('early')\nwhile not os.path.exists('go'):\n    time.sleep(0.01)")
    cell.until("early")
    (kernel.folder / "go").touch()
    assert cell.end().status == "ok"


def test_output_is_bounded_unless_all_is_asked_for(kernel: Kernel) -> None:
    many = "for i in range(20_000):\n    print('line', i)"
    bounded = kernel.ok(f"%%on_mesh 0\n{many}").stdout
    assert len(bounded) < 200_000
    assert "0 │ line 0\n" in bounded
    assert bounded.endswith("  0 │ line 19999\n")
    assert "`%mesh logs` has all" in bounded
    assert kernel.value("m.log(0).count('line 1')") > 10_000
    assert kernel.ok(f"%%on_mesh 0 --full\n{many}").stdout.count("\n") == 20_000
    assert kernel.ok(f"%%on_mesh 0 --tail 2\n{many}").stdout == "  0 │ line 19998\n  0 │ line 19999\n"


def test_what_comes_late_lands_in_the_cell_that_started_it(kernel: Kernel) -> None:
    cell = kernel.start(
        "%%on_mesh 1\nimport threading\ngo = threading.Event()\n"
        "def speak():\n    go.wait()\n    print('la', end='')\n    print('te', end='\\n')\n"
        "thread = threading.Thread(target=speak)\nthread.start()"
    )
    assert cell.end().stdout == ""
    other = kernel.start("%%on_mesh 1\ngo.set()\nthread.join()\nprint('now')")
    assert other.end().stdout == "  1 │ now\n"
    cell.until("  1 │ late\n")


def test_ranks_of_a_notebook_may_draw_in_256_colours(kernel: Kernel) -> None:
    assert kernel.value("__import__('os').environ['TERM']") == "xterm-color", "what ipykernel says"
    assert "'xterm-256color'   ranks 0-3" in kernel.ok("%on_mesh -- os.environ['TERM']").text
