"""Programs write files, which become objects when they are closed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.errors import ObjectNotFound

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
duckdb = pytest.importorskip("duckdb")
h5py = pytest.importorskip("h5py")
feather = pytest.importorskip("pyarrow.feather")
pq = pytest.importorskip("pyarrow.parquet")
orc = pytest.importorskip("pyarrow.orc")


def _shell(command: str, folder: Path) -> None:
    done = subprocess.run(["/bin/sh", "-ec", command], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_file_with_the_suffix_of_a_format_becomes_a_table(root: Path, store: entrepot.Store) -> None:
    frame = pd.DataFrame({"n": [1, 2], "s": ["a", "b"]})
    table = pa.Table.from_pandas(frame, preserve_index=False)
    writers: dict[str, Callable[[str], Any]] = {
        "parquet": frame.to_parquet,
        "csv": lambda path: frame.to_csv(path, index=False),
        "arrow": lambda path: feather.write_feather(table, path, compression="uncompressed"),
        "feather": frame.to_feather,
        "orc": lambda path: orc.write_table(table, path),
    }
    for suffix, write in writers.items():
        write(str(root / f"by_{suffix}.{suffix}"))
        stored = store.get_by_name(f"by_{suffix}")
        assert stored.to_pydict() == {"n": [1, 2], "s": ["a", "b"]}, suffix
        assert (root / f"by_{suffix}.parquet").exists()


def test_arrays(root: Path, store: entrepot.Store) -> None:
    array = np.arange(300_000.0)
    np.save(root / "a.npy", array)
    with h5py.File(root / "b.h5", "w") as file:
        file["data"] = array
    for name in ("a", "b"):
        np.testing.assert_array_equal(store.get_by_name(name), array)
    with h5py.File(root / "b.h5", "a") as file:
        file["data"][0] = 7
    assert store.get_by_name("b")[0] == 7
    mapped = np.lib.format.open_memmap(root / "c.npy", mode="w+", dtype=np.int64, shape=(10_000,))
    mapped[:] = 5
    mapped.flush()
    del mapped
    assert np.load(root / "c.npy").sum() == 50_000


def test_duckdb_copies_there(root: Path, store: entrepot.Store) -> None:
    for n in (10, 20):
        duckdb.sql(f"COPY (SELECT range AS n FROM range({n})) TO '{root}/t.parquet' (FORMAT parquet)")
        assert store.get_by_name("t").num_rows == n
    assert sorted(os.listdir(root)) == ["t.arrow", "t.csv", "t.orc", "t.parquet"]


@pytest.mark.parametrize("size", [0, 5, 100_000, 9_000_000])
def test_cp_in_and_out(root: Path, store: entrepot.Store, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "source").write_bytes(content)
    _shell(f"mkdir -p d && cp {tmp_path}/source d/file && cp d/file {tmp_path}/back && cp d/file d/copy", root)
    assert (tmp_path / "back").read_bytes() == content
    for name in ("d/file", "d/copy"):
        assert store.get_by_name(name) == content
        assert (root / name).stat().st_size == size


def test_shell_redirections_append_and_move(root: Path, store: entrepot.Store) -> None:
    _shell("echo one > f; echo two >> f; (echo three; echo four) >> f", root)
    assert store.get_by_name("f") == b"one\ntwo\nthree\nfour\n"
    _shell("mkdir -p a/b; mv f a/b/g; truncate -s 3 a/b/g; : > empty", root)
    assert store.get_by_name("a/b/g") == b"one"
    assert store.get_by_name("empty") == b""
    with pytest.raises(ObjectNotFound):
        store.resolve("f")
    _shell("mv a c; test -d c/b; test ! -e a; rm -r c; test ! -e c", root)
    assert [info.names for info in store.list()] == [["empty"]]


def test_a_file_is_replaced_only_when_the_new_one_is_closed(root: Path, store: entrepot.Store) -> None:
    (root / "f").write_bytes(b"old")
    with (root / "f").open("wb", buffering=0) as file:
        file.write(b"half")
        assert store.get_by_name("f") == b"old"
        assert subprocess.check_output(["cat", str(root / "f")], timeout=60) == b"old"
        assert os.stat(root / "f").st_size == 4  # the writer itself sees what it has written
        file.write(b" and half")
        assert store.get_by_name("f") == b"old"  # although children have closed the descriptor that they inherited
    assert store.get_by_name("f") == b"half and half"
    with (root / "new").open("wb", buffering=0) as file:
        file.write(b"half")
        assert subprocess.check_output(["ls", str(root)], timeout=60) == b"f\n"
        assert subprocess.run(["cat", str(root / "new")], capture_output=True, timeout=60).returncode != 0


def test_a_killed_writer_leaves_nothing(root: Path, store: entrepot.Store, wait_until: Callable[..., None]) -> None:
    (root / "kept").write_bytes(b"old")
    code = (
        "import sys, time\nfiles = [open(path, 'wb', buffering=0) for path in sys.argv[1:]]\n"
        "for file in files: file.write(b'half')\nprint('written', flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root / "kept"), str(root / "new")], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        writer.send_signal(signal.SIGKILL)
    assert store.get_by_name("kept") == b"old"
    assert os.listdir(root) == ["kept"]
    assert (root / "kept").read_bytes() == b"old"


def test_random_access_and_truncation(root: Path, store: entrepot.Store) -> None:
    with (root / "f").open("w+b", buffering=0) as file:
        file.write(b"0123456789")
        file.seek(2)
        file.write(b"xx")
        file.seek(0)
        assert file.read(5) == b"01xx4"
        file.truncate(6)
        file.seek(8)
        file.write(b"y")
    assert store.get_by_name("f") == b"01xx45\0\0y"
    with (root / "f").open("r+b", buffering=0) as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"z")
    assert store.get_by_name("f") == b"01xx45\0\0z"
    os.truncate(root / "f", 2)
    assert store.get_by_name("f") == b"01"


def test_opening_for_writing_without_writing_changes_nothing(root: Path, store: entrepot.Store) -> None:
    store.put(b"content", name="f")
    generation = store.info(store.resolve("f")).generation
    with (root / "f").open("r+b", buffering=0) as file:
        assert file.read() == b"content"
    os.listdir(root)
    assert store.info(store.resolve("f")).generation == generation


def test_written_aside_and_renamed(root: Path, store: entrepot.Store) -> None:
    table = pa.table({"n": [1, 2, 3]})
    for _ in range(2):
        pq.write_table(table, root / ".t.parquet.tmp")  # bytes, by its name
        os.replace(root / ".t.parquet.tmp", root / "t.parquet")
        assert store.get_by_name("t").equals(table)
    with (root / "u.tmp").open("wb") as file:
        file.write(b"a,b\n1,2\n")
        file.flush()
        os.rename(root / "u.tmp", root / "u.csv")
    assert store.get_by_name("u").to_pydict() == {"a": [1], "b": [2]}
    os.rename(root / "t.parquet", root / "v.parquet")
    assert store.get_by_name("v").equals(table)
    os.rename(root / "v.csv", root / "v.txt")
    assert store.get_by_name("v.txt") == b'"n"\n1\n2\n3\n'
    assert sorted(os.listdir(root)) == ["u.arrow", "u.csv", "u.orc", "u.parquet", "v.txt"]


def test_an_editor_keeps_a_backup(root: Path, store: entrepot.Store) -> None:
    store.put(pa.table({"a": [1]}), name="t")
    os.rename(root / "t.csv", root / "t.csv~")
    (root / "t.csv").write_text('"a"\n2\n')
    os.chmod(root / "t.csv", 0o600)
    os.utime(root / "t.csv")
    (root / "t.csv~").unlink()
    assert store.get_by_name("t").to_pydict() == {"a": [2]}
    assert len(store.list()) == 1


def test_what_cannot_be_decoded_is_kept_as_bytes(root: Path, mount: Any, store: entrepot.Store) -> None:
    (root / "t.parquet").write_bytes(b"no parquet")
    assert store.get_by_name("t.parquet") == b"no parquet"
    assert "'t.parquet' is kept as bytes: " in mount.log()
    with h5py.File(root / "model.h5", "w") as file:
        file.create_group("layer")["weights"] = np.ones(3)
    with h5py.File(root / "model.h5") as file:
        assert file["layer/weights"][()].tolist() == [1, 1, 1]
    pq.write_table(pa.table({"a": [1]}), root / "t.parquet")
    assert store.get_by_name("t").to_pydict() == {"a": [1]}
    assert sorted(os.listdir(root)) == ["model.h5", "t.arrow", "t.csv", "t.orc", "t.parquet"]


def test_bytes_are_kept_as_they_are_on_demand(new_mount: Callable[..., Any], store: entrepot.Store) -> None:
    root = new_mount("--bytes", name="bytes").folder
    (root / "x.parquet").write_bytes(b"anything")
    assert store.get_by_name("x.parquet") == b"anything"


def test_a_read_only_mount_refuses_changes(new_mount: Callable[..., Any], store: entrepot.Store) -> None:
    store.put(b"content", name="f")
    root = new_mount("--read-only", name="read-only").folder
    assert (root / "f").read_bytes() == b"content"
    changes: list[Callable[[], Any]] = [
        lambda: (root / "f").write_bytes(b""),
        lambda: (root / "g").write_bytes(b""),
        lambda: (root / "f").unlink(),
        lambda: (root / "f").rename(root / "g"),
        lambda: (root / "d").mkdir(),
    ]
    for change in changes:
        with pytest.raises(OSError, match="Read-only file system"):
            change()


def test_a_full_store_is_enospc(
    new_daemon: Callable[..., Any], new_mount: Callable[..., Any], store: entrepot.Store
) -> None:
    daemon = new_daemon("16MiB")
    root = new_mount(name="full", address=daemon.address).folder
    with pytest.raises(OSError, match="No space left on device"):
        (root / "f").write_bytes(bytes(20 << 20))
    assert os.listdir(root) == []
    (root / "g").write_bytes(bytes(10 << 20))
    file_descriptor = os.open(root / "h", os.O_WRONLY | os.O_CREAT)
    os.write(file_descriptor, bytes(1 << 20))
    for _ in range(11):
        os.write(file_descriptor, bytes(1 << 20))
    with pytest.raises(OSError, match="No space left on device"):
        os.close(file_descriptor)
    assert os.statvfs(root).f_bavail * os.statvfs(root).f_frsize < 6 << 20
    assert "g" in os.listdir(root)
    assert "h" not in os.listdir(root)


def test_errors_that_programs_expect(root: Path, store: entrepot.Store) -> None:
    (root / "d").mkdir()
    (root / "f").write_bytes(b"x")
    failures: dict[int, Callable[[], Any]] = {
        errno.EEXIST: lambda: (root / "d").mkdir(),
        errno.ENOENT: lambda: (root / "missing").unlink(),
        errno.EISDIR: lambda: (root / "d").write_bytes(b""),
        errno.ENOTDIR: lambda: (root / "f" / "g").write_bytes(b""),
        errno.ENAMETOOLONG: lambda: (root / ("n" * 256)).write_bytes(b""),
    }
    for number, fail in failures.items():
        with pytest.raises(OSError, match="Errno") as caught:
            fail()
        assert caught.value.errno == number
    (root / "d" / "f").write_bytes(b"x")
    with pytest.raises(OSError, match="not empty"):
        (root / "d").rmdir()
    with pytest.raises(FileExistsError):
        os.open(root / "f", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    shutil.rmtree(root / "d")
    assert os.listdir(root) == ["f"]


def test_a_name_that_is_too_long_for_an_object(root: Path) -> None:
    folder = root / ("n" * 200)
    folder.mkdir()
    with pytest.raises(OSError, match="File name too long"):
        (folder / ("m" * 200)).write_bytes(b"x")
