"""Arrays that libraries exchange by DLPack: JAX, and the array API's reference implementation."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import entrepot
import entrepot_io
import numpy as np
import pytest
from entrepot.codec import default_registry, pack_tree, unpack_tree
from entrepot.errors import CorruptData
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

LIBRARIES = ["array_api_strict", "jax.numpy"]
DTYPES = ["bool", "int8", "int32", "uint16", "float32", "complex64"]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    """The namespace of a library with arrays."""
    if request.param == "jax.numpy":
        pytest.importorskip("jax", reason="JAX is large: tested where it is installed")
    return import_module(request.param)


@pytest.mark.parametrize("copy", ["never", "on_write", "always"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (100, 70)])
def test_the_same_array_comes_back(put: Any, library: Any, dtype: str, shape: tuple[int, ...], copy: Any) -> None:
    value = library.ones(shape, dtype=getattr(library, dtype))
    stored = put(value)
    assert stored.codec == "dlpack.array"
    back = stored.get(copy)
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert back.shape == value.shape
    assert np.array_equal(np.asarray(back), np.asarray(value))


ALL_DTYPES = [*DTYPES, "int16", "int64", "uint8", "uint32", "uint64", "float64", "complex128"]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")  # of JAX, which makes 32 bits of 64
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), copy=st.sampled_from(["never", "on_write", "always"]))
def test_any_array_and_view_comes_back(put: Any, library: Any, data: Any, copy: Any) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    plain = data.draw(hnp.arrays(data.draw(st.sampled_from(ALL_DTYPES)), shape))
    value = library.asarray(plain)
    view = library.permute_dims(value, tuple(data.draw(st.permutations(range(value.ndim)))))
    if view.ndim and view.shape[0]:  # the standard leaves open what else slices of nothing are
        view = view[data.draw(st.sampled_from([slice(None), slice(0, -1), slice(None, None, 2)])), ...]
    for array in (value, view):
        back = put({"a": [array]}).get(copy)["a"][0]
        assert (type(back), back.dtype, back.shape) == (type(array), array.dtype, array.shape)
        assert np.asarray(back).tobytes() == np.asarray(array).tobytes()


def test_nothing_is_copied_and_values_reach_all_readers(module_daemon: Any, library: Any) -> None:
    with entrepot.connect(module_daemon.address, scope="dlpack", allow_pickle=False) as store:
        value = library.arange(500_000, dtype=library.float32)
        oid = store.put({"a": [value]})
        back = store.get(oid)["a"][0]
        assert float(back[499_999]) == 499_999
        address = np.from_dlpack(back).__array_interface__["data"][0]
        mapped = np.asarray(store.get(oid)["a"][0])
        assert address % 64 == 0
        assert mapped.nbytes == 2_000_000
        with open("/proc/self/maps") as maps:
            places = [line.split() for line in maps]
        (place,) = [
            parts for parts in places if int(parts[0].split("-")[0], 16) <= address < int(parts[0].split("-")[1], 16)
        ]
        assert "memfd" in " ".join(place), "it lies in the store's memory"


def test_bfloat16(put: Any) -> None:
    pytest.importorskip("jax", reason="JAX is large: tested where it is installed")
    jnp = import_module("jax.numpy")
    value = jnp.arange(3000, dtype=jnp.bfloat16)
    back = put(value).get()
    assert back.dtype == value.dtype
    assert bool((back == value).all())


@pytest.mark.parametrize("params", [None, [], ["os", "float32"], ["jax.numpy", 5], ["array_api_strict", "int8"]])
def test_damage(put: Any, library: Any, params: Any) -> None:
    stored = put(library.ones(1000, dtype=library.float32))
    root = unpack_tree(stored.tree)
    root.params = params
    stored.tree = pack_tree(root)
    with pytest.raises(CorruptData):
        stored.get()


def test_other_libraries_take_two_functions(module_daemon: Any) -> None:
    class Mine:
        """An array with the two methods of the protocol."""

        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    registry = default_registry()
    before = registry._own
    try:
        entrepot_io.register(Mine, np.from_dlpack, Mine, name="mine.Array")
        with entrepot.connect(module_daemon.address, scope="dlpack", allow_pickle=False) as store:
            back = store.get(store.put(Mine(np.arange(1000))))
            assert type(back) is Mine
            assert np.from_dlpack(back)[999] == 999
    finally:
        registry._own, registry._by_type = before, {}
