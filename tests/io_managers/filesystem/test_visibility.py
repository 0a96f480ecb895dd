"""Nothing is visible before it is complete, nothing stays behind, and transactions commit all or nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import entrepot
import pytest
from entrepot.errors import ObjectExists
from entrepot_io.filesystem.file_system import EntrepotFileSystem

LARGE = bytes(range(256)) * 1024


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


@pytest.mark.parametrize("compression", ["gzip", "infer"])
def test_nothing_is_left_of_a_compressed_file_after_an_exception(fs: EntrepotFileSystem, compression: str) -> None:
    with pytest.raises(Stop):
        _write_and_stop(fs, "current/other.gz", LARGE, mode="wb", compression=compression)
    assert not fs.exists("current/other.gz")


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


def test_closing_a_reader_frees_what_was_deleted(
    fs: EntrepotFileSystem, store: entrepot.Store, wait_until: Callable[..., None]
) -> None:
    fs.pipe_file("current/file", bytes(32 << 20))
    file = fs.open("current/file")
    fs.rm("current/file")
    used = store.status()["used_bytes"]
    assert file.read(1) == b"\0"
    file.close()
    wait_until(lambda: store.status()["used_bytes"] <= used - (32 << 20), "the memory of the deleted file")


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
