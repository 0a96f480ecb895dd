"""HDF5 files of tables and arrays."""

from __future__ import annotations

import io
from typing import Any

import entrepot
import pytest
from entrepot.errors import UnsupportedType
from entrepot_io.filesystem import hdf5
from entrepot_io.filesystem.file_system import EntrepotFileSystem

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
h5py = pytest.importorskip("h5py")

TABLE = {"z": [1, 2, 3], "a": [0.5, float("inf"), -0.0], "text": ["", "é, \n", "c"], "yes": [True, False, True]}


def test_a_table_comes_back_with_its_columns_in_order(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    table = pa.table(TABLE)
    store.put(table, name="table")
    data = fs.cat_file("current/table.h5")
    with h5py.File(io.BytesIO(data)) as file:
        assert file["z"][()].tolist() == [1, 2, 3]
        assert file["text"].asstr()[()].tolist() == TABLE["text"]
    assert hdf5.decode(data).equals(table)


@pytest.mark.parametrize("value", [np.arange(12.0).reshape(3, 4), np.array(5, np.int8), np.zeros((0, 3), np.complex64)])
def test_an_array_comes_back(value: Any, fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    store.put(value, name="array")
    back = hdf5.decode(fs.cat_file("current/array.h5"))
    assert back.dtype == value.dtype
    assert back.shape == value.shape
    assert (back == value).all()


def test_a_table_without_rows() -> None:
    table = pa.table({"n": pa.array([], pa.int16()), "s": pa.array([], pa.string())})
    assert hdf5.decode(hdf5.encode_table(table)).equals(table)


def test_a_table_of_one_column_is_not_taken_for_an_array() -> None:
    table = pa.table({"n": [1, 2]})
    assert hdf5.decode(hdf5.encode_table(table)).equals(table)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": [1, None]}, "column 'n' has 1 missing values"),
        ({"when": pa.array([0], pa.timestamp("ns"))}, "column 'when' is timestamp"),
        ({"list": [[1], [2]]}, "column 'list' is list"),
        ({"a/b": [1]}, "distinct and without slashes"),
    ],
)
def test_what_hdf5_cannot_hold_is_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedType, match=message):
        hdf5.encode_table(pa.table(columns))


def test_files_from_elsewhere() -> None:
    def made(**datasets: Any) -> bytes:
        sink = io.BytesIO()
        with h5py.File(sink, "w") as file:
            for name, value in datasets.items():
                file[name] = value
        return sink.getvalue()

    assert hdf5.decode(made(only=[1, 2])).tolist() == [1, 2]
    assert hdf5.decode(made(a=[1, 2], b=[0.5, 1.5])).to_pydict() == {"a": [1, 2], "b": [0.5, 1.5]}
    with pytest.raises(UnsupportedType, match="no columns"):
        hdf5.decode(made(a=[1, 2], b=[[1], [2]]))


def test_what_is_written_as_hdf5_is_a_table(new_fs: Any, store: entrepot.Store, options: dict[str, Any]) -> None:
    fs = new_fs(**options, decode=True)
    fs.pipe_file("current/table.h5", bytes(hdf5.encode_table(pa.table(TABLE))))
    assert store.get_by_name("table").equals(pa.table(TABLE))
    with pytest.raises(OSError, match=r"cannot be read as \.h5"):
        fs.pipe_file("current/broken.h5", b"nothing")
