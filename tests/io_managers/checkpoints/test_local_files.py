"""Direct I/O: whatever the memory's alignment, the length, the file system and the disk, files have the bytes given."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from pathlib import Path
from typing import Any

import pytest
from entrepot_checkpoints.storage.local_files import BLOCK_BYTES, DIRECT_FROM_BYTES, PIECE_BYTES, write_file

LENGTHS = [0, 1, DIRECT_FROM_BYTES - 1, DIRECT_FROM_BYTES, DIRECT_FROM_BYTES + 1, 2 * PIECE_BYTES + BLOCK_BYTES + 7]


class WriteRecorder:
    """Records every ``os.write``, and can alter what is written.

    Attributes:
        seen: (direct I/O?, length) of each completed write.
        spoil: called with (direct I/O?, data) before each write; its result is written instead.
    """

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[bool, int]] = []
        self.spoil: Any = lambda direct, data: data
        real = os.write

        def write(file: int, data: Any) -> int:
            direct = bool(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT)
            data = self.spoil(direct, memoryview(data))
            done = real(file, data)
            self.seen.append((direct, done))
            return done

        patched.setattr(os, "write", write)

    @property
    def direct(self) -> int:
        """Bytes written by direct I/O, bypassing the page cache."""
        return sum(length for direct, length in self.seen if direct)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> WriteRecorder:
    return WriteRecorder(monkeypatch)


def _memory(nbytes: int, offset: int = 0) -> memoryview:
    """Random bytes that start ``offset`` bytes after a page boundary."""
    pages = mmap.mmap(-1, nbytes + offset + 1)
    view = memoryview(pages)[offset : offset + nbytes]
    view[:] = os.urandom(nbytes)
    return view


def _takes_direct_writes(folder: Path) -> bool:
    file = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_DIRECT)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


@pytest.mark.parametrize("offset", [0, 64, 1])
@pytest.mark.parametrize("nbytes", LENGTHS)
def test_what_is_written_is_what_was_given(tmp_path: Path, writes: WriteRecorder, nbytes: int, offset: int) -> None:
    if not _takes_direct_writes(tmp_path):
        pytest.skip("this folder's file system has no direct writes")
    data = _memory(nbytes, offset)
    write_file(str(tmp_path / "file"), data, True)
    assert (tmp_path / "file").read_bytes() == data
    assert writes.direct == (nbytes - nbytes % BLOCK_BYTES if nbytes >= DIRECT_FROM_BYTES else 0)
    assert sum(length for _, length in writes.seen) == nbytes


def test_what_need_not_be_synced_stays_in_the_page_cache(tmp_path: Path, writes: WriteRecorder) -> None:
    write_file(str(tmp_path / "file"), _memory(PIECE_BYTES), False)
    assert writes.direct == 0


def test_a_file_system_without_direct_writes(
    tmp_path: Path, writes: WriteRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.fcntl

    def refuse(file: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(file, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    data = _memory(PIECE_BYTES + 5)
    write_file(str(tmp_path / "file"), data, True)
    assert (tmp_path / "file").read_bytes() == data
    assert writes.direct == 0


def test_a_disk_with_larger_blocks(tmp_path: Path, writes: WriteRecorder) -> None:
    def refuse(direct: bool, data: memoryview) -> memoryview:
        if direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return data

    writes.spoil = refuse
    data = _memory(PIECE_BYTES + 5)
    write_file(str(tmp_path / "file"), data, True)
    assert (tmp_path / "file").read_bytes() == data


@pytest.mark.parametrize("taken", [512, BLOCK_BYTES, BLOCK_BYTES + 512])
@pytest.mark.parametrize("offset", [0, 64])
def test_a_disk_that_takes_a_part(tmp_path: Path, writes: WriteRecorder, taken: int, offset: int) -> None:
    writes.spoil = lambda direct, data: data[:taken] if direct and not writes.direct else data
    data = _memory(PIECE_BYTES + 5, offset)
    write_file(str(tmp_path / "file"), data, True)
    assert (tmp_path / "file").read_bytes() == data


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_leaves_what_was_there(tmp_path: Path, writes: WriteRecorder, number: int) -> None:
    (tmp_path / "file").write_bytes(b"before")

    def fail(direct: bool, data: memoryview) -> memoryview:
        if writes.direct:
            raise OSError(number, os.strerror(number))
        return data

    writes.spoil = fail
    with pytest.raises(OSError, match=os.strerror(number)):
        write_file(str(tmp_path / "file"), _memory(2 * PIECE_BYTES), True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"before"
