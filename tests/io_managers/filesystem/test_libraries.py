"""Libraries that read and write through fsspec."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import entrepot
import fsspec
import pytest
from entrepot_io.filesystem.file_system import EntrepotFileSystem

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
ds = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")
arrow_filesystems = pytest.importorskip("pyarrow.fs")


@pytest.fixture
def frame() -> Any:
    return pd.DataFrame({"n": np.arange(1000), "text": [f"row {n}" for n in range(1000)]})


def test_fsspec_finds_it_by_its_entry_point(options: dict[str, Any]) -> None:
    assert fsspec.get_filesystem_class("entrepot") is EntrepotFileSystem
    fs, path = fsspec.url_to_fs("entrepot://default/run/x", **options)
    assert (type(fs), path) == (EntrepotFileSystem, "default/run/x")
    with fsspec.open("entrepot://current/x", "w", **options) as file:
        print("text", file=cast(Any, file))
    assert [cast(Any, file).path for file in fsspec.open_files("entrepot://current/*", **options)] == ["current/x"]


class Stop(Exception):
    """Raised by a test within a block."""


class _Unprintable:
    def __str__(self) -> str:
        raise Stop


def _fail_halfway(options: dict[str, Any], mode: str, **more: Any) -> None:
    with fsspec.open("entrepot://current/x", mode, **options, **more) as file:
        cast(Any, file).write("text" if mode == "w" else b"bytes")
        raise Stop


@pytest.mark.parametrize("mode", ["w", "wb"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_block_of_fsspec_that_fails_stores_nothing(
    mode: str, compression: str | None, options: dict[str, Any], fs: EntrepotFileSystem
) -> None:
    with pytest.raises(Stop):
        _fail_halfway(options, mode, compression=compression)
    assert not fs.exists("current/x")


def test_a_table_that_pandas_fails_to_write_is_not_stored(options: dict[str, Any], fs: EntrepotFileSystem) -> None:
    frame = pd.DataFrame({"n": [*range(1000), _Unprintable()]}, dtype=object)
    with pytest.raises(Stop):
        frame.to_csv("entrepot://current/frame.csv", storage_options=options, chunksize=10)
    assert fs.ls("current") == []


def test_what_is_written_because_of_an_error_is_stored(options: dict[str, Any], fs: EntrepotFileSystem) -> None:
    class Log:
        def __enter__(self) -> Any:
            self.file = fs.open("current/log", "w")
            return self.file

        def __exit__(self, *_: object) -> None:
            self.file.close()  # its own decision, error or not

    def work() -> None:
        before: Any = fsspec.open("entrepot://current/before", "w", **options)
        file = before.__enter__()
        try:
            with Log() as log:
                log.write("started")
                raise Stop
        except Stop:
            with fsspec.open("entrepot://current/report", "w", **options) as report:
                cast(Any, report).write("failed")
            file.write("failed")
            before.__exit__(None, None, None)  # the end of a block that has not failed, while an error is handled

    work()
    contents = {path: fs.cat_file(path) for path in fs.find("current")}
    assert contents == {"current/before": b"failed", "current/log": b"started", "current/report": b"failed"}


def test_what_fsspec_builds_on_it(fs: EntrepotFileSystem, options: dict[str, Any]) -> None:
    mapper = fs.get_mapper("current/array")
    mapper["0.0"] = b"chunk"
    mapper["meta/.zarray"] = b"{}"
    assert dict(mapper) == {"0.0": b"chunk", "meta/.zarray": b"{}"}
    del mapper["0.0"]
    assert list(mapper) == ["meta/.zarray"]
    fs.pipe_file("current/lines", b"one\ntwo\nthree\n")
    assert (fs.head("current/lines", 3), fs.tail("current/lines", 6)) == (b"one", b"three\n")
    assert fs.read_block("current/lines", 1, 4, delimiter=b"\n") == b"two\n"
    assert fs.cat("current/l*") == {"current/lines": b"one\ntwo\nthree\n"}
    assert fs.du("current") == 14 + 2
    fs.touch("current/empty")
    assert fs.size("current/empty") == 0
    with fsspec.open("simplecache::entrepot://current/lines", entrepot=options) as file:
        assert cast(Any, file).read() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("form", ["parquet", "csv", "feather"])
def test_pandas(form: str, frame: Any, options: dict[str, Any]) -> None:
    url = f"entrepot://current/frame.{form}"
    arguments = {"index": False} if form == "csv" else {}
    if form == "feather":
        with fsspec.open(url, "wb", **options) as file:
            frame.to_feather(file)
    else:
        getattr(frame, f"to_{form}")(url, storage_options=options, **arguments)
    read = getattr(pd, f"read_{form}")(url, storage_options=options)
    pd.testing.assert_frame_equal(read, frame)


def test_pandas_reads_a_stored_table(frame: Any, options: dict[str, Any], store: entrepot.Store) -> None:
    store.put(frame, name="frame")
    for form in ("parquet", "csv", "feather"):
        read = getattr(pd, f"read_{form}")(f"entrepot://current/frame.{form}", storage_options=options)
        pd.testing.assert_frame_equal(read, frame)


def test_pyarrow_datasets(frame: Any, fs: EntrepotFileSystem) -> None:
    arrow_fs = arrow_filesystems.PyFileSystem(arrow_filesystems.FSSpecHandler(fs))
    table = pa.Table.from_pandas(frame).append_column("part", pa.array(np.arange(1000) % 3))
    ds.write_dataset(
        table, "current/data", filesystem=arrow_fs, format="parquet", partitioning=["part"], partitioning_flavor="hive"
    )
    assert len(fs.glob("current/data/part=*/*.parquet")) == 3
    read = ds.dataset("current/data", filesystem=arrow_fs, partitioning="hive").to_table(filter=ds.field("part") == 1)
    assert sorted(read["n"].to_pylist()) == list(range(1, 1000, 3))
    assert arrow_fs.get_file_info("current/data").type == arrow_filesystems.FileType.Directory
    assert arrow_fs.get_file_info("current/nothing").type == arrow_filesystems.FileType.NotFound


def test_pyarrow_reads_ipc_files_without_a_copy(fs: EntrepotFileSystem) -> None:
    table = pa.table({"n": np.arange(100_000)})
    with fs.open("current/table.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    arrow_fs = arrow_filesystems.PyFileSystem(arrow_filesystems.FSSpecHandler(fs))
    with arrow_fs.open_input_file("current/table.arrow") as file:
        read = pa.ipc.open_file(file).read_all()
    view = np.frombuffer(fs.view("current/table.arrow"), np.uint8)
    start = view.__array_interface__["data"][0]
    address = read["n"].chunk(0).buffers()[1].address
    assert start <= address < start + view.nbytes
    assert read.equals(table)


def test_parquet_through_pyarrow(fs: EntrepotFileSystem) -> None:
    table = pa.table({"n": np.arange(100_000)})
    pq.write_table(table, "current/table.parquet", filesystem=fs)
    assert pq.read_table("current/table.parquet", filesystem=fs).equals(table)


def test_polars(fs: EntrepotFileSystem, store: entrepot.Store, options: dict[str, Any]) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"n": [1, 2, 3], "text": ["a", "b", "c"]})
    with fs.open("current/frame.parquet", "wb") as file:
        frame.write_parquet(file)
    with fs.open("current/frame.parquet") as file:
        assert pl.read_parquet(file).equals(frame)
    store.put(frame, name="stored")
    with fs.open("current/stored.arrow") as file:
        assert pl.read_ipc(file).equals(frame)
    with fsspec.open("entrepot://current/stored.csv", **options) as file:
        assert pl.read_csv(file).equals(frame)
    assert pl.scan_pyarrow_dataset(ds.dataset("current/frame.parquet", filesystem=fs)).collect().equals(frame)


def test_duckdb(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    duckdb = pytest.importorskip("duckdb")
    store.put(pa.table({"n": [1, 2, 3]}), name="numbers")
    with duckdb.connect() as connection:
        connection.register_filesystem(fs)
        assert connection.sql("select sum(n) from read_parquet('entrepot://current/numbers.parquet')").fetchall() == [
            (6,)
        ]
        connection.sql("copy (select 7 as n union all select 8) to 'entrepot://current/made.csv' (format csv)")
        assert connection.sql("select sum(n) from 'entrepot://current/*.csv'").fetchall() == [(15,)]
        connection.unregister_filesystem("entrepot")


@pytest.mark.filterwarnings("ignore:UPath 'entrepot' filesystem not explicitly implemented")
def test_upath(options: dict[str, Any]) -> None:
    upath = pytest.importorskip("upath")
    folder = upath.UPath("entrepot://current/folder", **options)
    file = folder / "a" / "b.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("text")
    assert file.read_bytes() == b"text"
    assert file.exists()
    assert folder.is_dir()
    assert [path.name for path in folder.iterdir()] == ["a"]
    assert [path.name for path in folder.glob("**/*.txt")] == ["b.txt"]
    renamed = file.rename("entrepot://current/folder/c.txt")
    assert renamed.read_text() == "text"
    renamed.unlink()
    assert not folder.exists()


def test_local_copies(fs: EntrepotFileSystem, tmp_path: Path) -> None:
    local = tmp_path / "file"
    local.write_bytes(bytes(range(256)) * 1000)
    fs.put(str(local), "current/file")
    fs.get("current/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == local.read_bytes()


@pytest.mark.parametrize("kind", ["CSVDataset", "ParquetDataset"])
def test_kedro_datasets(kind: str, frame: Any, options: dict[str, Any], fs: EntrepotFileSystem) -> None:
    datasets = pytest.importorskip("kedro_datasets.pandas")
    form = kind.removesuffix("Dataset").lower()
    dataset = getattr(datasets, kind)(filepath=f"entrepot:///current/frame.{form}", fs_args=options)
    assert not dataset.exists()
    dataset.save(frame)
    assert dataset.exists()
    assert fs.isfile(f"current/frame.{form}")
    pd.testing.assert_frame_equal(dataset.load(), frame)


def test_a_kedro_catalog_with_versions(frame: Any, options: dict[str, Any], fs: EntrepotFileSystem) -> None:
    kedro_io = pytest.importorskip("kedro.io")
    pytest.importorskip("kedro_datasets.pandas")
    entry = {
        "type": "pandas.CSVDataset",
        "filepath": "entrepot:///current/report.csv",
        "fs_args": options,
        "save_args": {"index": False},
        "versioned": True,
    }
    for _ in range(2):
        catalog = kedro_io.DataCatalog.from_config({"report": entry})
        catalog.save("report", frame)
        pd.testing.assert_frame_equal(catalog.load("report"), frame)
    assert len(fs.glob("current/report.csv/*/report.csv")) == 2


def test_a_url_with_three_slashes_has_its_paths_with_one(frame: Any, fs: EntrepotFileSystem) -> None:
    """Kedro's PartitionedDataset joins them with the protocol, and its datasets drop what then stands for a host."""
    with fs.open("current/parts/a.csv", "wb") as file:
        file.write(b"a")
    url = "entrepot:///current/parts"
    assert fs._strip_protocol(url) == "/current/parts"
    assert fs.find(url) == ["/current/parts/a.csv"]
    assert fs.find(url, maxdepth=1, detail=True)["/current/parts/a.csv"]["name"] == "/current/parts/a.csv"
    for same in (url, "entrepot://current/parts", "current/parts"):
        assert fs.glob(f"{same}/*.csv") == ["current/parts/a.csv"]
        assert [(folder, files) for folder, _, files in fs.walk(same)] == [("current/parts", ["a.csv"])]
        assert fs.expand_path(same, recursive=True) == ["current/parts", "current/parts/a.csv"]
        assert fs.cat(f"{same}/a.csv") == b"a"
    with pytest.raises(PermissionError):
        fs.rm("entrepot:///", recursive=True)
    fs.rm(url, recursive=True)
    assert not fs.exists(url)


def test_kedro_without_the_third_slash_is_told_so(frame: Any, options: dict[str, Any]) -> None:
    datasets = pytest.importorskip("kedro_datasets.pandas")
    dataset = datasets.CSVDataset(filepath="entrepot://current/report.csv", fs_args=options)
    with pytest.raises(Exception, match="three slashes"):
        dataset.save(frame)
