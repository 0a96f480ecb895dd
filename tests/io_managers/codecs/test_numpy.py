"""NumPy arrays and scalars: dtype, shape and axis order survive, without copying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from entrepot.codec import CopyMode
from entrepot.errors import UnsupportedType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

PROPERTY = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def assert_same(back: Any, value: Any, *, writable: bool = False) -> None:
    """Exact equality: type, dtype including its C type, shape, memory order, bytes."""
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert (back.dtype.char, back.dtype.type) == (value.dtype.char, value.dtype.type)
    assert back.dtype.isalignedstruct == value.dtype.isalignedstruct
    assert back.shape == value.shape
    assert back.tobytes() == value.tobytes()
    assert back.flags.writeable == writable
    if value.flags.forc:
        assert back.flags.c_contiguous == value.flags.c_contiguous
        assert back.flags.f_contiguous == value.flags.f_contiguous


CUBE = np.arange(24_000, dtype="f8").reshape(20, 30, 40)
ARRAYS: dict[str, Any] = {
    "c order": CUBE,
    "f order": np.asfortranarray(CUBE),
    "transposed": CUBE.transpose(1, 0, 2),
    "strided": CUBE[::2, :, ::3],
    "reversed": CUBE[:, ::-1],
    "one plane": CUBE[..., 3],
    "windows": np.lib.stride_tricks.sliding_window_view(np.arange(100), 3),
    "broadcast": np.broadcast_to(np.arange(1000), (5, 1000)),
    "one repeated": np.broadcast_to(np.float32(3), (1000, 1000)),
    "zero-dimensional": np.array(5),
    "empty": np.array([], "f4"),
    "empty f order": np.zeros((0, 3, 5), order="F"),
    "unit axes": np.zeros((1, 1000, 1)),
    "no bytes an item": np.zeros(5, "S0"),
    "no fields": np.zeros(2, []),
    "text": np.array(["a", "bbé"] * 200),
    "bytes": np.array([b"x", b"yy"] * 300),
    "void": np.zeros(300, "V7"),
    "bool": np.ones((30, 40), "?"),
    "longlong": np.zeros(90, "q"),
    "ulonglong": np.zeros(90, "Q"),
    "long double": np.arange(90).astype("g"),
    "complex long double": np.zeros(90, "G"),
    "big-endian": np.arange(200, dtype=">i4"),
    "25 seconds": np.array(["2020"], "M8[25s]"),
    "generic unit": np.array([1], "m8"),
    "structured": np.zeros(300, [("a", "i4"), ("b", "<U3", (2, 2)), (("title", "c"), ">f8"), ("d", [("e", "?")])]),
    "aligned": np.zeros(300, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "overlapping fields": np.zeros(
        3, np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2], "itemsize": 16})
    ),
    "records": np.rec.array([(1, 2.0)] * 100, dtype=[("a", int), ("b", float)]),
    "matrix": np.arange(600.0).reshape(20, 30).view(np.matrix),
}


@pytest.mark.parametrize("copy", ["never", "on_write", "always"])
@pytest.mark.parametrize("name", ARRAYS)
def test_comes_back_the_same_without_pickle(round_trip: Any, name: str, copy: CopyMode) -> None:
    assert_same(round_trip(ARRAYS[name], copy), ARRAYS[name], writable=copy != "never")


dtypes = hnp.scalar_dtypes() | hnp.array_dtypes(hnp.scalar_dtypes()) | hnp.nested_dtypes(max_itemsize=200)


@PROPERTY
@given(data=st.data(), dtype=dtypes, shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
def test_any_dtype_shape_and_order_comes_back(round_trip: Any, data: Any, dtype: Any, shape: Any) -> None:
    array = np.zeros(shape, dtype)
    if array.nbytes:
        raw = data.draw(st.binary(min_size=array.nbytes, max_size=array.nbytes))
        if array.dtype.kind not in "OUV":  # text has to be valid code points, and structs may contain text
            array = np.frombuffer(raw, array.dtype.base).reshape(array.shape).copy()
    array = array.transpose(data.draw(st.permutations(range(array.ndim))))
    if array.ndim:
        array = array[
            tuple(
                data.draw(st.sampled_from([slice(None), slice(None, None, -1), slice(None, None, 2)]))
                for _ in range(array.ndim)
            )
        ]
    back = round_trip(array)
    assert (type(back), back.dtype, back.shape) == (np.ndarray, array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    if array.flags.forc:
        assert back.flags.f_contiguous == array.flags.f_contiguous


@pytest.mark.parametrize(
    "name", ["c order", "f order", "transposed", "longlong", "structured", "big-endian", "records"]
)
def test_dense_arrays_are_not_copied(put: Any, name: str) -> None:
    value = ARRAYS[name]
    stored = put(value)
    back = stored.get()
    assert stored.nbytes == value.nbytes
    assert stored.holds(back.__array_interface__["data"][0], back.nbytes)
    with pytest.raises(ValueError, match="read-only"):
        back.flat[0] = value.flat[0]


def test_dense_arrays_are_handed_over_without_a_copy() -> None:
    from entrepot.codec import CodecRegistry, encode_value
    from entrepot_io.codecs import codec_specs

    for value in (CUBE, CUBE.T, CUBE.transpose(1, 2, 0), CUBE[3:7]):
        _, buffers, _ = encode_value(value, CodecRegistry(codec_specs(), entry_points=False))
        handed = np.frombuffer(buffers[0], "u1").__array_interface__["data"][0]
        assert handed == value.__array_interface__["data"][0]


def test_a_view_keeps_only_its_own_elements(put: Any) -> None:
    parent = np.zeros(1_000_000)
    assert put(parent[10:1010]).nbytes == 8000
    assert put(parent[::1000]).nbytes == 8000
    assert put(np.broadcast_to(parent[:1000], (10**6, 1000))).nbytes == 8000


def test_the_same_memory_is_stored_once(put: Any) -> None:
    stored = put({"a": CUBE, "b": [CUBE.T, CUBE]})
    assert stored.nbytes == CUBE.nbytes
    back = stored.get()
    assert_same(back["a"], CUBE)
    assert_same(back["b"][0], CUBE.T)


def test_small_arrays_need_no_buffer(put: Any) -> None:
    stored = put([np.arange(10), np.float32(1)])
    assert stored.buffers == []
    assert stored.get("always")[0].flags.writeable


def test_memmap_comes_back_as_array(round_trip: Any, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(200)) * 10)
    value = np.memmap(path, "u1", mode="r")
    back = round_trip(value)
    assert type(back) is np.ndarray
    assert back.tobytes() == path.read_bytes()


SCALARS = [
    np.float64(1.5),
    np.float16("nan"),
    np.int8(-1),
    np.longlong(5),
    np.bool_(True),
    np.complex64(1j),
    np.longdouble(1) / 3,
    np.datetime64("2020-01-01", "ns"),
    np.datetime64("NaT"),
    np.array([5], "m8[7D]")[0],
    np.str_("é\0"),
    np.str_(""),
    np.bytes_(b"a\0"),
    np.void(b"abc"),
    np.zeros(1, [("a", "i4"), ("b", "U2")])[0],
    np.rec.array([(1, 2.0)], dtype=[("a", int), ("b", float)])[0],
]


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: f"{type(value).__name__}")
def test_scalars(round_trip: Any, value: Any) -> None:
    back = round_trip(value)
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    if isinstance(value, (np.str_, np.bytes_)):
        assert len(back) == len(value)
        assert back == value
    else:
        assert back.tobytes() == value.tobytes()


MA: Any = np.ma  # its stubs accept fewer forms of masks than the function does
MASKED = [
    MA.array([1.0, 2, 3], mask=[0, 1, 0], fill_value=7),
    MA.array([1, 2]),
    MA.array(np.zeros(3, [("a", int), ("b", "S3")]), mask=[(0, 1)] * 3, hard_mask=True),
    MA.array(5, mask=True),
    MA.array(np.arange(10_000).reshape(100, 100), mask=np.arange(10_000).reshape(100, 100) % 2),
]


@pytest.mark.parametrize("value", MASKED, ids=range(len(MASKED)))
@pytest.mark.parametrize("copy", ["never", "always"])
def test_masked_arrays(round_trip: Any, value: Any, copy: CopyMode) -> None:
    back = round_trip(value, copy)
    assert type(back) is np.ma.MaskedArray
    assert_same(np.ma.getdata(back), np.ma.getdata(value), writable=copy != "never")
    assert (back.mask is np.ma.nomask) == (value.mask is np.ma.nomask)
    assert (np.ma.getmaskarray(back) == np.ma.getmaskarray(value)).all()
    assert (back.fill_value, back.hardmask) == (value.fill_value, value.hardmask)


PICKLED = [
    np.array([1, "a", None], object),
    np.array(["abc"] * 10, np.dtypes.StringDType()),
    np.array(["a", None], np.dtypes.StringDType(na_object=None)),
    np.zeros(3, [("a", object)]),
    MA.array([1, None], object),
]


@pytest.mark.parametrize("value", PICKLED, ids=lambda value: str(value.dtype))
def test_objects_and_variable_text_are_pickled(put: Any, round_trip: Any, value: Any) -> None:
    back = round_trip(value, allow_pickle=True)
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert back.tolist() == value.tolist()
    with pytest.raises(UnsupportedType, match="fixed-width dtype"):
        put(value)
