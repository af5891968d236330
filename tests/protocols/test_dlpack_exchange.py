"""DLPack's C exchange API: tables of other libraries, and arrowdev's own."""

import ctypes
import gc
import weakref
from ctypes import POINTER, c_void_p, py_object

import dlpack_ctypes as dl
import pytest
from c_library import build
from dlpack_checks import Foreign, fails
from dlpack_ctypes import Managed, Received

import arrowdev as ad

np = pytest.importorskip("numpy")

HANDLE = 0x1000


def causes(error, kind):
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


# --- a foreign hand-made table ---------------------------------------------------


def test_table_is_used():
    foreign = Foreign()
    t = ad.tensor(foreign())
    assert t.data_ptr == foreign.managed.data
    assert foreign.n_calls == 1
    assert foreign.asked == []
    assert foreign.managed.deleted == 0
    del t
    assert foreign.managed.deleted == 1


@pytest.mark.parametrize("minor", [0, 2, 99])
def test_any_minor_version(minor):
    assert ad.tensor(Foreign(minor=minor)()).shape == (3,)


def test_other_major_versions():
    old = Foreign()
    assert ad.tensor(Foreign(major=2, prev=old)()).data_ptr == old.managed.data
    for major in (0, 2):
        foreign = Foreign(major=major)
        with pytest.raises(TypeError):
            ad.tensor(foreign())
        assert foreign.n_calls == 0


def test_attribute_is_not_a_table():
    for value in (None, 3, dl.capsule_new(16, "other")):
        cls = type("Odd", (), {"__dlpack_c_exchange_api__": value})
        with pytest.raises(TypeError):
            ad.tensor(cls())


def test_table_not_used_for_subclasses():
    foreign = Foreign()
    subclass = type("Sub", (foreign.type,), {})
    with pytest.raises(TypeError):
        ad.tensor(subclass())
    assert foreign.n_calls == 0


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"data": None}, "malformed"),
        ({"ndim": -1}, "malformed"),
        ({"version": (2, 0)}, "version"),
    ],
)
def test_malformed_struct(kwargs, reason):
    foreign = Foreign(**kwargs)
    with fails(reason):
        ad.tensor(foreign())
    assert foreign.managed.deleted == 1


def test_table_without_an_error():
    with fails("protocol"):
        ad.tensor(Foreign(result=-1)())
    foreign = Foreign()
    foreign.managed = None
    with fails("protocol"):
        ad.tensor(foreign())


@pytest.mark.parametrize(
    ("device", "current", "expected", "other"),
    [
        (dl.CUDA, None, 1, 2),
        (dl.CUDA, 77, 77, 1),
        (dl.CUDA_MANAGED, None, 1, 2),
        (dl.ROCM, None, 0, 77),
        (dl.ROCM, 77, 77, 0),
    ],
)
def test_current_stream_is_pending(device, current, expected, other):
    foreign = Foreign(device=(device, 0), data=HANDLE, stream=current)
    t = ad.tensor(foreign())
    assert foreign.asked == [(device, 0)]
    Received(t.__dlpack__(stream=expected, max_version=(1, 0))).delete()
    with fails("event"):
        t.__dlpack__(stream=other)


def test_stream_that_is_refused_without_an_error():
    foreign = Foreign(device=(dl.CUDA, 0), data=HANDLE, stream=77)
    refuse = dl.CURRENT_STREAM(lambda *_: 1)
    foreign.table.current_stream = refuse
    with fails("refused") as info:
        ad.tensor(foreign())
    assert "current_work_stream failed without an error" in str(info.value)
    assert foreign.managed.deleted == 1


def test_stream_of_the_caller():
    foreign = Foreign(device=(dl.CUDA, 0), data=HANDLE, stream=77)
    with fails("event"):  # without a runtime stream 5 cannot be made to wait for stream 77
        ad.tensor(foreign(), stream=5)
    assert foreign.managed.deleted == 1
    foreign = Foreign(device=(dl.CUDA, 0), data=HANDLE, stream=77)
    t = ad.tensor(foreign(), stream=77)
    t.__dlpack__(stream=77)
    foreign = Foreign(device=(dl.CUDA, 0), data=HANDLE, stream=77)
    t = ad.tensor(foreign(), stream=-1)
    t.__dlpack__(stream=5)
    with pytest.raises(ValueError):
        ad.tensor(foreign(), stream=0)


def test_no_stream_for_pinned_memory():
    foreign = Foreign(device=(dl.CUDA_HOST, 0))
    t = ad.tensor(foreign())
    assert foreign.asked == []
    t.__dlpack__()


def test_copies():
    foreign = Foreign()
    t = ad.tensor(foreign(), copy=True)
    assert t.data_ptr != foreign.managed.data
    assert np.from_dlpack(t).tolist() == [1, 2, 3]
    assert foreign.managed.deleted == 1
    foreign = Foreign()
    assert ad.tensor(foreign(), copy=False).data_ptr == foreign.managed.data
    for kwargs, copy, reason in (
        ({"flags": dl.IS_COPIED}, False, "copy"),
        ({"device": (dl.CUDA, 0), "data": HANDLE}, True, "runtime"),
    ):
        foreign = Foreign(**kwargs)
        with fails("refused") as info:
            ad.tensor(foreign(), copy=copy)
        assert info.value.__cause__.reason == reason
        assert foreign.managed.deleted == 1


def test_complex_needs_dlpack():
    foreign = Foreign(dtype=(dl.COMPLEX, 32, 1))
    with fails("refused") as info:
        ad.tensor(foreign())
    assert info.value.__cause__.reason == "conjugate"
    assert foreign.managed.deleted == 1


def test_marks_of_any_type():
    """Every type with torch's three marks is asked for them."""

    class Marks:
        requires_grad = False
        negative = False

        def is_neg(self):
            return self.negative

        def is_conj(self):
            raise AssertionError("asked for complex numbers only")

    def make(**kwargs):
        foreign = Foreign(**kwargs)
        cls = dl.exchange_type(
            foreign.table, requires_grad=False, is_neg=Marks.is_neg, is_conj=Marks.is_conj
        )
        x = cls()
        x.negative = False
        return foreign, x

    foreign, x = make()
    ad.tensor(x)
    x.negative = True
    with fails("negative"):
        ad.tensor(x)
    x.negative, x.requires_grad = False, True
    with fails("requires_grad"):
        ad.tensor(x)
    assert foreign.managed.deleted == 3
    # The marks are not read for integers.
    foreign, x = make(dtype=(dl.INT, 32, 1))
    x.negative = x.requires_grad = True
    ad.tensor(x)


def test_a_gradient_of_any_type():
    """Paddle has no negative bit, and its table hands over what requires a gradient."""
    foreign = Foreign()
    x = dl.exchange_type(foreign.table, requires_grad=False)()
    ad.tensor(x)
    x.requires_grad = True
    with fails("requires_grad") as info:
        ad.tensor(x)
    assert info.value.hint == "pass x.detach()" and foreign.managed.deleted == 2


# --- torch's table ---------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def no_dlpack(torch, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("__dlpack__ was called")

    monkeypatch.setattr(torch.Tensor, "__dlpack__", refuse)


@pytest.mark.usefixtures("no_dlpack")
@pytest.mark.parametrize("dtype", ["int64", "bool", "float32", "bfloat16", "float8_e5m2"])
def test_torch(torch, dtype):
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)).T
    t = ad.tensor(x)
    assert t.data_ptr == x.data_ptr()
    assert t.shape == (3, 2)
    assert t.strides == (1, 3)
    assert t.dtype == dtype
    assert not t.readonly


def test_torch_tensor_is_released(torch):
    x = torch.arange(3)
    storage = x.untyped_storage()
    gone = weakref.ref(x)
    t = ad.tensor(x)
    del x, storage
    gc.collect()
    assert np.from_dlpack(t).tolist() == [0, 1, 2]
    del t
    gc.collect()
    assert gone() is None


def test_torch_marks(torch):
    x = torch.arange(3.0)
    with fails("requires_grad") as info:
        ad.tensor(x.requires_grad_())
    assert info.value.hint == "pass x.detach()"
    assert ad.tensor(x.detach()).data_ptr == x.data_ptr()

    z = torch.tensor([1 + 2j, 3 + 4j])
    with fails("negative") as info:
        ad.tensor(z.conj().imag)
    assert np.from_dlpack(ad.tensor(z.conj().imag.resolve_neg())).tolist() == [-2, -4]
    with fails("conjugate") as info:
        ad.tensor(z.conj())
    assert info.value.hint == "pass x.resolve_conj()"
    assert np.from_dlpack(ad.tensor(z)).tolist() == [1 + 2j, 3 + 4j]
    assert np.from_dlpack(ad.tensor(z.conj().resolve_conj())).tolist() == [1 - 2j, 3 - 4j]


def test_torch_marks_of_columns(torch):
    """An Array is made without a tensor in between, and asks as well."""
    x = torch.arange(3.0)
    assert ad.array(x).to_pylist() == [0, 1, 2]
    with fails("requires_grad"):
        ad.array(x.requires_grad_())
    z = torch.tensor([1 + 2j])
    with fails("negative"):
        ad.array(z.conj().imag[:1].view(1))
    with fails("conjugate"):
        ad.array(z.conj())
    assert ad.array(torch.arange(6)[::2]).to_pylist() == [0, 2, 4]
    assert ad.array(torch.arange(6)[2:4]).to_pylist() == [2, 3]
    assert ad.array(torch.arange(0)).to_pylist() == []


def test_torch_column_holds_its_tensor(torch):
    x = torch.arange(3)
    gone = weakref.ref(x)
    pair = ad.array(x).__arrow_c_device_array__()
    del x
    gc.collect()
    assert ad.array(pair).to_pylist() == [0, 1, 2]
    del pair
    gc.collect()
    assert gone() is None


def test_marks_are_asked_by_name_where_the_class_has_functions_of_its_own(torch, monkeypatch):
    x = torch.arange(3.0)
    assert len(ad.array(x)) == 3
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "is_neg", lambda self: True)
        with fails("negative"):
            ad.array(x)
    assert len(ad.array(x)) == 3


@pytest.mark.parametrize("class_name", ["Parameter", "Subclass"])
def test_torch_marks_of_subclasses(torch, class_name):
    cls = torch.nn.Parameter
    if class_name == "Subclass":
        cls = type("Subclass", (torch.Tensor,), {})
    z = torch.tensor([1 + 2j, 3 + 4j])
    with fails("requires_grad"):
        ad.tensor(torch.arange(3.0).as_subclass(cls).requires_grad_())
    with fails("negative"):
        ad.tensor(z.conj().imag.as_subclass(cls))
    with fails("conjugate"):
        ad.tensor(z.conj().as_subclass(cls))


def test_torch_subclass_goes_through_dlpack(torch):
    calls = []

    class Subclass(torch.Tensor):
        def __dlpack__(self, **kwargs):
            calls.append(kwargs)
            return torch.arange(5).__dlpack__(**kwargs)

    t = ad.tensor(torch.arange(3).as_subclass(Subclass))
    assert calls == [{"max_version": (1, 3)}]
    assert t.shape == (5,)


def test_torch_refusals(torch):
    sparse = torch.eye(3).to_sparse()
    meta = torch.empty(3, device="meta")
    for x in (sparse, meta):
        with fails("refused") as info:
            ad.tensor(x)
        assert "__dlpack_c_exchange_api__ refused (RuntimeError" in str(info.value)


# --- into the class of another library --------------------------------------------


def test_into_torch(torch):
    x = np.arange(3)
    t = ad.tensor(x).into(torch.Tensor)
    assert t.data_ptr() == x.ctypes.data


def test_refused_by_torch(torch):
    # torch's function takes ownership of the tensor only on success.
    p = dl.Producer(dtype=(77, 32, 1))
    t = ad.tensor(p)
    with fails("refused") as info:
        t.into(torch.Tensor)
    assert type(info.value.__cause__) is RuntimeError
    assert p.deleted == 0
    del t
    assert p.deleted == 1


@pytest.mark.parametrize("steals", [True, False])
def test_refused_by_a_table(steals):
    def to_py(managed, _out):
        if steals:
            Received.of_struct(managed[0]).delete()
        return -1

    table = Foreign().table
    table.to_py = dl.TO_PY(to_py)
    p = dl.Producer()
    t = ad.tensor(p)
    with fails("refused"):
        t.into(dl.exchange_type(table))
    assert p.deleted == 0
    del t
    assert p.deleted == 1


def set_late_error(table, name, function):
    """Make `name` of a table do what `function` does, and then set KeyError."""
    table.kept = dict(table._objects)
    library = ctypes.PyDLL(str(build("late_error")))
    slot = c_void_p.in_dll(library, f"late_{name.removeprefix('current_')}")
    slot.value = ctypes.cast(function, c_void_p).value
    setattr(table, name, type(function)(ctypes.cast(getattr(library, name), c_void_p).value))


def test_exception_beside_a_0():
    """An exception that comes with a 0 is not believed away, and nothing leaks."""
    foreign = Foreign()
    set_late_error(foreign.table, "from_py", foreign.table.from_py)
    with fails("refused") as info:
        ad.tensor(foreign())
    assert causes(info.value, KeyError)
    assert (foreign.n_calls, foreign.managed.deleted) == (1, 1)

    foreign = Foreign(device=(dl.CUDA, 0), data=HANDLE, stream=77)
    set_late_error(foreign.table, "current_stream", foreign.table.current_stream)
    with fails("refused") as info:
        ad.tensor(foreign())
    assert causes(info.value, KeyError)
    assert (foreign.asked, foreign.managed.deleted) == ([(dl.CUDA, 0)], 1)
    t = ad.tensor(dl.Producer(device=(dl.CUDA, 0), data=HANDLE), stream=77)
    with pytest.raises(KeyError, match="beside a 0"):
        t.into(foreign.type)

    foreign = Foreign()
    own = dl.exchange_table(ad.Tensor)
    set_late_error(foreign.table, "to_py", own.to_py)
    p = dl.Producer()
    t = ad.tensor(p)
    with fails("refused") as info:
        t.into(foreign.type)
    assert causes(info.value, KeyError)
    del t, info
    assert p.deleted == 1


def test_into_with_pending_work():
    foreign = Foreign(stream=77)
    p = dl.Producer(device=(dl.CUDA, 0), data=HANDLE)
    for stream, reason in ((77, "refused"), (78, "event")):
        t = ad.tensor(p, stream=stream)
        with fails(reason):
            t.into(foreign.type)
    assert foreign.asked == [(dl.CUDA, 0)] * 2


# --- arrowdev's own table --------------------------------------------------------


@pytest.fixture
def table():
    return dl.exchange_table(ad.Tensor)


def make(shape=(2, 3), dtype="f4"):
    x = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    return x, ad.tensor(x)


def managed_of(table, tensor):
    out = POINTER(dl.Versioned)()
    assert table.from_py(tensor, ctypes.byref(out)) == 0
    return out


def test_header(table):
    assert (table.version.major, table.version.minor) == (1, 3)
    assert table.prev_api is None


def test_on_tensor_only():
    for cls in (ad.Array, ad.Buffer):
        assert not hasattr(cls, "__dlpack_c_exchange_api__")


def test_from_py(table):
    x, t = make()
    gone = weakref.ref(t)
    out = managed_of(table, t)
    r = Received.of_struct(out[0])
    assert r.version == (1, 3)
    assert r.data == x.ctypes.data
    assert r.shape == (2, 3)
    assert r.strides == (3, 1)
    assert r.dtype == dl.FLOAT32
    assert r.device == (1, 0)
    assert r.flags == 0
    del t
    assert gone() is None
    r.delete()


def test_from_py_of_read_only(table):
    x, _ = make()
    x.flags.writeable = False
    r = Received.of_struct(managed_of(table, ad.tensor(x))[0])
    assert r.flags == dl.READ_ONLY
    r.delete()


def test_borrowed_view(table):
    x, t = make()
    view = dl.DLTensor()
    assert table.tensor_from_py(t, ctypes.byref(view)) == 0
    assert view.data == x.ctypes.data
    assert dl.extents(view, "shape") == (2, 3)
    assert dl.extents(view, "strides") == (3, 1)
    _, t = make(())
    assert table.tensor_from_py(t, ctypes.byref(view)) == 0
    assert view.ndim == 0
    assert not view.shape


def test_borrowed_view_has_no_flags(table):
    x, _ = make()
    x.flags.writeable = False
    with fails("readonly"):
        table.tensor_from_py(ad.tensor(x), ctypes.byref(dl.DLTensor()))


@pytest.mark.parametrize("value", [None, 3, "x", object(), np.arange(3), ad.Tensor])
def test_hostile_objects(table, value):
    with pytest.raises(TypeError, match=r"expected an arrowdev\.Tensor"):
        table.from_py(value, ctypes.byref(POINTER(dl.Versioned)()))
    with pytest.raises(TypeError, match=r"expected an arrowdev\.Tensor"):
        table.tensor_from_py(value, ctypes.byref(dl.DLTensor()))


def test_pending_work(table):
    out = POINTER(dl.Versioned)()
    # current_work_stream reports the default stream, so work may be pending there.
    t = ad.tensor(dl.Producer(device=(dl.CUDA, 0), data=HANDLE))
    Received.of_struct(managed_of(table, t)[0]).delete()
    t = ad.tensor(dl.Producer(device=(dl.CUDA, 0), data=HANDLE), stream=77)
    with fails("event"):
        table.from_py(t, ctypes.byref(out))
    with fails("event"):
        table.tensor_from_py(t, ctypes.byref(dl.DLTensor()))


def to_py(table, managed):
    out = py_object()
    pointer = ctypes.cast(ctypes.addressof(managed.struct), POINTER(dl.Versioned))
    assert table.to_py(pointer, ctypes.byref(out)) == 0
    value = out.value
    # The slot of a py_object does not own the reference that C code stores in it.
    ctypes.pythonapi.Py_DecRef(py_object(value))
    return value


def test_to_py(table):
    managed = Managed(flags=dl.READ_ONLY)
    t = to_py(table, managed)
    assert type(t) is ad.Tensor
    assert t.data_ptr == managed.data
    assert t.readonly
    assert managed.deleted == 0
    del t
    assert managed.deleted == 1


def test_to_py_with_pending_work(table):
    t = to_py(table, Managed(device=(dl.CUDA, 0), data=HANDLE))
    t.__dlpack__(stream=1)
    with fails("event"):
        t.__dlpack__(stream=2)


def test_to_py_fails(table):
    managed = Managed(ndim=-1)
    pointer = ctypes.cast(ctypes.addressof(managed.struct), POINTER(dl.Versioned))
    with fails("malformed"):
        table.to_py(pointer, ctypes.byref(py_object()))
    assert managed.deleted == 1


def allocate(table, device=(1, 0), **kwargs):
    errors = []
    managed = Managed(device=device, data=None, **kwargs)
    out = POINTER(dl.Versioned)()
    set_error = dl.SET_ERROR(lambda context, kind, text: errors.append((kind, text)))
    result = table.allocator(
        ctypes.byref(managed.struct.tensor), ctypes.byref(out), None, set_error
    )
    return result, out, errors


def test_allocator(table):
    result, out, errors = allocate(table, shape=(2, 3))
    assert (result, errors) == (0, [])
    r = Received.of_struct(out[0])
    assert r.data % 64 == 0
    assert r.shape == (2, 3)
    assert r.strides == (3, 1)
    assert r.flags == 0
    ctypes.memset(r.data, 1, 24)
    r.delete()


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_allocator_of_small_shapes(table, shape):
    result, out, errors = allocate(table, shape=shape)
    assert (result, errors) == (0, [])
    r = Received.of_struct(out[0])
    assert (r.data is None) == (0 in shape)
    r.delete()


@pytest.mark.parametrize(
    ("kwargs", "kind", "text"),
    [
        ({"device": (2, 1)}, b"BufferError", b"cuda"),
        ({"ndim": -1}, b"BufferError", b"dimensions"),
        ({"shape": (1 << 60,), "strides": None}, b"MemoryError", b""),
    ],
)
def test_allocator_fails(table, kwargs, kind, text):
    result, out, errors = allocate(table, **kwargs)
    assert result == -1
    assert not out
    assert len(errors) == 1
    assert errors[0][0] == kind
    assert text in errors[0][1]


def test_current_stream(table):
    for device in ((1, 0), (2, 0), (99, 3)):
        out = c_void_p(1)
        assert table.current_stream(*device, ctypes.byref(out)) == 0
        assert out.value is None


def test_tvm_ffi_uses_arrowdev_table():
    tvm_ffi = pytest.importorskip("tvm_ffi")
    x, t = make()
    echo = tvm_ffi.get_global_func("testing.echo")
    result = echo(t)
    assert tuple(result.shape) == (2, 3)
    assert np.from_dlpack(result).ctypes.data == x.ctypes.data
