from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import textwrap
import threading
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshbook.runtime.wire.codec import DecodeError, EncodeError, decode, dumps, encode, loads


def travel(value: Any, **options: Any) -> Any:
    """The value as it arrives: from writable buffers, as the transport provides them."""
    data = encode(value, **options)
    return decode(data.head, [bytearray(buffer) for buffer in data.buffers])


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in type, form and bits (NaN equals NaN)."""
    if (a.dtype, a.shape, a.requires_grad, type(a)) != (b.dtype, b.shape, b.requires_grad, type(b)):
        return False
    raw = [t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return torch.equal(*raw)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers())
    ),
    max_leaves=20,
)


@given(values)
def test_builtin_values_arrive_equal(value: Any) -> None:
    assert travel(value) == value
    assert loads(dumps(value)) == value


def test_shared_and_cyclic_values_keep_their_shape() -> None:
    inner: list[Any] = [1]
    value: list[Any] = [inner, inner]
    value.append(value)
    arrived = travel(value)
    assert arrived[0] is arrived[1] and arrived[2] is arrived


DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_arrives_bit_for_bit(dtype: torch.dtype) -> None:
    if "q" in str(dtype).partition(".")[2][:2] or "bits" in str(dtype):
        pytest.skip("quantized and bit types cannot be made of bytes")
    raw = torch.arange(64, dtype=torch.uint8) % 2
    tensor = raw.view(dtype)
    assert same(travel(tensor), tensor)


TENSORS = {
    "matrix": torch.randn(30, 40),
    "large": torch.randn(300, 400),
    "0-dim": torch.tensor(3.5),
    "empty": torch.empty(0, 3),
    "empty with grad": torch.empty(2, 0, requires_grad=True),
    "with grad": torch.randn(3, 3, requires_grad=True),
    "transposed": torch.randn(40, 50).T,
    "permuted, with grad": torch.randn(4, 5, 6, requires_grad=True).permute(2, 0, 1).detach().requires_grad_(),
    "channels last": torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
    "every second": torch.randn(100, 100)[:, ::2],
    "slice": torch.randn(1000, 100)[10:20],
    "expanded": torch.randn(3, 1).expand(3, 5),
    "size one in the middle": torch.randn(3, 1, 5).transpose(0, 1),
    "conjugated": torch.randn(3, 3, dtype=torch.complex64).conj(),
    "negated bit": torch.randn(3, dtype=torch.complex64).conj().imag,
    "bool": torch.tensor([True, False]),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_arrive_equal_and_writable(name: str) -> None:
    tensor = TENSORS[name]
    for arrived in (travel(tensor), loads(dumps(tensor))):
        assert same(arrived, tensor)
        assert arrived.is_leaf and not arrived._is_view()
        with torch.no_grad():
            arrived.add_(1) if arrived.dtype != torch.bool else arrived.logical_not_()
        assert not arrived.numel() or not same(arrived, tensor)


def test_a_dense_layout_survives_and_gaps_do_not() -> None:
    assert travel(TENSORS["transposed"]).stride() == TENSORS["transposed"].stride()
    assert travel(TENSORS["channels last"]).is_contiguous(memory_format=torch.channels_last)
    assert travel(TENSORS["every second"]).is_contiguous()


def test_a_slice_of_a_large_tensor_travels_alone() -> None:
    assert encode(torch.zeros(1000, 1000)[:2]).nbytes < 10_000


def test_a_value_that_was_encoded_before_it_was_sent_arrives_as_the_value() -> None:
    tensor = torch.arange(4096.0)
    data = encode({"x": encode({"y": tensor, "z": 1})})
    assert [buffer.nbytes for buffer in data.buffers] == [tensor.nbytes]
    found = decode(data.head, data.buffers)["x"]
    assert found["z"] == 1 and found["y"].equal(tensor)


def test_a_tensor_is_not_copied_to_be_sent_or_received() -> None:
    tensor = torch.zeros(1 << 20)
    data = encode({"x": tensor})
    assert len(data.head) < 300 and data.nbytes == len(data.head) + tensor.nbytes
    tensor[5] = 7.0
    assert np.frombuffer(data.buffers[0], np.float32)[5] == 7.0
    buffer = bytearray(data.buffers[0])
    arrived = decode(data.head, [buffer])["x"]
    arrived[6] = 8.0
    assert np.frombuffer(buffer, np.float32)[6] == 8.0


def test_a_buffer_outlives_the_tensor_it_was_made_of() -> None:
    data = encode(torch.full((5000,), 3.0))
    torch.full((5000,), 4.0)  # would take the same memory if it were free
    assert set(np.frombuffer(data.buffers[0], np.float32)) == {3.0}


def test_read_only_buffers_are_copied_so_that_all_that_arrives_is_writable() -> None:
    data = encode([torch.zeros(5000), np.zeros(5000)])
    tensor, array = decode(data.head, [bytes(buffer) for buffer in data.buffers])
    tensor += 1
    array += 1
    assert tensor.sum() == array.sum() == 5000


@pytest.mark.parametrize("size", [3, 5000])
def test_tensors_over_the_same_bytes_still_share_them(size: int) -> None:
    base = torch.zeros(size, 2)
    arrived = travel([base, base.view(-1), base.detach(), base.view(torch.int32), base[1:], base.T])
    arrived[0][1, 0] = 1.0
    assert [float(t.flatten()[2]) != 0 for t in arrived[:4]] == [True] * 4
    assert arrived[4][0, 0] == 0  # another part of the storage: a tensor of its own
    assert arrived[5][0, 1] == 1.0


def test_temporary_copies_are_never_taken_for_the_same_tensor() -> None:
    tensors = [torch.full((30, 2), float(i))[:, 0] for i in range(50)]
    assert [float(t[0]) for t in travel(tensors)] == [float(i) for i in range(50)]


@pytest.mark.slow  # torch imports its compiler for the first optimizer
def test_parameters_and_modules_keep_their_class() -> None:
    weight = torch.nn.Parameter(torch.randn(64, 64))
    arrived = travel(weight)
    assert type(arrived) is torch.nn.Parameter and same(arrived, weight)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    model.append(model[0])
    copy = travel(model)
    x = torch.randn(2, 64)
    assert torch.equal(copy(x), model(x))
    assert copy[0].weight is copy[2].weight
    copy(x).sum().backward()
    torch.optim.SGD(copy.parameters(), 0.1).step()
    assert not torch.equal(copy(x), model(x))


def test_large_parameters_leave_the_stream_too() -> None:
    assert len(encode(torch.nn.Linear(500, 500)).head) < 10_000


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:TypedStorage is deprecated")
def test_other_tensors_take_the_way_of_torch() -> None:
    sparse = torch.eye(50).to_sparse()
    assert torch.equal(travel(sparse).to_dense(), sparse.to_dense())
    quantized = torch.quantize_per_tensor(torch.randn(2000), 0.1, 10, torch.quint8)
    assert torch.equal(travel(quantized).int_repr(), quantized.int_repr())
    meta = travel(torch.empty(3, 4, device="meta"))
    assert meta.is_meta and meta.shape == (3, 4)
    named = torch.zeros(2000)
    named.note = "kept"  # pyright: ignore[reportAttributeAccessIssue]
    arrived = travel(named)
    assert arrived.note == "kept" and same(arrived, named)


class Marked(torch.Tensor):
    pass


def test_a_subclass_keeps_its_class_and_its_bytes_leave_the_stream() -> None:
    marked = torch.randn(100, 100).as_subclass(Marked)
    data = encode(marked)
    assert len(data.head) < 1000
    arrived = decode(data.head, [bytearray(b) for b in data.buffers])
    assert type(arrived) is Marked and torch.equal(arrived, marked)


def test_an_emptied_storage_does_not_crash() -> None:
    tensor = torch.zeros(1000)
    tensor.untyped_storage().resize_(0)
    data = encode(tensor.untyped_storage())
    assert data.buffers == []
    with contextlib.suppress(EncodeError, DecodeError):  # torch has no form for the tensor itself
        travel(tensor)


def test_a_view_into_an_emptied_storage_is_not_read() -> None:
    view = torch.zeros(1000)[4:]
    view.untyped_storage().resize_(0)
    assert view.data_ptr(), "an address that leads nowhere"
    assert encode(view).buffers == []


def test_the_default_device_of_the_receiver_does_not_matter() -> None:
    tensors = [torch.zeros(3000), torch.empty(0), torch.zeros(3, 3).T]
    data = [encode(t) for t in tensors]
    with torch.device("meta"):
        arrived = [decode(d.head, [bytearray(b) for b in d.buffers]) for d in data]
    assert all(same(a, b) for a, b in zip(arrived, tensors, strict=True))


def test_storages_travel() -> None:
    storage = torch.arange(2000).untyped_storage()
    assert bytes(travel(storage)) == bytes(storage)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_tensors_arrive_on_the_cpu() -> None:
    tensors = [torch.randn(100, 100, device="cuda"), torch.nn.Parameter(torch.ones(3, device="cuda"))]
    for tensor, arrived in zip(tensors, travel(tensors), strict=True):
        assert arrived.is_cpu and torch.equal(arrived, tensor.detach().cpu())


def test_numpy_arrays_arrive_equal_and_writable() -> None:
    arrays = [np.arange(6000.0).reshape(60, 100).T, np.zeros(0), np.array(3), np.arange(10)[::2]]
    for array, arrived in zip(arrays, travel(arrays), strict=True):
        assert arrived.dtype == array.dtype and np.array_equal(arrived, array)
        arrived[...] = 9
    assert len(encode(arrays[0]).head) < 300


def test_small_buffers_stay_in_the_stream() -> None:
    assert encode([torch.zeros(3), np.zeros(3)]).buffers == []
    arrived = travel(torch.zeros(3))
    arrived += 1
    assert arrived.sum() == 3


def test_functions_without_a_name_travel_by_value() -> None:
    factor = 3

    def scale(x: int, base: int = 1) -> int:
        return factor * x + base

    assert travel(lambda x: x + factor)(1) == 4
    assert travel({"f": [scale]})["f"][0](2) == 7


def test_what_can_be_imported_travels_by_name() -> None:
    assert travel(textwrap.dedent) is textwrap.dedent
    assert travel(Path) is Path
    assert len(encode(textwrap.dedent).head) < 100
    assert travel(torch.nn.functional.relu) is torch.nn.functional.relu
    assert travel(torch.float32) is torch.float32


SENDER = """
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from meshbook.runtime.wire import codec

SCALE = 10

class Color(Enum):
    RED = 1

@dataclass
class Point:
    x: int
    def scaled(self):
        return Point(scale(self.x))

def scale(x):
    return x * SCALE

Path({path!r}).write_bytes(codec.dumps([Point(4), Point, scale, Color.RED, (1, Point(2))]))
"""

RECEIVER = """
from pathlib import Path
from meshbook.runtime.wire import codec

point, kind, scale, red, (_, other) = codec.loads(Path({path!r}).read_bytes())
assert type(point) is kind and type(other) is kind
print(point.scaled(), scale(5), red)
"""


def run_script(source: str) -> str:
    command = [sys.executable, "-c", source]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.slow
def test_what_a_notebook_defines_works_in_a_process_that_does_not_have_it(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    run_script(SENDER.format(path=path))
    assert run_script(RECEIVER.format(path=path)) == "Point(x=40) 50 Color.RED\n"


def test_a_module_that_no_other_process_can_import_travels_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("made_here")
    exec("class Thing:\n    size = 3\ndef double(x):\n    return 2 * x\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "made_here", module)
    data = dumps([module.double, module.Thing()])
    monkeypatch.delitem(sys.modules, "made_here")
    double, thing = loads(data)
    assert double(4) == 8 and thing.size == 3


@dataclass
class Port:
    number: int


def port_from(number: int) -> Port:
    return Port(number + 100)


def test_reducers_say_how_our_own_objects_travel_in_one_message() -> None:
    seen: list[Port] = []

    def reduce_port(port: Port) -> Any:
        seen.append(port)
        return port_from, (port.number,)

    port = Port(1)
    first, second = travel([port, {"again": port}], reducers={Port: reduce_port})
    assert first == Port(101) and second["again"] is first
    assert seen == [port]
    assert travel(port) == Port(1)


class Holder:
    def __init__(self, content: object) -> None:
        self.content = content


def test_values_nested_too_deeply_are_an_encode_error() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(pickle.PicklingError, match="recursion"):
        encode(value)


class Picky(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")


class Broken:
    def __init__(self) -> None:
        self.x = 1

    def __setstate__(self, state: object) -> None:
        raise OSError("no such state")


def test_a_decode_error_names_what_could_not_be_made() -> None:
    with pytest.raises(DecodeError, match=r"^cannot be unpickled: .*Picky \(TypeError: .*reason"):
        loads(dumps(Picky(3, "why")))
    with pytest.raises(DecodeError, match=r"Broken.__setstate__ \(OSError: no such state\)$") as caught:
        loads(dumps([Broken()]))
    assert isinstance(caught.value.__cause__, OSError)


class Leaver:
    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, (3,)


def test_a_value_that_would_end_its_reader_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match=r"sys.exit \(SystemExit: 3\)$"):
        loads(dumps(Leaver()))


def test_a_decode_error_names_the_type_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dumps(Holder(1))
    monkeypatch.delattr(sys.modules[__name__], "Holder")
    with pytest.raises(DecodeError, match=r"Holder \(AttributeError: "):
        loads(data)


@pytest.mark.parametrize("data", [b"", b"abc", b"\xff" * 40, dumps([1, 2])[:-1]])
def test_bytes_that_are_no_message_are_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        loads(data)


def test_one_piece_form_aligns_its_buffers() -> None:
    data = dumps([torch.zeros(5000), np.zeros(5001, np.uint8), torch.ones(5000)])
    tensor, array, ones = loads(bytearray(data))
    assert tensor.sum() == array.sum() == 0 and ones.sum() == 5000


def test_a_message_does_not_import_torch() -> None:
    script = """
        import sys
        from meshbook.runtime.wire import codec
        codec.loads(codec.dumps([{1}, print]))
        print("torch" in sys.modules)
    """
    assert run_script(textwrap.dedent(script)) == "False\n"


def test_many_threads_can_encode_at_once() -> None:
    results: list[bool] = []

    def work(seed: int) -> None:
        tensor = torch.full((2000,), float(seed))
        results.append(all(torch.equal(travel(tensor), tensor) for _ in range(50)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
