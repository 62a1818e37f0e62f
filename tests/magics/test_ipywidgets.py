"""ipywidgets that are made on ranks, as a front-end meets them: comms it is told of, and what it says on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.magics.front_end import Kernel

pytestmark = [pytest.mark.slow, pytest.mark.real]

VIEW = "application/vnd.jupyter.widget-view+json"


def models_of(outputs: Any) -> dict[str, dict[str, Any]]:
    """The state of each model that was opened, by its comm."""
    opened = [message["content"] for message in outputs.messages if message["msg_type"] == "comm_open"]
    return {content["comm_id"]: content["data"]["state"] for content in opened}


def updates_of(messages: Any, comm_id: str) -> dict[str, Any]:
    """What a model was told to be, in the end."""
    state: dict[str, Any] = {}
    for message in messages:
        content = message["content"]
        if (
            message["msg_type"] == "comm_msg"
            and content["comm_id"] == comm_id
            and content["data"]["method"] == "update"
        ):
            state |= content["data"]["state"]
    return state


def closed_in(messages: Any) -> set[str]:
    """The comms that were closed."""
    return {message["content"]["comm_id"] for message in messages if message["msg_type"] == "comm_close"}


def model_id(models: dict[str, dict[str, Any]], name: str) -> str:
    [found] = [comm_id for comm_id, state in models.items() if state["_model_name"] == name]
    return found


SLIDER = """%%on_mesh dp=0
from IPython.display import display
import ipywidgets
slider = ipywidgets.IntSlider(value=3 + rank)
slider.observe(lambda change: print('moved to', change.new), 'value')
display(slider)"""


def test_a_widget_of_each_rank_is_shown_and_its_events_come_to_its_rank(kernel: Kernel) -> None:
    cell = kernel.start(SLIDER)
    outputs = cell.end()
    models = models_of(outputs)
    sliders = {state["value"]: comm_id for comm_id, state in models.items() if "value" in state}
    shown = {bundle[VIEW]["model_id"]: bundle["text/plain"] for bundle in outputs.shown}
    assert shown == {sliders[3]: "IntSlider(value=3)", sliders[4]: "IntSlider(value=4)"}
    assert "  0 │" in outputs.stdout and "  1 │" in outputs.stdout
    kernel.say(sliders[4], {"method": "update", "state": {"value": 50}, "buffer_paths": []})
    cell.until("  1 │ moved to 50")
    values = kernel.ok("r = %on_mesh dp=0 -- slider.value")
    assert values.error == ""
    assert kernel.value("r.values()") == [3, 50]


def test_a_widget_is_updated_from_another_cell_and_from_a_thread(kernel: Kernel) -> None:
    made = kernel.ok("%%on_mesh 0\nimport ipywidgets, threading\nbar = ipywidgets.IntProgress()\ndisplay(bar)")
    comm_id = model_id(models_of(made), "IntProgressModel")
    kernel.ok("%%on_mesh 0\nbar.value = 70")
    assert updates_of(kernel.messages, comm_id) == {"value": 70}
    cell = kernel.start(
        "%%on_mesh 0\ngo = threading.Event()\ndef late():\n    go.wait()\n    bar.value = 90\n"
        "thread = threading.Thread(target=late)\nthread.start()"
    )
    cell.end()
    kernel.ok("%%on_mesh 0\ngo.set()\nthread.join()")
    kernel.listen_until(lambda: updates_of(kernel.messages, comm_id).get("value") == 90, 10, "a late update")


def test_events_wait_until_the_cell_of_their_rank_has_ended(kernel: Kernel) -> None:
    cell = kernel.start(
        "%%on_mesh 0\nimport ipywidgets\nat_work = False\nslider = ipywidgets.IntSlider()\n"
        "slider.observe(lambda change: print('moved while at work:', at_work), 'value')"
    )
    comm_id = model_id(models_of(cell.end()), "IntSliderModel")
    busy = kernel.start(
        "%%on_mesh 0 -b\nat_work = True\nprint('in')\nwhile not os.path.exists('free'):\n    time.sleep(0.01)\n"
        "at_work = False"
    )
    busy.until("in")
    kernel.say(comm_id, {"method": "update", "state": {"value": 9}, "buffer_paths": []})
    kernel.ok("'the event was sent on'")
    (kernel.folder / "free").touch()
    cell.until("moved while at work: False")
    (kernel.folder / "free").unlink()


def test_interact_works(kernel: Kernel) -> None:
    outputs = kernel.ok(
        "%%on_mesh 2\nfrom ipywidgets import interact\n@interact(x=(0, 9))\ndef f(x=4):\n    print('x is', x)"
    )
    models = models_of(outputs)
    area, slider = model_id(models, "OutputModel"), model_id(models, "IntSliderModel")
    assert updates_of(outputs.messages, area)["outputs"][0]["text"] == "x is 4\n"
    assert "x is" not in outputs.stdout
    kernel.say(slider, {"method": "update", "state": {"value": 7}, "buffer_paths": []})

    def has_come() -> bool:
        shown = updates_of(kernel.messages, area)["outputs"]
        return [output["text"] for output in shown] == ["x is 7\n"]

    kernel.listen_until(has_come, 10, "the new output")


def printed_in(messages: Any) -> list[list[str]]:
    """All that an output widget was told to show, the oldest first."""
    told = [each["content"]["data"] for each in messages if each["msg_type"] == "comm_msg"]
    states = [data["state"]["outputs"] for data in told if "outputs" in data.get("state", {})]
    return [[each.get("text", "shown") for each in state] for state in states]


def test_an_output_widget_is_told_of_a_line_when_it_is_whole_or_flushed(kernel: Kernel) -> None:
    lines = [
        "import ipywidgets, sys",
        "with ipywidgets.Output() as out:",
        "    print(1, 2)",
        "    print('a', end='', flush=True)",
        "    print('b', end='')",
        "    print('c', end='', file=sys.stderr)",
        "    display(5)",
        "    print('d', end='')",
        "    out.clear_output()",
        "    print('e', end='')",
    ]
    made = kernel.ok("%%on_mesh 0\n" + "\n".join(lines))
    assert printed_in(made.messages) == [
        ["1 2\n"],
        ["1 2\na"],
        ["1 2\nab"],
        ["1 2\nab", "c"],
        ["1 2\nab", "c", "shown"],
        ["1 2\nab", "c", "shown", "d"],
        [],
        ["e"],
    ]


def test_an_output_widget_keeps_the_end_of_a_long_text(kernel: Kernel) -> None:
    printing = "import ipywidgets\nwith ipywidgets.Output() as out:\n    for i in range(1000): print(f'{i:099}')"
    states = printed_in(kernel.ok(f"%%on_mesh 0\n{printing}").messages)
    assert len(states) == 1000 and max(len(text) for [text] in states) < 50_000  # all of it is 100 KB
    [last] = states[-1]
    assert last.startswith("… what was printed before is left out\n0") and last.endswith("0999\n")


def test_what_a_callback_raises_is_told(kernel: Kernel) -> None:
    cell = kernel.start("%%on_mesh 1\nbutton = ipywidgets.Button()\nbutton.on_click(lambda _: 1 / 0)\ndisplay(button)")
    comm_id = model_id(models_of(cell.end()), "ButtonModel")
    kernel.say(comm_id, {"method": "custom", "content": {"event": "click"}})
    cell.until("ZeroDivisionError")


def test_comms_end_with_their_mesh(kernel: Kernel) -> None:
    kernel.ok("%mesh up widgets -n 2 --pg none --device cpu")
    outputs = kernel.ok("%%on_mesh\nimport ipywidgets\nlabel = ipywidgets.Label('hi')")
    kernel.ok("%mesh down widgets")
    kernel.listen_until(lambda: models_of(outputs).keys() <= closed_in(kernel.messages), 10, "the end of the comms")
    assert len(models_of(outputs)) >= 2


def test_comms_end_where_ranks_get_other_numbers(kernel: Kernel) -> None:
    kernel.ok("%mesh up w dp=2 tp=1 --device cpu --pg none")
    made = models_of(kernel.ok(SLIDER.replace(" dp=0", "")))
    kernel.ok("%mesh resize dp=4 --replay none")
    assert not closed_in(kernel.messages) & made.keys()  # all have their numbers still
    kernel.ok("%mesh resize tp=2 --replay none")
    kernel.listen_until(lambda: made.keys() <= closed_in(kernel.messages), 10, "the end of the comms")
    again = models_of(kernel.ok(SLIDER.replace(" dp=0", "")))
    assert not closed_in(kernel.messages) & again.keys()
    kernel.ok("%mesh down w")
    kernel.listen_until(lambda: again.keys() <= closed_in(kernel.messages), 10, "the end of the comms")


def test_a_saved_notebook_has_the_text_and_the_state(tmp_path: Any, until: Callable[..., None]) -> None:
    cells = [
        "%load_ext meshbook\n%mesh up -n 2 --pg none --device cpu",
        "%%on_mesh 0\nimport ipywidgets\nfrom IPython.display import display\ndisplay(ipywidgets.IntSlider(value=8))",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    manager = AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    NotebookClient(notebook, km=manager, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute(
        cleanup_kc=True
    )
    [shown] = [output for output in notebook.cells[1].outputs if VIEW in output.get("data", {})]
    assert shown.data["text/plain"] == "IntSlider(value=8)"
    states = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    assert states[shown.data[VIEW]["model_id"]]["state"]["value"] == 8


def test_a_widget_that_ends_a_cell_is_shown_as_one(kernel: Kernel) -> None:
    outputs = kernel.ok("%%on_mesh dp=1 -o shown\nimport ipywidgets\nipywidgets.IntProgress(value=rank)")
    models = models_of(outputs)
    progress = {state["value"]: comm_id for comm_id, state in models.items() if "value" in state}
    assert [bundle[VIEW]["model_id"] for bundle in outputs.shown] == [progress[2], progress[3]]
    assert kernel.ok("%on_mesh dp=1 -- _.value").text.startswith("2   rank 2")
