"""Files: what is written is read back, nothing is visible before it is complete, errors are those of a file system."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot.errors import ObjectNotFound
from entrepot_io.filesystem.file_system import EntrepotFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LARGE = bytes(range(256)) * 1024  # 256 KiB: in a buffer of its own


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


def test_objects_that_are_bytes_are_files_of_these_bytes(fs: EntrepotFileSystem, store: entrepot.Store) -> None:
    import array

    with store.create(100_000, metadata=b"of the blob", name="blob") as blob:
        blob.view[:] = LARGE[:100_000]
    with store.create(3, name="small blob") as blob:
        blob.view[:] = b"abc"
    store.put(bytearray(b"text"), name="bytearray")
    store.put(memoryview(array.array("i", range(2000))), name="view")
    expected = {
        "blob": LARGE[:100_000],
        "small blob": b"abc",
        "bytearray": b"text",
        "view": array.array("i", range(2000)).tobytes(),
    }
    for entry in fs.ls("current"):
        content = expected.pop(entry["name"].removeprefix("current/"))
        assert fs.cat_file(entry["name"]) == content
        assert entry["size"] == fs.size(entry["name"]) == len(content)
    assert expected == {}


def test_ranges_of_several_files(fs: EntrepotFileSystem) -> None:
    fs.pipe({"current/a": b"0123456789", "current/b": LARGE})
    paths = ["current/a", "current/b", "current/a"]
    assert fs.cat_ranges(paths, [0, 256, -3], [2, 260, None]) == [b"01", LARGE[256:260], b"789"]
    assert fs.cat_ranges(paths, 1, 3) == [b"12", LARGE[1:3], b"12"]
    first, missing = fs.cat_ranges(["current/a", "current/missing"], 0, 1)
    assert first == b"0"
    assert isinstance(missing, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["current/a", "current/missing"], 0, 1, on_error="raise")


def test_a_durable_session_gets_its_files_back(
    new_fs: Callable[..., EntrepotFileSystem],
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from entrepot import raw_objects

    with entrepot.connect(options["address"], session=options["session"], durable=f"file://{tmp_path}") as store:
        fs = new_fs(**options)
        contents = {"current/large": LARGE, "current/small": b"x"}
        fs.pipe(contents)
        fs.cp_file("current/large", "current/copy")
        store.flush_durable()
        for name in ("large", "small", "copy"):
            raw_objects.discard(store, store.resolve(name))  # from memory only
        assert {path: fs.cat_file(path) for path in contents} == contents
        assert fs.cat_file("current/copy") == LARGE
        read, lost = raw_objects.read, [ObjectNotFound("lost")]

        def read_once_lost(*arguments: Any) -> Any:
            if lost:
                raise lost.pop()
            return read(*arguments)

        monkeypatch.setattr(raw_objects, "read", read_once_lost)
        assert fs.cat_file("current/large") == LARGE
        assert lost == []
        fs.rm("current/large")
        assert not fs.exists("current/large")


def test_a_buffer_that_is_reused_after_a_write_does_not_change_the_file(fs: EntrepotFileSystem) -> None:
    buffer = bytearray(LARGE)
    with fs.open("current/file", "wb") as file:
        file.write(buffer)
        buffer[:] = bytes(len(buffer))
        file.write(memoryview(buffer).toreadonly())
        buffer[:] = LARGE
        file.write(memoryview(buffer)[:5])
    assert fs.cat_file("current/file") == LARGE + bytes(len(buffer)) + LARGE[:5]


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


@pytest.mark.parametrize("size", [0, 100, 100_000, 100_001, 200_000, 300_000])
@pytest.mark.parametrize("failing", [False, True])
def test_a_file_of_a_size_that_was_announced(
    fs: EntrepotFileSystem, store: entrepot.Store, size: int, failing: bool
) -> None:
    content = (LARGE * 2)[:size]
    file = fs.open("current/file", "wb", size=100_000)  # right or wrong
    for start in range(0, size, 30_000):
        file.write(content[start : start + 30_000])
        assert file.tell() == min(start + 30_000, size)
    if failing:
        file.discard()
    file.close()
    assert [entry["size"] for entry in fs.ls("current")] == ([] if failing else [size])
    if not failing:
        assert fs.cat_file("current/file") == content


def test_a_local_file_goes_into_the_store_without_being_held_in_memory(fs: EntrepotFileSystem, tmp_path: Path) -> None:
    local = tmp_path / "file"
    local.write_bytes(LARGE * 256)  # 64 MiB
    tracemalloc.start()
    try:
        fs.put_file(str(local), "current/file")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20
    assert fs.view("current/file") == local.read_bytes()


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
    assert 0 < fs.info("current/file.gz")["size"] < len(LARGE)
    with fs.open("current/file.gz", "rb", compression=compression) as file:
        assert file.read() == LARGE


def test_append(fs: EntrepotFileSystem) -> None:
    for text in ("one\n", "two\n"):
        with fs.open("current/log", "a") as file:
            file.write(text)
    assert fs.cat_file("current/log") == b"one\ntwo\n"


@pytest.mark.parametrize("mode", ["r+b", "w+b"])
def test_changing_an_object_in_place_is_refused(fs: EntrepotFileSystem, mode: str) -> None:
    with pytest.raises(ValueError, match="written as a whole"):
        fs.open("current/file", mode)


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


def test_many_processes_write_one_name(fs: EntrepotFileSystem, options: dict[str, Any]) -> None:
    program = (
        "import sys\n"
        "from entrepot_io.filesystem.file_system import EntrepotFileSystem\n"
        f"fs = EntrepotFileSystem(**{options!r})\n"
        "for _ in range(20):\n"
        "    fs.pipe_file('current/file', sys.argv[1].encode() * 100_000)\n"
        "    content = fs.cat_file('current/file')\n"
        "    assert len(set(content)) == 1 and len(content) == 100_000\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, letter]) for letter in "ab"]
    assert [process.wait(100) for process in processes] == [0, 0]
    assert fs.cat_file("current/file") in (b"a" * 100_000, b"b" * 100_000)
    with entrepot.connect(options["address"], session=options["session"]) as store:
        assert len(store.list()) == 1
