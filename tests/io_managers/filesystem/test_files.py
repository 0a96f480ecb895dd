"""Files: what is written is read back, nothing is visible before it is complete, errors are those of a file system."""

from __future__ import annotations

import errno
import io
import os
import pickle
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import entrepot
import pytest
from entrepot.errors import AccessDenied, InvalidArgument, ObjectExists, ObjectLost, ObjectNotFound, StoreFull
from entrepot_io.filesystem.file_system import EntrepotFileSystem
from entrepot_io.filesystem.os_errors import os_errors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LARGE = bytes(range(256)) * 1024  # 256 KiB: in a buffer of its own


class Stop(Exception):
    """Raised by a test within a block."""


def _write_and_stop(fs: EntrepotFileSystem, path: str, content: Any, **options: Any) -> None:
    with fs.open(path, **options) as file:
        file.write(content)
        raise Stop


def _write_and_stop_in_a_transaction(fs: EntrepotFileSystem) -> None:
    with fs.transaction:
        fs.pipe_file("current/a", LARGE)
        fs.pipe_file("current/b", b"x")
        raise Stop


SIZES = (0, 1, 4096, 4097, 16 << 10, (16 << 10) + 1, 64 << 10, 3 << 20)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_read_back(size: int, fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    content = os.urandom(size)
    with fs.open("current/folder/file.bin", "wb") as file:
        assert file.write(content) == size
    assert fs.cat_file("current/folder/file.bin") == content
    assert fs.info("current/folder/file.bin")["size"] == fs.size("current/folder/file.bin") == size
    assert store.get_by_name("folder/file.bin") == content  # bytes, for those who know nothing of files


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(st.binary(max_size=40) | st.sampled_from([LARGE, LARGE[:70_000]]), max_size=8),
    start=st.none() | st.integers(-100, 300_000),
    end=st.none() | st.integers(-100, 300_000),
    reads=st.lists(st.integers(0, 100_000), max_size=5),
)
def test_any_pieces_and_any_ranges(
    fs: EntrepotFileSystem, pieces: list[bytes], start: int | None, end: int | None, reads: list[int]
) -> None:
    content = b"".join(pieces)
    with fs.open("current/pieces", "wb") as file:
        for piece in pieces:
            file.write(bytearray(piece) if len(piece) % 2 else piece)
        assert file.tell() == len(content)
    assert fs.cat_file("current/pieces", start=start, end=end) == content[start:end]
    assert fs.cat_ranges(["current/pieces"] * 2, [0, 5], [3, 9]) == [content[0:3], content[5:9]]
    with fs.open("current/pieces") as file:
        expected = io.BytesIO(content)
        for count in reads:
            assert file.read(count) == expected.read(count)
            assert file.tell() == expected.tell()
        file.seek(-min(7, len(content)), os.SEEK_END)
        assert file.read() == content[-7:]


def test_a_buffer_that_is_reused_after_a_write_does_not_change_the_file(fs: EntrepotFileSystem) -> None:
    buffer = bytearray(LARGE)
    with fs.open("current/file", "wb") as file:
        file.write(buffer)
        buffer[:] = bytes(len(buffer))
        file.write(memoryview(buffer)[:5])
    assert fs.cat_file("current/file") == LARGE + bytes(5)


def test_reading_large_files_copies_nothing_that_it_need_not(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    import numpy as np

    fs.pipe_file("current/file", LARGE)

    def address(view: Any) -> int:
        return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])

    with fs.open("current/file") as file, fs.open("current/file") as other:
        first = address(file.getbuffer())
        file.seek(100)
        assert address(file.read_buffer(50)) == first + 100
        assert address(other.getbuffer()) == first  # the same memory, not merely the same bytes
        assert address(fs.view("current/file")) == first
        assert file.getbuffer().readonly
        target = bytearray(10)
        assert file.readinto(target) == 10
        assert target == LARGE[150:160]


def test_text(fs: EntrepotFileSystem) -> None:
    with fs.open("current/text", "w", encoding="utf-16", newline="\r\n") as file:
        file.write("größer\nals\n")
    with fs.open("current/text", "r", encoding="utf-16") as file:
        assert list(file) == ["größer\n", "als\n"]
    with fs.open("current/text", "a", encoding="utf-16", newline="\r\n") as file:
        file.write("die\n")
    assert fs.cat_file("current/text") == "größer\r\nals\r\ndie\r\n".encode("utf-16")  # one byte order mark


def test_lines(fs: EntrepotFileSystem) -> None:
    lines = [b"a" * 20_000 + b"\n", b"\n", b"last"]
    fs.pipe_file("current/lines", b"".join(lines))
    with fs.open("current/lines") as file:
        assert list(file) == lines
        assert file.readline() == b""


@pytest.mark.parametrize("compression", ["gzip", "infer"])
def test_compression(fs: EntrepotFileSystem, compression: str) -> None:
    with fs.open("current/file.gz", "wb", compression=compression) as file:
        file.write(LARGE)
    assert fs.size("current/file.gz") < len(LARGE)
    with fs.open("current/file.gz", "rb", compression=compression) as file:
        assert file.read() == LARGE
    with pytest.raises(Stop):
        _write_and_stop(fs, "current/other.gz", LARGE, mode="wb", compression=compression)
    assert not fs.exists("current/other.gz")


def test_append(fs: EntrepotFileSystem) -> None:
    for text in ("one\n", "two\n"):
        with fs.open("current/log", "a") as file:
            file.write(text)
    assert fs.cat_file("current/log") == b"one\ntwo\n"


@pytest.mark.parametrize("mode", ["r+b", "w+b"])
def test_changing_an_object_in_place_is_refused(fs: EntrepotFileSystem, mode: str) -> None:
    with pytest.raises(ValueError, match="written as a whole"):
        fs.open("current/file", mode)


# --- visibility


@pytest.mark.parametrize("content", [b"short", LARGE])
def test_a_file_is_invisible_until_it_is_closed(fs: EntrepotFileSystem, content: bytes) -> None:
    fs.pipe_file("current/old", b"old")
    with fs.open("current/new", "wb") as new, fs.open("current/old", "wb") as old:
        new.write(content)
        old.write(content)
        assert not fs.exists("current/new")
        assert fs.cat_file("current/old") == b"old"
    assert fs.cat_file("current/new") == fs.cat_file("current/old") == content


def _count(store: entrepot.Store) -> int:
    return len(store.list())


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_nothing_is_left_of_a_file_after_an_exception(fs: EntrepotFileSystem, store: entrepot.Store, mode: str) -> None:
    fs.pipe_file("current/file", b"old")
    for name in ("current/file", "current/other"):
        with pytest.raises(Stop):
            _write_and_stop(fs, name, LARGE if mode == "wb" else "text" * 100_000, mode=mode)
    assert fs.cat_file("current/file") == b"old"
    assert _count(store) == 1


@pytest.mark.parametrize(("mode", "compression"), [("wb", None), ("w", None), ("wb", "gzip"), ("w", "gzip")])
def test_a_file_that_nobody_closes_is_not_stored(fs: EntrepotFileSystem, mode: str, compression: str | None) -> None:
    file = fs.open("current/file", mode, compression=compression)
    file.write(b"x" if mode == "wb" else "x")
    files = [file]
    del file
    with pytest.warns(ResourceWarning, match="never closed"):
        files.clear()
    assert not fs.exists("current/file")


def test_a_reader_keeps_what_it_opened(fs: EntrepotFileSystem) -> None:
    fs.pipe_file("current/file", LARGE)
    with fs.open("current/file") as replaced, fs.open("current/file") as deleted:
        fs.pipe_file("current/file", b"new")
        assert replaced.read() == LARGE
        fs.rm("current/file")
        assert deleted.read() == LARGE
    assert not fs.exists("current/file")


def test_overwriting_leaves_no_object_behind(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    for content in (b"1", LARGE, b"2", LARGE[:-1]):
        fs.pipe_file("current/file", content)
        assert _count(store) == 1
    store.put(b"by name only", name="file", replace=True)  # under an ID of its own; leaves the file's object unnamed
    fs.pipe_file("current/file", b"3")
    assert fs.cat_file("current/file") == b"3"
    assert _count(store) == 1


def test_an_object_with_another_name_keeps_its_content_when_the_file_is_overwritten(
    fs: EntrepotFileSystem, store: entrepot.Store
) -> None:
    fs.pipe_file("current/file", b"old")
    store.set_name("alias", store.resolve("file"))
    fs.pipe_file("current/file", b"new")
    assert (fs.cat_file("current/file"), fs.cat_file("current/alias")) == (b"new", b"old")
    fs.rm("current/file")
    assert fs.cat_file("current/alias") == b"old"


def test_concurrent_writers_of_one_name(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    contents = [bytes([number]) * 100_000 for number in range(4)]
    fs.pipe_file("current/file", contents[0])
    stop = threading.Event()
    wrong: list[bytes] = []

    def write(content: bytes) -> None:
        for _ in range(15):
            fs.pipe_file("current/file", content)

    def read() -> None:
        while not stop.is_set():
            seen = fs.cat_file("current/file")
            if seen not in contents:
                wrong.append(seen[:10])

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert wrong == []
    assert fs.cat_file("current/file") in contents
    assert _count(store) == 1


def test_only_one_of_many_exclusive_writers_succeeds(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    files = [fs.open("current/lock", "xb") for _ in range(3)]  # none of them is there yet
    for file in files:
        file.write(b"the same content")
    files[0].close()
    for file in files[1:]:
        with pytest.raises(FileExistsError) as caught:
            file.close()
        assert isinstance(caught.value.__cause__, ObjectExists)
    assert _count(store) == 1
    with pytest.raises(FileExistsError):
        fs.open("current/lock", "x")


# --- transactions


def test_a_transaction_commits_all_files_at_its_end(fs: EntrepotFileSystem) -> None:
    with fs.transaction:
        fs.pipe_file("current/a", LARGE)
        with fs.open("current/b", "w") as file:
            file.write("text")
        assert not fs.exists("current/a")
        assert not fs.exists("current/b")
    assert (fs.cat_file("current/a"), fs.cat_file("current/b")) == (LARGE, b"text")


def test_a_transaction_that_fails_leaves_nothing(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    fs.pipe_file("current/a", b"old")
    before = store.status()
    with pytest.raises(Stop):
        _write_and_stop_in_a_transaction(fs)
    assert fs.cat_file("current/a") == b"old"
    assert _count(store) == 1
    assert store.status()["objects"] == before["objects"]
    fs.pipe_file("current/b", b"after")
    assert fs.cat_file("current/b") == b"after"


# --- names, sessions, IDs


def test_renaming_keeps_the_object(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    fs.pipe({"current/old": LARGE, "current/new": b"replaced"})
    oid = fs.info("current/old")["id"]
    fs.mv("current/old", "current/new")
    assert fs.info("current/new")["id"] == oid
    assert not fs.exists("current/old")
    fs.pipe_file("current/old", b"another")  # not the object that has moved away
    assert (fs.cat_file("current/new"), fs.cat_file("current/old")) == (LARGE, b"another")
    assert _count(store) == 2


def test_moving_a_directory_and_into_another_session(fs: EntrepotFileSystem) -> None:
    fs.pipe({"current/a/1": b"1", "current/a/b/2": LARGE})
    fs.mv("current/a", "current/c", recursive=True)
    assert fs.find("current/") == ["current/c/1", "current/c/b/2"]
    fs.mv("current/c/b/2", "default/elsewhere/2")
    assert fs.find("current/") == ["current/c/1"]
    assert fs.cat_file("default/elsewhere/2") == LARGE
    with pytest.raises(FileNotFoundError):
        fs.mv("current/missing", "current/x")


def test_a_copy_shares_memory(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    import numpy as np

    fs.pipe_file("current/a", LARGE)
    fs.cp_file("current/a", "current/b")
    first, second = (
        np.frombuffer(fs.view(name), np.uint8).__array_interface__["data"][0] for name in ("current/a", "current/b")
    )
    assert first == second
    fs.rm("current/a")
    assert fs.cat_file("current/b") == LARGE


def test_two_sessions_and_two_scopes(fs: EntrepotFileSystem) -> None:
    paths = ["default/run%2F1/x", "default/run-2/x", "other scope/-/x", "other scope/%2D/x"]
    for path in paths:
        fs.pipe_file(path, path.encode())
    for path in paths:
        assert fs.cat_file(f"entrepot://{path}") == fs.cat_file(f"entrepot:///{path}") == path.encode()
        assert path.rpartition("/")[0] in fs.ls(path.partition("/")[0], detail=False) or "other" in path
    scopes = fs.ls("", detail=False)
    assert "default" in scopes
    assert "other%20scope" in scopes
    assert fs.ls("other%20scope", detail=False) == ["other%20scope/-", "other%20scope/%2D"]
    assert [(entry["type"], entry["name"]) for entry in fs.ls("default/run%2F1")] == [("file", "default/run%2F1/x")]


def test_reading_creates_no_session(fs: EntrepotFileSystem) -> None:
    for path in ("default/nobody", "default/nobody/x", "nobody/-/x", "nobody"):
        assert not fs.exists(path)
        with pytest.raises(FileNotFoundError):
            fs.ls(path)
        with pytest.raises(FileNotFoundError):
            fs.open(path)
    assert "nobody" not in fs.ls("", detail=False)
    assert "default/nobody" not in fs.ls("default", detail=False)


def test_sessions_are_made_and_removed_as_directories(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    fs.mkdir("default/made")
    assert fs.isdir("default/made")
    with pytest.raises(FileExistsError):
        fs.mkdir("default/made")
    fs.makedirs("default/made/a/b", exist_ok=True)
    fs.pipe_file("default/made/a/b", b"x")
    with pytest.raises(FileExistsError):
        fs.makedirs("default/made/a/b", exist_ok=True)
    with pytest.raises(OSError, match="not empty") as caught:
        fs.rmdir("default/made")
    assert caught.value.errno == errno.ENOTEMPTY
    with pytest.raises(IsADirectoryError):
        fs.rm("default/made/a")
    fs.rm("default/made/a", recursive=True)
    fs.rmdir("default/made")
    assert not fs.exists("default/made")


def test_an_object_by_its_id(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    oid = store.put(LARGE)
    assert fs.cat_file(f"entrepot://{oid}", 3, 9) == LARGE[3:9]
    assert fs.isfile(str(oid))
    assert fs.ls("current", detail=False) == []  # it has no name
    with pytest.raises(PermissionError, match="by their ID"):
        fs.pipe_file(str(oid), b"x")
    fs.rm(str(oid))
    assert not store.exists(oid)
    assert not fs.exists(str(oid))


def test_a_name_may_be_a_file_and_a_directory(fs: EntrepotFileSystem) -> None:
    fs.pipe({"current/a": b"file", "current/a/b": b"below"})
    assert fs.cat_file("current/a") == b"file"
    assert sorted((entry["name"], entry["type"]) for entry in fs.ls("current")) == [
        ("current/a", "directory"),
        ("current/a", "file"),
    ]
    assert fs.ls("current/a", detail=False) == ["current/a/b"]
    assert fs.find("current") == ["current/a", "current/a/b"]


def test_names_that_look_like_patterns(fs: EntrepotFileSystem) -> None:
    fs.pipe({"current/[a]*/x": b"1", "current/a/y": b"2"})
    assert fs.ls("current/[a]*", detail=False) == ["current/[a]*/x"]
    assert fs.ls("current/a", detail=False) == ["current/a/y"]


def test_names_that_are_no_paths_are_not_listed(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    for name in ("/a", "b/", "c//d", "e"):
        store.put(b"x", name=name)
    assert fs.find("current") == ["current/e"]


def test_glob_find_walk(fs: EntrepotFileSystem) -> None:
    fs.pipe({"current/a/1.csv": b"", "current/a/b/2.csv": b"", "current/a/b/3.txt": b"", "current/4.csv": b""})
    assert fs.glob("current/a/*") == ["current/a/1.csv", "current/a/b"]
    assert fs.glob("entrepot://current/**/*.csv") == ["current/4.csv", "current/a/1.csv", "current/a/b/2.csv"]
    assert fs.find("current/a", maxdepth=1) == ["current/a/1.csv"]
    assert list(fs.walk("current/a")) == [("current/a", ["b"], ["1.csv"]), ("current/a/b", [], ["2.csv", "3.txt"])]
    assert fs.du("current") == 0


def test_keys_and_times_change_with_the_content(fs: EntrepotFileSystem) -> None:
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    fs.pipe_file("current/file", b"1")
    key, checksum = fs.ukey("current/file"), fs.checksum("current/file")
    assert (fs.ukey("current/file"), fs.checksum("current/file")) == (key, checksum)
    assert (
        before
        <= fs.created("current/file")
        == fs.modified("current/file")
        <= datetime.now(timezone.utc) + timedelta(seconds=1)
    )
    fs.pipe_file("current/file", b"2")
    assert fs.ukey("current/file") != key
    assert fs.checksum("current/file") != checksum


# --- errors


def test_errors_of_paths(fs: EntrepotFileSystem) -> None:
    fs.pipe_file("current/folder/file", b"x")
    with pytest.raises(IsADirectoryError):
        fs.open("current/folder")
    for path in ("", "current", "default", "default/-"):
        with pytest.raises(IsADirectoryError):
            fs.open(path, "wb")
    with pytest.raises(FileNotFoundError, match="no object of this name"):
        fs.open("current/folder/missing")
    with pytest.raises(FileNotFoundError, match="three slashes"):
        fs.open("missing")
    with pytest.raises(FileNotFoundError):
        fs.rm("current/missing")
    with pytest.raises(FileNotFoundError):
        fs.rmdir("current/missing")
    with pytest.raises(OSError, match="255 bytes") as caught:
        fs.pipe_file("current/" + "x" * 300, b"")
    assert caught.value.errno == errno.EINVAL
    assert isinstance(caught.value.__cause__, InvalidArgument)


def test_a_value_that_is_not_bytes_says_how_it_can_be_read(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    store.put({"a": 1}, name="data")
    assert fs.isfile("current/data")
    with pytest.raises(OSError, match=r"python\.data.*connect\(\)\.get"):
        fs.cat_file("current/data")


def test_a_full_store(new_daemon: Callable[..., Any]) -> None:
    small = EntrepotFileSystem(address=new_daemon("64MiB").address, skip_instance_cache=True)
    file = small.open("current/file", "wb")
    for _ in range(80):
        file.write(bytes(1 << 20))
    with pytest.raises(OSError, match="larger than the whole store") as caught:
        file.close()
    assert caught.value.errno == errno.ENOSPC
    assert isinstance(caught.value.__cause__, StoreFull)
    assert not small.exists("current/file")
    small.pipe_file("current/file", LARGE)  # the memory is free again
    assert small.cat_file("current/file") == LARGE


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ObjectNotFound("x"), FileNotFoundError),
        (ObjectExists("x"), FileExistsError),
        (AccessDenied("x"), PermissionError),
        (ObjectLost("x"), OSError),
    ],
)
def test_errors_of_the_store(error: Exception, expected: type[OSError]) -> None:
    with pytest.raises(expected, match="x"), os_errors("path"):
        raise error


# --- processes


def test_pickles_by_its_options_and_reopens_files(fs: EntrepotFileSystem) -> None:
    fs.pipe_file("current/file", LARGE)
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat_file("current/file") == LARGE
    with fs.open("current/file") as file:
        file.seek(5)
        assert pickle.loads(pickle.dumps(file)).read(4) == LARGE[5:9]


def test_a_forked_child_reads_and_writes(fs: EntrepotFileSystem) -> None:
    fs.pipe_file("current/parent", LARGE)
    with fs.open("current/parent") as file:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if file.read() == LARGE and fs.cat_file("current/parent") == LARGE:
                    fs.pipe_file("current/child", LARGE[::-1])
                    status = 0
            finally:
                os._exit(status)
        end = time.monotonic() + 60
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
            assert time.monotonic() < end, "the child does not end"
            time.sleep(0.005)
    assert os.waitstatus_to_exitcode(done[1]) == 0
    assert fs.cat_file("current/child") == LARGE[::-1]
