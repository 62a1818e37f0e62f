"""What is told of a value: its text within bounds, its facts, and whether it travels."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Generator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshbook.kernel.values.size import bytes_of_data, pickles_to_at_least
from meshbook.kernel.values.summary import TEXT_LIMIT, brief, describe, readable, shortened
from meshbook.runtime.wire import codec

if TYPE_CHECKING:
    from meshbook.kernel.outcome import Value
    from tests.kernel.conftest import Notebook

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


def back(value: Value) -> Any:
    """What travelled."""
    assert value.pickled is not None, value.stayed
    return codec.loads(value.pickled)


# Travelling


@given(PLAIN)
def test_plain_values_travel_as_they_are(value: object) -> None:
    told = describe(value)
    assert told.stayed is None
    assert back(told) == value
    assert told.text


@given(PLAIN, st.integers(0, 200))
def test_a_pickle_is_within_its_limit_or_there_is_none(value: object, limit: int) -> None:
    told = describe(value, limit=limit)
    assert (told.pickled is None) != (told.stayed is None)
    assert len(told.pickled or b"") <= limit
    assert (told.pickled is None) == (len(codec.dumps(value)) > limit)


@given(PLAIN)
def test_the_size_that_is_expected_is_never_too_large(value: object) -> None:
    assert pickles_to_at_least(value, 1 << 30) <= len(codec.dumps(value))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("x" * 3_000_000, "2.9 MB, over the limit of 1 MB"),
        ([b"x" * 800_000, b"x" * 800_000], "at least 1.5 MB, over the limit of 1 MB"),
        (list(range(2_000_000)), "at least 1.9 MB, over the limit of 1 MB"),
        (threading.Lock(), "cannot pickle: a _thread.lock"),
        ((number for number in ()), "cannot pickle: a generator"),
    ],
    ids=["text", "list of bytes", "long list", "lock", "generator"],
)
def test_what_stays_says_why(value: object, reason: str) -> None:
    told = describe(value)
    assert (told.pickled, told.stayed) == (None, reason)


def test_another_function_may_pickle() -> None:
    told = describe([1], dumps=lambda value: b"<" + repr(value).encode() + b">")
    assert told.pickled == b"<[1]>"
    assert describe([1], limit=3, dumps=lambda value: b"12345").stayed == "5 B, over the limit of 3 B"


def test_an_interrupt_while_pickling_is_not_swallowed() -> None:
    def interrupted(value: object) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe([1], dumps=interrupted)


def test_a_reducer_that_fails_keeps_the_value() -> None:
    class Odd:
        def __reduce__(self) -> str:
            raise RuntimeError("first line\nsecond")

    stayed = describe(Odd()).stayed or ""
    assert stayed.startswith("cannot pickle: ")
    assert stayed.endswith("Odd (RuntimeError: first line)")


def test_what_is_too_large_is_not_pickled() -> None:
    class Model:
        def __init__(self) -> None:
            self.layers = [{"weight": bytearray(800_000)}, {"weight": bytearray(800_000)}]
            self.itself = self

        def __reduce__(self) -> str:
            raise AssertionError("pickled")

    assert describe(Model()).stayed == "at least 1.5 MB, over the limit of 1 MB"


def test_what_is_held_twice_counts_once() -> None:
    data = bytearray(800_000)
    told = describe([data, {"again": data}])
    assert told.stayed is None


def test_a_structure_of_shared_lists_is_sized_in_no_time() -> None:
    nest: list[Any] = [0] * 500
    for _ in range(10):
        nest = [nest] * 500
    assert describe(nest).stayed is None


# Text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("raise ValueError('no\\nmore')", "<Odd whose repr fails: ValueError: no>"),
        ("return ''", "<Odd with an empty repr>"),
        ("return None", "<Odd whose repr fails: TypeError: __repr__ returned non-string (type NoneType)>"),
        ("return 'a\\nb'", "a\nb"),
    ],
)
def test_text_of_a_user_class(body: str, text: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"class Odd:\n    def __repr__(self): {body}", scope)
    assert describe(scope["Odd"]()).text == text


@pytest.mark.parametrize(
    "value",
    ["x" * 100_000_000, b"x" * 100_000_000, ["x" * 100_000] * 1000, dict.fromkeys(range(100000), "y" * 100)],
)
def test_huge_text_is_shortened(value: object) -> None:
    assert 1000 < len(describe(value).text) < TEXT_LIMIT * 2


def test_a_huge_repr_is_shortened() -> None:
    class Loud:
        def __repr__(self) -> str:
            return "begin" + "x" * 100_000_000 + "end"

    text = describe(Loud()).text
    assert text.startswith("begin")
    assert "more characters" in text
    assert len(text) < TEXT_LIMIT * 2


def test_a_structure_that_holds_itself() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    told = describe(ring)
    assert told.text == "[1, [...]]" or "Recursion" in told.text
    assert told.type_name == "list"


@given(st.text(), st.integers(4, 40))
def test_short_text_stays_and_long_text_keeps_its_ends(text: str, limit: int) -> None:
    short = shortened(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert short.startswith(text[: limit * 3 // 4])
        assert short.endswith(text[-(limit // 4) :])


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1536, "1.5 KB"),
        (1 << 30, "1 GB"),
        (5 << 40, "5 TB"),
        (9 << 50, "9216 TB"),
    ],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert readable(size) == text


def test_an_error_in_brief() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert brief(Mute()) == "Mute: (its message cannot be printed)"
    assert brief(KeyError()) == "KeyError"


# Richer forms


def test_richer_forms_come_from_the_shells_formatter(notebook: Notebook) -> None:
    notebook.run(
        "class Rich:\n"
        "    def __repr__(self): return 'rich'\n"
        "    def _repr_html_(self): return '<b>rich</b>'\n"
        "    def _repr_png_(self): return b'PNG'\n"
        "    def _repr_svg_(self): return '<svg/>'\n"
        "    def _repr_markdown_(self): return '**rich**'\n"
        "    def _repr_latex_(self): return '$r$'\n"
        "    def _repr_json_(self): return {'rich': 1}\n"
    )
    value = notebook.value("Rich()")
    assert value.text == "rich"
    assert value.mime == {
        "text/html": "<b>rich</b>",
        "image/png": "UE5H",
        "image/svg+xml": "<svg/>",
        "text/markdown": "**rich**",
        "text/latex": "$r$",
        "application/json": '{"rich": 1}',
    }
    assert describe(notebook.shell.namespace["_"]).mime == {}


def test_a_form_that_would_freeze_the_browser_is_left_out(notebook: Notebook) -> None:
    notebook.run("class Big:\n    def _repr_html_(self): return 'x' * 10_000_000\n")
    assert notebook.value("Big()").mime == {}


def test_a_rich_form_that_fails_leaves_the_others(notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    notebook.run("class Bad:\n    def _repr_html_(self): 1 / 0\n    def _repr_latex_(self): return '$b$'\n")
    assert notebook.value("Bad()").mime == {"text/latex": "$b$"}
    capsys.readouterr()


def test_printers_of_the_shell_make_the_text(notebook: Notebook) -> None:
    notebook.run(
        "formatter = get_ipython().display_formatter.formatters['text/plain']\n"
        "formatter.for_type(complex, lambda value, printer, cycle: printer.text('complex!'))"
    )
    assert notebook.value("[1j]").text == "[complex!]"


def test_printers_of_another_kind_make_the_text(notebook: Notebook) -> None:
    """`rich.pretty.install` puts a formatter of its own there."""
    notebook.run(
        "from IPython.core.formatters import BaseFormatter\n"
        "class Own(BaseFormatter):\n    def __call__(self, value): return f'own {value}'\n"
        "formatters = get_ipython().display_formatter.formatters\nformatters['text/plain'] = Own()"
    )
    assert notebook.value("[1, 2]").text == "own [1, 2]"


def test_who_makes_all_forms_makes_the_text_too(notebook: Notebook) -> None:
    """A table of rich's, whose repr is an address."""
    notebook.run(
        "class Table:\n    def _repr_mimebundle_(self, **_): return {'text/plain': '┏━┓', 'text/html': '<i/>'}"
    )
    value = notebook.value("Table()")
    assert (value.text, value.mime) == ("┏━┓", {"text/html": "<i/>"})


def test_what_shows_itself_is_shown_once(notebook: Notebook) -> None:
    """A figure of plotly's, whose text is the data of the whole chart."""
    notebook.run(
        "class Figure:\n"
        "    def __repr__(self): return 'data' * 1000\n"
        "    def _ipython_display_(self): get_ipython().publish({'text/html': '<svg/>'}, {}, None, False)\n"
    )
    value = notebook.value("Figure()")
    assert (value.text, value.mime) == ("Figure (shown above)", {})
    assert [shown.mime for shown in notebook.shown] == [{"text/html": "<svg/>"}]


def test_what_only_the_front_end_can_show_is_shown_by_it(notebook: Notebook) -> None:
    notebook.run(
        "class Chart:\n    def __init__(self, **more): self.more = more\n"
        "    def _repr_mimebundle_(self, **_):\n"
        "        return {'application/vnd.vegalite.v5+json': {'a': 1}, 'text/plain': 'chart', **self.more}\n"
    )
    value = notebook.value("Chart()")
    assert (value.text, value.mime) == ("Chart (shown above)", {})
    [shown] = notebook.shown
    assert shown.mime == {"application/vnd.vegalite.v5+json": '{"a": 1}', "text/plain": "chart"}
    in_table = notebook.value("Chart(**{'text/html': '<svg/>'})")
    assert in_table.text != "Chart (shown above)" and in_table.mime["text/html"] == "<svg/>"
    assert len(notebook.shown) == 1


# Arrays


def test_nothing_is_imported_to_describe() -> None:
    program = (
        "import sys; from meshbook.kernel.values.summary import describe; describe([1, {'a': b'x'}])\n"
        "print({'torch', 'numpy', 'pandas', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"],
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_a_numpy_array() -> None:
    numpy = pytest.importorskip("numpy")
    told = describe(numpy.ones((2, 3), numpy.float32))
    assert (told.shape, told.dtype, told.device, told.nbytes) == ((2, 3), "float32", None, 24)
    assert back(told).sum() == 6
    assert describe(numpy.zeros(10_000_000)).stayed == "76 MB, over the limit of 1 MB"
    assert describe({"deep": [(numpy.zeros(200_000),)]}).stayed == "at least 1.5 MB, over the limit of 1 MB"


class OfJax:
    """What `jax.Array` says of itself."""

    shape, dtype, nbytes = (2, 3), "bfloat16", 12


def test_an_array_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    told = describe(OfJax())
    assert (told.shape, told.dtype) == (None, None)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(Array=OfJax))
    told = describe(OfJax())
    assert (told.shape, told.dtype, told.nbytes) == ((2, 3), "bfloat16", 12)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())  # it is being imported
    assert describe(OfJax()).shape is None


def test_a_data_frame(notebook: Notebook) -> None:
    pytest.importorskip("pandas")
    value = notebook.value("import pandas\npandas.DataFrame({'a': [1, 2], 'b': [0.5, 1.5]})")
    assert (value.type_name, value.shape, value.nbytes) == ("DataFrame", (2, 2), 32)
    assert "<table" in value.mime["text/html"]
    assert back(value)["b"].sum() == 2
    series = notebook.value("_['a']")
    assert (series.shape, series.dtype) == ((2,), "int64")


@pytest.fixture(scope="module")
def tensors() -> Generator[Any]:
    yield pytest.importorskip("torch")


def test_a_tensor(tensors: Any) -> None:
    told = describe(tensors.arange(6, dtype=tensors.float32).reshape(2, 3))
    assert (told.type_name, told.shape, told.dtype) == ("Tensor", (2, 3), "torch.float32")
    assert (told.device, told.nbytes) == ("cpu", 24)
    assert back(told).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_view_travels_without_the_storage_behind_it(tensors: Any) -> None:
    told = describe([tensors.zeros(1_000_000)[:3]])
    assert told.pickled is not None
    assert len(told.pickled) < 2000
    assert back(told)[0].tolist() == [0, 0, 0]


def test_a_loss_travels(tensors: Any) -> None:
    weight = tensors.ones(3, requires_grad=True)
    told = describe((weight * 2).sum())
    assert back(told).item() == 6
    assert "grad_fn" in told.text


def test_a_large_tensor_stays(tensors: Any) -> None:
    told = describe(tensors.zeros(1_000_000))
    assert (told.pickled, told.stayed) == (None, "3.8 MB, over the limit of 1 MB")
    assert describe(tensors.nn.Linear(1000, 1000)).stayed == "at least 3.8 MB, over the limit of 1 MB"
    assert bytes_of_data(tensors.eye(2).to_sparse()) is None


def test_odd_tensors_are_told_all_the_same(tensors: Any) -> None:
    sparse = describe(tensors.eye(3).to_sparse())
    assert sparse.shape == (3, 3)
    assert back(sparse).to_dense().sum() == 3
    assert describe(tensors.empty(2, device="meta")).device == "meta"
    assert describe(tensors.ones(2, dtype=tensors.bfloat16)).dtype == "torch.bfloat16"


def test_a_module_and_a_parameter_travel(tensors: Any) -> None:
    layer = tensors.nn.Linear(2, 2)
    assert back(describe(layer))(tensors.zeros(1, 2)).shape == (1, 2)
    assert back(describe(layer.weight)).shape == (2, 2)


@pytest.mark.gpu
def test_a_cuda_tensor_comes_to_the_cpu(tensors: Any) -> None:
    if not tensors.cuda.is_available():
        pytest.skip("needs a CUDA device")
    value = tensors.ones(4, device="cuda")
    told = describe({"loss": value})
    assert back(told)["loss"].device.type == "cpu"
    assert describe(value).device == "cuda:0"
    layer = tensors.nn.Linear(2, 2).cuda()
    assert back(describe(layer.weight)).device.type == "cpu"
    assert back(describe(layer)).weight.device.type == "cpu"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_odd_tensors() -> None:
    import torch

    jagged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    assert (describe(jagged).shape, describe(jagged).dtype) == (None, "torch.float32")
    emptied = torch.nn.Parameter(torch.ones(4))
    emptied.untyped_storage().resize_(0)
    assert describe(emptied).text == "<Parameter whose memory was given back>", "torch's own repr ends the process"
    shell = torch.nn.Linear(2, 2)  # its weight, as FSDP leaves it: a view into what is gone
    shell.weight.data = torch.ones(8)[4:].view(2, 2)
    shell.weight.untyped_storage().resize_(0)
    assert describe(shell).text.startswith("Linear(in_features=2")
    assert describe(torch.empty(0, 3)).text == "tensor([], size=(0, 3))"
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    assert describe(quantized).text.startswith("tensor([1., 1.], size=(2,), dtype=torch.qint8")
