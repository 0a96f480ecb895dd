"""Stored tables and arrays as files, and files stored as tables and arrays."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from typing import Any

import entrepot
import pytest
from entrepot.errors import ObjectNotFound
from entrepot_io.filesystem import formats
from entrepot_io.filesystem.file_system import EntrepotFileSystem

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pq = pytest.importorskip("pyarrow.parquet")
csv = pytest.importorskip("pyarrow.csv")
orc = pytest.importorskip("pyarrow.orc")

COLUMNS = {"n": [1, 2, 3], "text": ["a", "b,c", None]}
TABLES = {
    "arrow": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.record_batch(COLUMNS),
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "polars": lambda: pl.DataFrame(COLUMNS),
}
READERS: dict[str, Callable[[bytes], Any]] = {
    ".arrow": lambda data: pa.ipc.open_file(data).read_all(),
    ".feather": lambda data: pa.ipc.open_file(data).read_all(),
    ".parquet": lambda data: pq.read_table(io.BytesIO(data)),
    ".csv": lambda data: csv.read_csv(io.BytesIO(data)),
    ".orc": lambda data: orc.read_table(io.BytesIO(data)),
}


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_read_in_each_format(kind: str, suffix: str, fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    oid = store.put(TABLES[kind](), name="folder/table")
    for path in (f"current/folder/table{suffix}", f"{oid}{suffix}"):
        data = fs.cat_file(path)
        columns = READERS[suffix](data).to_pydict()
        assert columns["n"] == COLUMNS["n"]
        assert columns["text"] in (COLUMNS["text"], ["a", "b,c", ""])  # CSV does not tell null from nothing
        assert fs.size(path) == len(data)
        assert fs.isfile(path)
        with fs.open(path) as file:
            assert file.size == len(data)


def test_only_what_is_stored_is_listed(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    store.put(pa.table(COLUMNS), name="table")
    (entry,) = fs.ls("current")
    assert (entry["name"], entry["object_type"]) == ("current/table", "arrow.table")
    assert entry["size"] == store.info(store.resolve("table")).nbytes
    assert fs.glob("current/*.parquet") == []


def test_an_array(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    array = np.arange(12.0).reshape(3, 4)
    store.put(array, name="array")
    with fs.open("current/array.npy") as file:
        np.testing.assert_array_equal(np.load(file), array)
    assert not fs.exists("current/array.parquet")


def test_other_values_have_no_formats(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    store.put(b"bytes", name="raw")
    store.put({"a": 1}, name="data")
    for path in (
        "current/raw.parquet",
        "current/raw.csv",
        "current/data.arrow",
        "current/missing.arrow",
        "current/.arrow",
    ):
        assert not fs.exists(path)
        with pytest.raises(FileNotFoundError):
            fs.open(path)


def test_a_stored_file_hides_the_format_of_a_table(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    store.put(pa.table(COLUMNS), name="table")
    fs.pipe_file("current/table.csv", b"mine")
    assert fs.cat_file("current/table.csv") == b"mine"
    fs.rm("current/table.csv")
    assert fs.cat_file("current/table.csv").startswith(b'"n","text"')
    with pytest.raises(PermissionError, match="delete current/table"):
        fs.rm("current/table.csv")
    assert fs.exists("current/table")


def test_the_path_of_a_table_without_a_suffix_says_what_to_add(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    store.put(pa.table(COLUMNS), name="table")
    store.put(np.arange(3), name="array")
    with pytest.raises(
        OSError, match=r"arrow\.table, not bytes: add \.arrow, \.feather, \.parquet, \.csv, \.orc or \.h5 to its path"
    ):
        fs.open("current/table")
    with pytest.raises(OSError, match=r"numpy\.ndarray, not bytes: add \.npy or \.h5 to its path"):
        fs.open("current/array")


def test_the_bytes_of_a_table_follow_its_content(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    oid = store.derive("table")
    for n in (1, 2):
        store.put(pa.table({"n": [n]}), id=oid, name="table", replace=True)
        assert fs.cat_file("current/table.csv") == b'"n"\n%d\n' % n


def test_asking_for_the_size_converts_once(
    fs: EntrepotFileSystem, store: entrepot.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(pa.table(COLUMNS), name="table")
    calls = []
    wanted = formats.FORMATS[".parquet"]

    def encode(value: Any) -> Any:
        calls.append(value)
        return wanted.encode(value)

    counted = formats.Format(wanted.suffix, wanted.types, encode, wanted.decode)
    monkeypatch.setitem(formats.FORMATS, ".parquet", counted)
    assert fs.exists("current/table.parquet")
    assert fs.isfile("current/table.parquet")
    assert not fs.isdir("current/table.parquet")
    assert calls == []
    with fs.open("current/table.parquet") as file:
        assert len(file.read()) == fs.size("current/table.parquet") == fs.info("current/table.parquet")["size"]
    assert len(calls) == 1


def test_a_table_that_a_format_cannot_hold(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    store.put(pa.table({"nested": [[1], [2, 3]]}), name="table")
    with pytest.raises(OSError, match=r"cannot be written as \.csv") as caught:
        fs.open("current/table.csv")
    assert caught.value.errno == errno.EINVAL
    assert fs.exists("current/table.parquet")


def test_copying_a_table_copies_the_object_and_copying_a_format_its_bytes(
    fs: EntrepotFileSystem, store: entrepot.Store
) -> None:
    store.put(pa.table({"n": list(range(100_000))}), name="table")
    fs.copy("current/table", "current/copy")
    fs.copy("current/table.parquet", "current/file.parquet")
    assert store.get_by_name("copy").num_rows == 100_000
    assert store.get_by_name("file.parquet")[:4] == b"PAR1"


def test_a_collection_is_not_copied(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    with_members = store.collection("parts")
    with_members.put(pa.table(COLUMNS), index=0)
    with_members.seal(1)
    assert fs.isfile("current/parts")
    with pytest.raises(PermissionError, match="two owners"):
        fs.copy("current/parts", "current/copy")
    with pytest.raises(OSError, match="a collection"):
        fs.open("current/parts")


# --- decode=True


@pytest.mark.parametrize("suffix", READERS)
def test_decoding_stores_a_table(
    suffix: str, new_fs: Callable[..., EntrepotFileSystem], store: entrepot.Store, options: dict[str, Any]
) -> None:
    fs = new_fs(**options, decode=True)
    table = pa.table({"n": [1, 2], "text": ["a", "b"]})
    fs.pipe_file(f"current/table{suffix}", bytes(formats.FORMATS[suffix].encode(table)))
    stored = store.get_by_name("table")
    assert isinstance(stored, pa.Table)
    assert stored.equals(table)
    assert fs.exists(f"current/table{suffix}")
    with pytest.raises(ObjectNotFound):
        store.resolve(f"table{suffix}")


def test_decoding_stores_an_array_and_leaves_other_files_alone(
    new_fs: Callable[..., EntrepotFileSystem], store: entrepot.Store, options: dict[str, Any]
) -> None:
    fs = new_fs(**options, decode=True)
    with fs.open("current/array.npy", "wb") as file:
        np.save(file, np.arange(5))
    np.testing.assert_array_equal(store.get_by_name("array"), np.arange(5))
    fs.pipe_file("current/notes.txt", b"text")
    assert store.get_by_name("notes.txt") == b"text"


def test_what_cannot_be_decoded_is_not_stored(
    new_fs: Callable[..., EntrepotFileSystem], store: entrepot.Store, options: dict[str, Any]
) -> None:
    fs = new_fs(**options, decode=True)
    with pytest.raises(OSError, match="without decode=True"):
        fs.pipe_file("current/table.parquet", b"no table")
    assert store.list() == []
