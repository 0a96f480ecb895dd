"""xarray's Dataset, DataArray and Variable: coordinates, indexes, attributes, encodings survive; no array is copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from entrepot.codec import CopyMode, pack_tree, unpack_tree
from entrepot.errors import CorruptData, UnsupportedType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PROPERTY = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
N = 1000


def dataset() -> Any:
    numbers = np.arange(N * 4, dtype="f4").reshape(N, 4)
    return xr.Dataset(
        {
            "temperature": (("time", "station"), numbers, {"unit": "K", "valid": np.float32(4)}, {"dtype": "int16"}),
            "observed": ("time", pd.date_range("2000", periods=N).to_numpy()),
            "note": ("station", np.array(["a", None, "c", "d"], dtype=object)),
            "height": 7.0,
        },
        coords={
            "time": ("time", pd.date_range("2020", periods=N, freq="h"), {"axis": "T"}, {"units": "hours since 2020"}),
            "station": ["x", "y", "z", "w"],
            "depth": ("time", np.arange(N)),
            "run": np.datetime64("2020-01-01", "ns"),
        },
        attrs={"title": "test", "history": ["made", {"by": "me"}]},
    )


def with_levels() -> Any:
    index = pd.MultiIndex.from_product([["a", "b"], range(N // 2)], names=["letter", "number"])
    return xr.Dataset({"v": ("row", np.arange(N))}, coords=xr.Coordinates.from_pandas_multiindex(index, "row"))


VALUES: dict[str, Any] = {
    "dataset": dataset,
    "levels": with_levels,
    "empty": xr.Dataset,
    "no coordinates": lambda: xr.Dataset({"a": (("x", "y"), np.zeros((3, 4)))}),
    "coordinates only": lambda: xr.Dataset(coords={"x": [1, 2, 3]}),
    "array": lambda: dataset()["temperature"],
    "array without name": lambda: dataset()["temperature"].rename(None),
    "coordinate": lambda: dataset()["time"],
    "coordinate without index": lambda: dataset()["depth"],
    "level": lambda: with_levels()["letter"],
    "scalar": lambda: xr.DataArray(5, attrs={"a": 1}),
    "renamed coordinate": lambda: dataset()["time"].rename("other"),
    "reduced": lambda: dataset().isel(time=3),
    "transposed": lambda: dataset().transpose(),
    "variable": lambda: dataset()["temperature"].variable,
    "variable of times": lambda: dataset()["observed"].variable,
    "no index": lambda: dataset().drop_indexes("time"),
    "range": lambda: xr.Dataset(coords={"x": pd.RangeIndex(5)}),
    "intervals": lambda: xr.Dataset(coords={"x": pd.interval_range(0, 5)}),
    "names that are not text": lambda: xr.Dataset({1: (("x",), [1, 2]), ("a", 2): ("y", [3])}),
    "categories": lambda: xr.Dataset({"c": ("x", pd.Categorical(["a", "b", "a"]))}),
}


def assert_same(back: Any, value: Any) -> None:
    """Identical for xarray (names, attributes, coordinates); also dtypes, encodings, order and indexes."""
    assert type(back) is type(value)
    xr.testing.assert_identical(back, value)
    assert back.encoding == value.encoding
    if isinstance(value, xr.Variable):
        assert back.dtype == value.dtype
        return
    assert list(back.coords) == list(value.coords)
    for name in value.coords:
        assert back.coords[name].dtype == value.coords[name].dtype, name
        assert back.coords[name].encoding == value.coords[name].encoding, name
        assert type(back.coords[name].variable) is type(value.coords[name].variable), name
    assert list(back.xindexes) == list(value.xindexes)
    for name, index in value.xindexes.items():
        assert type(back.xindexes[name]) is type(index)
        assert type(back.xindexes[name].index) is type(index.index)
        assert back.xindexes[name].equals(index)
    if isinstance(value, xr.Dataset):
        assert list(back.data_vars) == list(value.data_vars)
        for name in value.data_vars:
            assert back[name].dtype == value[name].dtype
            assert back[name].encoding == value[name].encoding


@pytest.mark.parametrize("copy", ["never", "on_write", "always"])
@pytest.mark.parametrize("name", VALUES)
def test_comes_back_the_same_without_pickle(put: Any, name: str, copy: CopyMode) -> None:
    value = VALUES[name]()
    stored = put(value)
    assert stored.codec == f"xarray.{type(value).__name__}"
    assert_same(stored.get(copy), value)


def test_arrays_are_not_copied(put: Any) -> None:
    stored = put(dataset())
    back = stored.get()
    for name in ("temperature", "observed", "depth", "time"):
        array = back[name].to_numpy()
        assert stored.holds(array.__array_interface__["data"][0], array.nbytes), name
        assert not array.flags.writeable
    assert stored.get("always")["temperature"].to_numpy().flags.writeable
    assert float(back.temperature.sel(station="y").mean()) == float(dataset().temperature.sel(station="y").mean())


def test_a_put_copies_no_array() -> None:
    from entrepot.codec import encode_value

    value = dataset()
    _, buffers, _ = encode_value(value, allow_pickle=False)
    addresses = {np.frombuffer(buffer, "u1").__array_interface__["data"][0] for buffer in buffers}
    assert value["temperature"].to_numpy().__array_interface__["data"][0] in addresses
    assert value["time"].to_numpy().__array_interface__["data"][0] in addresses


def test_what_is_still_in_a_file_is_read(put: Any, tmp_path: Path) -> None:
    path = tmp_path / "data.nc"
    value = dataset()[["temperature"]].drop_vars(["station", "run"])
    value.temperature.encoding, value.attrs = {}, {"title": "test"}
    value.to_netcdf(path, engine="scipy")
    with xr.open_dataset(path, engine="scipy") as opened:
        assert not opened["temperature"].variable._in_memory
        stored = put(opened)
    path.unlink()
    back = stored.get()
    assert np.array_equal(back["temperature"].to_numpy(), value["temperature"].to_numpy())
    assert back.encoding["source"] == str(path)


def test_plans_are_refused(put: Any) -> None:
    value = xr.Dataset({"a": ("x", dask.array.zeros(10))})
    for item in (value, value["a"], value["a"].variable, [value], {"a": [value, object]}):
        with pytest.raises(UnsupportedType, match=r"plan, not data: call \.compute\(\)"):
            put(item, allow_pickle=True)
    assert_same(put(value.compute()).get(), value.compute())


def test_other_arrays_and_indexes_need_pickle(put: Any) -> None:
    holder = xr.Variable("x", np.array([Path, None], dtype=object))
    with pytest.raises(UnsupportedType):
        put(holder)
    marked = xr.Dataset({"a": ("x", np.arange(3))}, attrs={"class": Path})
    with pytest.raises(UnsupportedType):
        put(marked)
    back = put(marked, allow_pickle=True).get()
    assert back.attrs == {"class": Path}


def test_inside_containers_and_pickled_objects(put: Any) -> None:
    value = dataset()
    for container in ({"a": [value]}, {"a": [value], "b": Path}):
        stored = put(container, allow_pickle=True)
        back = stored.get()["a"][0]
        assert_same(back, value)
        array = back["temperature"].to_numpy()
        assert stored.holds(array.__array_interface__["data"][0], array.nbytes)


@PROPERTY
@given(
    sizes=st.dictionaries(st.sampled_from("xyz"), st.integers(0, 5), min_size=1),
    dtype=st.sampled_from(["f4", "i8", "?", "M8[ns]", "m8[s]", "<U3", "c16"]),
    data=st.data(),
)
def test_any_dataset_comes_back(put: Any, sizes: dict[str, int], dtype: str, data: Any) -> None:
    names = list(sizes)
    variables, coordinates = {}, {}
    for number in range(data.draw(st.integers(0, 3))):
        dims = data.draw(st.lists(st.sampled_from(names), unique=True))
        values = np.arange(int(np.prod([sizes[dim] for dim in dims]))).astype("i8").astype(dtype)
        attrs = data.draw(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2))
        variables[f"v{number}"] = (dims, values.reshape([sizes[dim] for dim in dims]), attrs)
    for dim in data.draw(st.lists(st.sampled_from(names), unique=True)):
        kind = data.draw(st.sampled_from(["numbers", "text", "times"]))
        labels: Any = {
            "numbers": np.arange(sizes[dim]) * 1.5,
            "text": [f"{dim}{number}" for number in range(sizes[dim])],
            "times": pd.date_range("2020", periods=sizes[dim]),
        }[kind]
        coordinates[dim] = labels
    value = xr.Dataset(variables, coords=coordinates)
    assert_same(put(value).get(), value)
    for name in value.variables:
        assert_same(put(value[name]).get(), value[name])


def test_sizes_that_contradict_each_other(put: Any) -> None:
    stored = put(dataset())
    root = unpack_tree(stored.tree)
    root.children[1] = unpack_tree(put(xr.Variable(("time", "station"), np.zeros((2, 2)))).tree)
    stored.tree = pack_tree(root)
    with pytest.raises(CorruptData, match="conflicting sizes"):
        stored.get()


@pytest.mark.parametrize("change", range(7))
def test_headers_that_do_not_match(put: Any, change: int) -> None:
    stored = put(dataset())
    root = unpack_tree(stored.tree)
    headers: list[Any] = [
        [],
        [{}, {}, "abc", [], [], []],
        [{}, {}, [], [], [], []],
        [{}, {}, ["a", "a"], ["time"], [], [["pandas", "time", ["time"], [None]]]],
        [{}, {}, ["a"], ["time"], [], [["multi", "time", ["time"], [None]]]],
        [{}, {}, ["a"], [], ["depth"], [["new", "time", ["time"], [None]]]],
        5,
    ]
    root.children[0] = unpack_tree(put(headers[change]).tree)
    stored.tree = pack_tree(root)
    with pytest.raises(CorruptData):
        stored.get()
