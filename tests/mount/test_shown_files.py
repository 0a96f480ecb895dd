"""Programs read stored objects as files."""

from __future__ import annotations

import csv
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot import raw_objects
from entrepot.ids import ObjectID

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
h5py = pytest.importorskip("h5py")
pq = pytest.importorskip("pyarrow.parquet")
read_orc: Callable[[str], Any] = pytest.importorskip("pyarrow.orc").read_table

COLUMNS = {"n": list(range(1000)), "text": ["a", "b,c"] * 500}
TABLES: dict[str, Callable[[], Any]] = {
    "arrow": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.record_batch(COLUMNS),
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "polars": lambda: pl.DataFrame(COLUMNS),
}


def test_a_table_is_listed_and_read_in_each_format(root: Path, store: entrepot.Store) -> None:
    for kind, make in TABLES.items():
        store.put(make(), name=f"tables/{kind}")
    shown = {f"{kind}{suffix}" for kind in TABLES for suffix in (".arrow", ".parquet", ".csv", ".orc")}
    assert set(os.listdir(root / "tables")) == shown
    for kind in TABLES:
        path = str(root / "tables" / kind)
        for table in (
            pa.ipc.open_file(pa.memory_map(f"{path}.arrow")).read_all(),
            pq.read_table(f"{path}.parquet"),
            read_orc(f"{path}.orc"),
            pa.Table.from_pandas(pd.read_csv(f"{path}.csv"), preserve_index=False),
        ):
            assert table.to_pydict() == COLUMNS
        with open(f"{path}.csv", newline="") as file:
            assert list(csv.DictReader(file))[1] == {"n": "1", "text": "b,c"}
        with h5py.File(f"{path}.h5") as hdf5:
            assert hdf5["n"][()].tolist() == COLUMNS["n"]


def test_sizes_are_true_before_the_first_read(root: Path, store: entrepot.Store) -> None:
    store.put(TABLES["arrow"](), name="table")
    store.put(np.arange(100), name="array")
    store.put(b"x" * 100_000, name="large")
    store.put(b"small", name="small")
    names = ["table.arrow", "table.parquet", "table.csv", "table.orc", "table.h5", "table.feather"]
    for name in [*names, "array.npy", "array.h5", "large", "small"]:
        size = os.stat(root / name).st_size
        assert size == len((root / name).read_bytes()), name
        assert size > 0


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array(root: Path, store: entrepot.Store, order: Any) -> None:
    array = np.asarray(np.arange(5_000_000.0).reshape(1000, 5000), order=order)
    store.put(array, name="array")
    np.testing.assert_array_equal(np.load(root / "array.npy"), array)
    mapped = np.load(root / "array.npy", mmap_mode="r")
    assert mapped.flags.f_contiguous == array.flags.f_contiguous
    np.testing.assert_array_equal(mapped, array)
    for other in (np.zeros((0, 3)), np.array(7), np.arange(10)[::2], np.array(["2020-01-01"], "datetime64[D]")):
        store.put(other, name="other", replace=True)
        np.testing.assert_array_equal(np.load(root / "other.npy"), other)


def test_duckdb_scans_parquet(root: Path, store: entrepot.Store) -> None:
    oid = store.put(TABLES["polars"](), name="orders")
    query = f"SELECT count(*), sum(n) FROM '{root}/orders.parquet' WHERE text = 'a'"
    assert duckdb.sql(query).fetchall() == [(500, sum(range(0, 1000, 2)))]
    store.put(store.get(oid).head(10), name="orders", replace=True)
    assert duckdb.sql(query).fetchall() == [(5, 20)]


def test_what_no_file_can_show_is_not_listed(root: Path, store: entrepot.Store) -> None:
    store.put({"a": 1}, name="plain")
    store.put(b"a", name="bytes")
    store.put(bytearray(b"b"), name="folder/bytearray")
    assert sorted(os.listdir(root)) == ["bytes", "folder"]
    with pytest.raises(FileNotFoundError):
        os.stat(root / "plain")
    assert (root / "folder" / "bytearray").read_bytes() == b"b"


def test_a_file_of_the_very_name_hides_a_format(root: Path, store: entrepot.Store) -> None:
    store.put(TABLES["arrow"](), name="table")
    store.put(b"mine", name="table.csv")
    assert (root / "table.csv").read_bytes() == b"mine"
    assert sorted(os.listdir(root)) == ["table.arrow", "table.csv", "table.orc", "table.parquet"]


def test_what_a_format_cannot_hold_is_einval_and_logged(root: Path, mount: Any, store: entrepot.Store) -> None:
    store.put(pa.table({"n": [1, None]}), name="table")
    with pytest.raises(OSError, match="Invalid argument"):
        (root / "table.h5").read_bytes()
    assert "column 'n' has 1 missing values" in mount.log()


def test_a_listing_of_ten_thousand_names_encodes_nothing(
    root: Path, store: entrepot.Store, encoded: Callable[..., list[str]]
) -> None:
    raw = raw_objects.read(store, store.put(pa.table({"n": [1]}), name="first"))
    ids = [ObjectID.random() for _ in range(10_000)]
    copies = [raw_objects.SmallObject(oid, raw.tree, raw.buffers, f"many/{i:05}") for i, oid in enumerate(ids)]
    raw_objects.put_small(store, copies)
    names = os.listdir(root / "many")
    assert len(names) == 40_000
    assert len(set(names)) == 40_000
    assert all(encoded(oid) == [] for oid in (ids[0], ids[-1]))
    assert pq.read_table(root / "many" / "07000.parquet").num_rows == 1
    assert encoded(ids[7000]) == [".parquet"]


def test_a_file_is_encoded_once_for_all_readers(
    root: Path, store: entrepot.Store, new_mount: Callable[..., Any], encoded: Callable[..., list[str]]
) -> None:
    oid = store.put(pa.table({"n": np.arange(200_000)}), name="table")
    other = new_mount(name="other").folder
    contents: list[bytes] = []
    threads = [
        threading.Thread(target=lambda path=path: contents.append(path.read_bytes()))
        for path in [root / "table.parquet", other / "table.parquet"] * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(contents) == 8
    assert len(set(contents)) == 1
    assert encoded(oid) == [".parquet"]
    assert (root / "table.arrow").stat().st_size > 1_600_000
    assert encoded(oid) == [".parquet"]  # an Arrow file consists of the table's own memory


def test_encoded_files_are_the_first_to_be_dropped(root: Path, store: entrepot.Store, module_daemon: Any) -> None:
    store.put(pa.table({"n": np.arange(100_000)}), name="table")
    (root / "table.parquet").read_bytes()
    with entrepot.connect(module_daemon.address, scope="entrepot", session="entrepot.views") as views:
        assert all(info.dead for info in views.list())


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_encoded_files_of_former_content_are_deleted(
    change: str,
    root: Path,
    store: entrepot.Store,
    encoded: Callable[..., list[str]],
    wait_until: Callable[..., None],
) -> None:
    oid = store.put(pa.table({"n": np.arange(100_000)}), name="table")
    (root / "table.parquet").read_bytes()
    assert encoded(oid) == [".parquet"]
    if change == "replaced":
        store.put(pa.table({"n": [1]}), id=oid, name="table", replace=True)
        assert pq.read_table(root / "table.parquet").num_rows == 1
        wait_until(lambda: len(encoded(oid)) == 1, "the former file to be deleted")
    else:
        store.delete(oid)
        assert os.listdir(root) == []
        wait_until(lambda: encoded(oid) == [], "the file to be deleted")


def test_without_room_for_it_a_file_is_read_all_the_same(
    new_daemon: Callable[..., Any], new_mount: Callable[..., Any]
) -> None:
    daemon = new_daemon("16MiB")
    root = new_mount(name="full", address=daemon.address).folder
    with entrepot.connect(daemon.address, session="mounted") as store:
        store.put(pa.table({"n": np.arange(1_000_000)}), name="table")
        store.put(bytes(4 << 20), name="ballast")
        assert pd.read_csv(root / "table.csv")["n"].sum() == 499_999_500_000


def test_names_that_no_file_can_have_are_not_listed(root: Path, store: entrepot.Store) -> None:
    for name in ("..", "../x", "a/./b", "a/c"):
        store.put(b"content", name=name)
    assert os.listdir(root) == ["a"]
    assert os.listdir(root / "a") == ["c"]


@pytest.mark.parametrize("change", ["replaced", "deleted", "unlinked"])
def test_an_open_file_stays_whole(change: str, root: Path, store: entrepot.Store) -> None:
    content = np.random.default_rng(7).bytes(3_000_000)
    oid = store.put(content, name="file")
    with (root / "file").open("rb", buffering=0) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert file.read(100) == content[:100]
        if change == "unlinked":
            (root / "file").unlink()
        else:
            store.delete(oid)
        if change == "replaced":
            store.put(b"short", id=oid, name="file")
            assert (root / "file").read_bytes() == b"short"
        assert os.fstat(file.fileno()).st_size == len(content)
        assert file.read() == content[100:]
        assert bytes(mapped) == content
    if change != "replaced":
        assert not (root / "file").exists()


def test_several_programs_read_several_files(root: Path, store: entrepot.Store) -> None:
    sums = {}
    for i in range(4):
        array = np.random.default_rng(i).integers(0, 1 << 40, 500_000)
        store.put(array, name=f"a{i}")
        sums[f"a{i}"] = int(array.sum())
    code = "import sys, numpy as np\nfor path in sys.argv[1:]: print(int(np.load(path).sum()))"
    paths = [str(root / f"{name}.npy") for name in sums]
    programs = [
        subprocess.Popen([sys.executable, "-c", code, *paths], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for program in programs:
        output, _ = program.communicate(timeout=60)
        assert [int(line) for line in output.split()] == list(sums.values())


@pytest.mark.parametrize(
    "name",
    [" blank ", "é😀", "new\nline", "quote\"'", "%41", "-rf", "a.b.c", "back\\slash", "x" * 255, ".hidden", "*?["],
)
def test_names_with_odd_characters(name: str, root: Path, store: entrepot.Store) -> None:
    store.put(b"content", name=name)
    assert os.listdir(root) == [name]
    assert (root / name).read_bytes() == b"content"
    (root / name).write_bytes(b"changed")
    assert store.get_by_name(name) == b"changed"
    (root / name).unlink()
    assert os.listdir(root) == []


def test_a_name_that_is_no_text_is_refused(root: Path) -> None:
    with pytest.raises(OSError, match=r"Errno 84"):
        os.open(os.fsencode(root) + b"/\xff", os.O_WRONLY | os.O_CREAT)
