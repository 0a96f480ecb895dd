"""``Store.read_parquet``, ``read_csv`` and ``read_ipc`` return what pyarrow returns, in shared memory."""

from __future__ import annotations

import functools
import http.server
import logging
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import entrepot
import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from entrepot._readers import formats
from entrepot.errors import InvalidArgument, StoreFull, StoreUnavailable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import counted_files

ROWS = 20_000


@pytest.fixture(scope="module")
def module_store(module_daemon: Any) -> Iterator[entrepot.Store]:
    with entrepot.connect(module_daemon.address, scope="tests", allow_pickle=False) as store:
        yield store


def table() -> Any:
    numbers = range(ROWS)
    return pa.table(
        {
            "day": pa.array([number % 365 for number in numbers], pa.int16()),
            "city": [("Oslo", "Turin", "Łódź", None)[number % 4] for number in numbers],
            "total": [number / 7 for number in numbers],
            "at": pa.array([number * 1_000_003 for number in numbers], pa.timestamp("us", "UTC")),
            "place": [{"x": number, "y": str(number)} for number in numbers],
            "tags": [["a", None, "b"][: number % 4] for number in numbers],
        }
    ).replace_schema_metadata({"owner": "tests"})


def entries(store: entrepot.Store) -> list[Any]:
    """All that the cache holds in the store."""
    with entrepot.connect(store.address, scope="entrepot", session="entrepot.files") as cache:
        return cache.list()


def assert_same(read: Any, expected: Any) -> None:
    written = pa.ipc.read_schema(expected.schema.serialize())  # which leaves out what Parquet calls the entries of maps
    assert read.schema.equals(written, check_metadata=True)
    assert read.equals(expected)
    read.validate(full=True)


@pytest.fixture(scope="module")
def parquet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "orders.parquet"
    pq.write_table(table(), path, row_group_size=3_000)
    return path


PARQUET_OPTIONS: list[dict[str, Any]] = [
    {},
    {"columns": ["total", "city"]},
    {"columns": ["place.y", "tags"]},
    {"columns": []},
    {"filters": [("day", "<", 9), ("city", "in", {"Oslo", "Turin"})]},
    {"filters": [[("day", "=", 1)], [("total", ">", 2_800.0)]], "columns": ["at"]},
    {"filters": pc.field("place", "x") > 19_000},
    {"filters": pc.field("day") > 1_000},
    {"filters": pc.field("total") > 1e9, "columns": ["city"]},
    {"dictionary": ["city"]},
    {"dictionary": ["city"], "columns": ["city", "day"], "filters": pc.field("city").is_valid()},
]


@pytest.mark.parametrize("options", PARQUET_OPTIONS, ids=range(len(PARQUET_OPTIONS)))
def test_parquet_is_read_as_pyarrow_does(
    module_store: entrepot.Store, parquet_file: Path, options: dict[str, Any]
) -> None:
    pyarrow_options = dict(options)
    if "dictionary" in pyarrow_options:
        pyarrow_options["read_dictionary"] = pyarrow_options.pop("dictionary")
    expected = pq.read_table(parquet_file, **pyarrow_options)
    for _ in range(2):
        assert_same(module_store.read_parquet(parquet_file, **options), expected)


def test_what_is_read_lies_in_the_store_and_is_reshared(store: entrepot.Store, parquet_file: Path) -> None:
    first, second = (store.read_parquet(str(parquet_file)) for _ in range(2))
    for name in ("day", "total", "at"):
        addresses = [[chunk.buffers()[1].address for chunk in read[name].chunks] for read in (first, second)]
        assert addresses[0] == addresses[1]
    derived = store.info(store.put(first.drop_columns("city")))
    assert derived.own_bytes < derived.referenced_bytes / 20
    (entry,) = entries(store)
    assert entry.names[0].endswith("orders.parquet")
    assert entry.dead


def test_equal_options_share_an_entry_and_others_do_not(store: entrepot.Store, parquet_file: Path) -> None:
    store.read_parquet(parquet_file, filters=[("day", "=", 3)], dictionary=["city"])
    store.read_parquet(f"file://{parquet_file}", filters=pc.field("day") == 3, dictionary=("city", "city"))
    store.read_parquet(parquet_file.parent / "." / parquet_file.name, filters=[[("day", "==", 3)]], dictionary=["city"])
    assert len(entries(store)) == 1
    for number in (3.0, 4):
        store.read_parquet(parquet_file, filters=pc.field("day") == number, dictionary=["city"])
    many = list(range(1000))
    for odd in (500, 501):  # in the middle of the list, which the expression's text leaves out
        store.read_parquet(parquet_file, filters=pc.field("total").isin([*many[:odd], -1, *many[odd + 1 :]]))
    assert len(entries(store)) == 5


def test_all_scopes_and_sessions_share(store: entrepot.Store, parquet_file: Path) -> None:
    store.read_parquet(parquet_file)
    all_options: list[dict[str, Any]] = [{"scope": "other"}, {"scope": "tests", "session": "run-1"}, {}]
    for options in all_options:
        with entrepot.connect(store.address, **options) as another:
            assert_same(another.read_parquet(parquet_file), pq.read_table(parquet_file))
            assert another.list() == []
    assert len(entries(store)) == 1


def test_directories_patterns_and_lists(store: entrepot.Store, tmp_path: Path) -> None:
    ds.write_dataset(table(), tmp_path / "set", format="parquet", partitioning=["city"], partitioning_flavor="hive")
    (tmp_path / "set" / "_SUCCESS").touch()
    expected = pq.read_table(tmp_path / "set")
    assert_same(store.read_parquet(tmp_path / "set"), expected)
    assert_same(
        store.read_parquet(tmp_path / "set", filters=[("city", "=", "Oslo")], columns=["city", "day"]),
        pq.read_table(tmp_path / "set", filters=[("city", "=", "Oslo")], columns=["city", "day"]),
    )
    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    for number, file in enumerate(files):
        pq.write_table(table().slice(number * 100, 100), file)
    assert_same(store.read_parquet([files[2], files[0]]), pq.read_table([files[2], files[0]]))
    assert_same(store.read_parquet(str(tmp_path / "?.parquet")), pq.read_table(files))
    pq.write_table(table().slice(0, 7), tmp_path / "3.parquet")
    assert store.read_parquet(str(tmp_path / "?.parquet")).num_rows == 307
    pq.write_table(table().select(["day"]).slice(0, 5), tmp_path / "set" / "city=Oslo" / "more.parquet")
    assert store.read_parquet(tmp_path / "set", columns=["day"]).num_rows == ROWS + 5


TYPES = st.sampled_from(
    [
        *(pa.bool_(), pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary()),
        *(pa.date32(), pa.timestamp("ms"), pa.timestamp("ns", "Europe/Oslo"), pa.decimal128(12, 3), pa.null()),
        *(pa.binary(4), pa.list_(pa.int32()), pa.struct([("a", pa.int16()), ("b", pa.string())]), pa.time64("us")),
        *(pa.map_(pa.string(), pa.float64()), pa.list_(pa.struct([("z", pa.list_(pa.bool_()))]))),
        pa.dictionary(pa.int32(), pa.string()),
    ]
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_generated_tables_are_read_as_pyarrow_does(module_store: entrepot.Store, tmp_path: Path, data: Any) -> None:
    types = data.draw(st.lists(TYPES, min_size=1, max_size=5))
    rows = data.draw(st.integers(0, 300))
    names = [f"c{index}" for index in range(len(types))]
    arrays = [_generated(type_, rows, data.draw(st.integers(0, 5))) for type_ in types]
    original = pa.table(arrays, names=names).replace_schema_metadata(data.draw(st.none() | st.just({"k": "v"})))
    path = tmp_path / "generated.parquet"
    pq.write_table(original, path, row_group_size=data.draw(st.integers(1, 301)))
    columns = data.draw(st.none() | st.permutations(names).flatmap(lambda order: st.just(order[: len(order) // 2 + 1])))
    expected = pq.read_table(path, columns=columns)
    assert_same(module_store.read_parquet(path, columns=columns), expected)
    with pa.OSFile(str(tmp_path / "generated.arrow"), "wb") as file, pa.ipc.new_file(file, original.schema) as writer:
        writer.write_table(original, max_chunksize=100)
    with pa.ipc.open_file(str(tmp_path / "generated.arrow")) as reader:
        whole = reader.read_all()
    read = module_store.read_ipc(tmp_path / "generated.arrow", columns=columns)
    assert_same(read, whole if columns is None else whole.select(columns))


def _generated(type_: Any, rows: int, seed: int) -> Any:
    """An array of the type: nulls, and values that depend on the position."""
    if pa.types.is_dictionary(type_):
        return _generated(type_.value_type, rows, seed).dictionary_encode()
    return pa.array([_value(type_, row + seed) for row in range(rows)], type_)


def _value(type_: Any, number: int) -> Any:
    if number % 5 == 3 or pa.types.is_null(type_):
        return None
    if pa.types.is_struct(type_):
        return {field.name: _value(field.type, number + 1) for field in type_}
    if pa.types.is_map(type_):
        return [(str(key), _value(type_.item_type, key)) for key in range(number % 3)]
    if pa.types.is_list(type_):
        return [_value(type_.value_type, number + item) for item in range(number % 4)]
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "x" * (number % 9) + "é"
    if pa.types.is_fixed_size_binary(type_) or pa.types.is_binary(type_):
        return number.to_bytes(4, "little")
    if pa.types.is_boolean(type_):
        return number % 2 == 0
    if pa.types.is_decimal(type_):
        return Decimal(number) / 8
    if pa.types.is_floating(type_):
        return number / 2
    return pa.scalar(number % 100, pa.int64()).cast(_integer_of(type_)).cast(type_).as_py()


def _integer_of(type_: Any) -> Any:
    return pa.int32() if pa.types.is_date32(type_) else pa.int64()


CSV = "city;day;note\nOslo;1;\nTurin;2;x\nOslo;;y\n"
SEMICOLON = pcsv.ParseOptions(delimiter=";")


def test_csv_is_read_as_pyarrow_does(store: entrepot.Store, tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text(CSV, encoding="utf-8")
    expected = pcsv.read_csv(path, parse_options=SEMICOLON)
    assert_same(store.read_csv(path, parse_options=SEMICOLON), expected)
    assert_same(store.read_csv(path, parse_options=pcsv.ParseOptions(delimiter=";")), expected)
    assert len(entries(store)) == 1
    assert_same(
        store.read_csv(path, parse_options=SEMICOLON, columns=["note", "city"]), expected.select(["note", "city"])
    )
    typed = pcsv.ConvertOptions(column_types={"day": pa.float32()})
    assert_same(
        store.read_csv(path, parse_options=SEMICOLON, columns=["day"], convert_options=typed),
        pcsv.read_csv(path, parse_options=SEMICOLON, convert_options=typed).select(["day"]),
    )
    encoded = store.read_csv(path, parse_options=SEMICOLON, dictionary=["city"])
    assert encoded.schema.field("city").type == pa.dictionary(pa.int32(), pa.string())
    assert encoded["city"].to_pylist() == expected["city"].to_pylist()
    skipping = pcsv.ReadOptions(skip_rows=1, column_names=["a", "b", "c"])
    assert_same(
        store.read_csv(path, parse_options=SEMICOLON, read_options=skipping),
        pcsv.read_csv(path, parse_options=SEMICOLON, read_options=skipping),
    )
    packed = tmp_path / "visits.csv.gz"
    with pa.CompressedOutputStream(str(packed), "gzip") as file:
        file.write(CSV.encode())
    assert_same(store.read_csv(packed, parse_options=SEMICOLON), expected)
    with pytest.raises(InvalidArgument, match=r"town.*'city', 'day', 'note'"):
        store.read_csv(path, parse_options=SEMICOLON, columns=["town"])
    with pytest.raises(InvalidArgument, match=r"no dictionary column 'town'.*'city'"):
        store.read_csv(path, parse_options=SEMICOLON, dictionary=["town"])
    with pytest.raises(InvalidArgument, match="pass one of them"):
        store.read_csv(path, columns=["city"], convert_options=pcsv.ConvertOptions(include_columns=["day"]))
    with pytest.raises(InvalidArgument, match="invalid_row_handler"):
        store.read_csv(path, parse_options=pcsv.ParseOptions(invalid_row_handler=lambda row: "skip"))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_ipc_files_and_streams(store: entrepot.Store, tmp_path: Path, kind: str, compression: str | None) -> None:
    original = table().set_column(1, "city", table()["city"].dictionary_encode())
    path = tmp_path / "orders.arrow"
    create = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as file, create(file, original.schema, options=options) as writer:
        writer.write_table(original, max_chunksize=6_000)
    assert_same(store.read_ipc(path), original)
    for columns in (["at", "city"], ["place"], ["day", "day"], []):
        read = store.read_ipc(path, columns=columns)
        assert_same(read, original.select(columns))
        assert read.num_rows == ROWS
    with pytest.raises(InvalidArgument, match="no column 'price'; the columns are 'day', 'city'"):
        store.read_ipc(path, columns=["day", "price"])
    with pa.OSFile(str(path), "wb") as file, create(file, original.schema):
        pass
    assert_same(store.read_ipc(path), original.schema.empty_table())


def test_large_files_move_into_the_store_in_stages(
    python: Callable[..., Any], store: entrepot.Store, tmp_path: Path
) -> None:
    rows = 2 << 20
    big = pa.table({"a": pa.array(range(rows), pa.int64()), "b": pa.array(range(rows), pa.float64())})
    big = big.append_column("t", pa.array([f"text {number % 1000}" for number in range(rows)]))
    pq.write_table(big, tmp_path / "big.parquet", row_group_size=rows // 32)
    with pa.OSFile(str(tmp_path / "big.arrow"), "wb") as file, pa.ipc.new_file(file, big.schema) as writer:
        writer.write_table(big, max_chunksize=rows // 32)
    code = """
import sys
import pyarrow as pa
from entrepot._readers import decode_cache
decode_cache.STAGE_BYTES = 4 << 20
read = getattr(store, "read_" + sys.argv[1])(sys.argv[2])
print(pa.default_memory_pool().max_memory(), pa.total_allocated_bytes(), read.nbytes)
"""
    for kind, name in (("parquet", "big.parquet"), ("ipc", "big.arrow")):
        done = python(code, kind, tmp_path / name)
        assert done.returncode == 0, done.stderr
        peak, left, nbytes = map(int, done.stdout.split())
        assert nbytes > 50 << 20
        assert peak < nbytes // 3
        assert left < 1 << 20
    assert store.read_parquet(tmp_path / "big.parquet").equals(big)
    assert store.read_ipc(tmp_path / "big.arrow").equals(big)
    cached = entries(store)
    assert len(cached) == 2, "the stages are gone"
    assert all(entry.nbytes < big.nbytes * 1.1 for entry in cached)


def test_mistakes_are_named(store: entrepot.Store, parquet_file: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        store.read_parquet(tmp_path / "none.parquet")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        store.read_parquet(str(tmp_path / "*.none"))
    with pytest.raises(FileNotFoundError, match="contains no files"):
        store.read_parquet(tmp_path)
    with pytest.raises(FileNotFoundError):
        store.read_csv("memory://none.csv")
    with pytest.raises(InvalidArgument, match="no column 'price'; the columns are 'day', 'city'"):
        store.read_parquet(parquet_file, columns=["price"])
    with pytest.raises(InvalidArgument, match="no dictionary column 'price'; the columns are"):
        store.read_parquet(parquet_file, dictionary=["price"])
    with pytest.raises(InvalidArgument, match="a filter names an unknown column; the columns are 'day'"):
        store.read_parquet(parquet_file, filters=[("price", ">", 3)])
    with pytest.raises(InvalidArgument, match="columns must be a list"):
        store.read_parquet(parquet_file, columns="day")
    with pytest.raises(InvalidArgument, match="filters must be"):
        store.read_parquet(parquet_file, filters=[("day", "~", 3)])
    with pytest.raises(InvalidArgument, match="list of files to read is empty"):
        store.read_parquet([])
    with pytest.raises(InvalidArgument, match="path or URL"):
        store.read_parquet(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="only Parquet is read from several files"):
        store.read_csv([parquet_file, parquet_file])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="storage_options are for"):
        store.read_parquet(parquet_file, storage_options={"key": "x"})
    with pytest.raises(InvalidArgument, match="fsspec cannot open nonsense://x"):
        store.read_parquet("nonsense://x")
    with pytest.raises(InvalidArgument, match="timeout"):
        store.read_parquet(parquet_file, timeout=-1)
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(pa.ArrowInvalid):
        store.read_parquet(tmp_path / "damaged.parquet")
    assert entries(store) == []
    closed = entrepot.connect(store.address)
    closed.read_parquet(parquet_file)
    read = closed.read_parquet(parquet_file)
    closed.close()
    assert_same(read, pq.read_table(parquet_file))
    with pytest.raises(StoreUnavailable, match="closed by close"):
        closed.read_parquet(parquet_file)


def test_a_table_that_does_not_fit_is_refused(
    new_daemon: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrepot._readers.decode_cache._PUT_WAIT_SECONDS", 1.0)
    pq.write_table(pa.table({"a": pa.array(range(4 << 20), pa.int64())}), tmp_path / "big.parquet")
    with entrepot.connect(new_daemon("16MiB").address) as store:
        with pytest.raises(StoreFull):
            store.read_parquet(tmp_path / "big.parquet")
        assert entries(store) == []


def test_files_in_memory_are_known_by_their_modification(store: entrepot.Store) -> None:
    memory = fsspec.filesystem("memory")
    for number in range(2):
        with memory.open("/decode/visits.csv", "wb") as file:
            file.write(f"a,b\n{number},2\n".encode())
        for _ in range(2):
            assert store.read_csv("memory://decode/visits.csv").to_pydict() == {"a": [number], "b": [2]}
        assert len(entries(store)) == 1
    memory.rm("/decode", recursive=True)


def test_files_over_http_are_fetched_once(store: entrepot.Store, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    requests: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            requests.append(self.path)
            super().do_GET()

    (tmp_path / "visits.csv").write_text("a,b\n1,2\n")
    os.utime(tmp_path / "visits.csv", (1_700_000_000, 1_700_000_000))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/visits.csv"
    try:
        assert store.read_csv(url).to_pydict() == {"a": [1], "b": [2]}
        fetched = len(requests)
        assert fetched >= 1
        assert store.read_csv(url).to_pydict() == {"a": [1], "b": [2]}
        assert len(requests) == fetched
        (tmp_path / "visits.csv").write_text("a,b\n3,4\n")
        os.utime(tmp_path / "visits.csv", (1_700_000_001, 1_700_000_001))
        assert store.read_csv(url).to_pydict() == {"a": [3], "b": [4]}
        assert len(entries(store)) == 1
    finally:
        server.shutdown()
        server.server_close()


def test_files_without_an_identity_are_not_cached(
    store: entrepot.Store,
    parquet_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted_files.register()
    monkeypatch.setenv("COUNTED_LOG", str(tmp_path / "log"))
    counts = []
    with caplog.at_level(logging.WARNING, "entrepot"):
        for _ in range(3):
            assert_same(store.read_parquet(f"undated://{parquet_file}"), pq.read_table(parquet_file))
            counts.append(len(counted_files.openings(tmp_path / "log")))
    assert 0 < counts[0] < counts[1] < counts[2]
    assert entries(store) == []
    assert [record.getMessage().partition(" reports")[0] for record in caplog.records] == ["the file system undated"]


def test_files_in_archives_are_not_cached(store: entrepot.Store, tmp_path: Path) -> None:
    for number in range(2):  # the same member, of the same time and size, in another archive at the same path
        with zipfile.ZipFile(tmp_path / "visits.zip", "w") as archive:
            archive.writestr(zipfile.ZipInfo("visits.csv", (2020, 1, 1, 0, 0, 0)), f"a\n{number}\n")
        fsspec.filesystem("file").invalidate_cache()
        fsspec.get_filesystem_class("zip").clear_instance_cache()
        assert store.read_csv(f"zip://visits.csv::file://{tmp_path}/visits.zip")["a"].to_pylist() == [number]
    assert entries(store) == []


class RowGroup:
    """Stands for a row group whose decoding can be observed."""

    def __init__(self, result: Any, begin: Callable[[], object]) -> None:
        self.result, self.begin = result, begin

    def to_table(self) -> Any:
        self.begin()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_row_groups_are_decoded_together_and_come_in_order() -> None:
    together = threading.Barrier(2)
    groups = [RowGroup(number, lambda: together.wait(60)) for number in range(6)]
    assert list(formats._decoded_ahead(iter(groups), {}, columns=1000)) == list(range(6))  # else the barrier breaks


def test_a_row_group_that_cannot_be_decoded_ends_the_others() -> None:
    begun: list[int] = []
    results: list[Any] = [0, ZeroDivisionError("damaged"), *range(2, 50)]
    groups = [RowGroup(result, functools.partial(begun.append, n)) for n, result in enumerate(results)]
    parts = formats._decoded_ahead(iter(groups), {}, columns=1000)
    assert next(parts) == 0
    with pytest.raises(ZeroDivisionError, match="damaged"):
        next(parts)
    assert max(begun) <= 3
