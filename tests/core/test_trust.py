"""Limits of the store's protection as documented in docs/trust.md: files on disk, and processes of the same user."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
MIB = 1 << 20


def test_spilled_values_are_their_users_alone(
    tmp_path: Path, new_daemon: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    folder = tmp_path / "spill"
    old_umask = os.umask(0)  # file modes are up to the daemon
    try:
        daemon = new_daemon("64MiB", "--spill-path", str(folder), "--spill-quota", "256MiB")
    finally:
        os.umask(old_umask)
    with entrepot.connect(daemon.address) as store:
        oid = store.put(np.random.default_rng(1).integers(0, 1 << 62, MIB))
        store.evict(oid)
        wait_until(lambda: store.info(oid).state == "spilled", "the value to be written")
        paths = [folder, *folder.rglob("*")]
        assert any(path.is_file() and path.stat().st_size >= 8 * MIB for path in paths)
        for path in paths:
            status = path.lstat()
            assert stat.S_IMODE(status.st_mode) == (0o700 if path.is_dir() else 0o600), path
            assert status.st_uid == os.getuid()


def test_a_process_of_the_same_user_gets_around_all_of_it(store: entrepot.Store) -> None:
    """Documents a limit, not a guarantee: if this fails, the page would have to promise more."""
    mark = os.urandom(64)
    value = np.frombuffer(mark * 4096, np.uint8)
    oid = store.put(value)
    assert np.array_equal(store.get(oid), value)
    keeper = Path("/proc", str(store.status()["keeper_pid"]), "fd")
    changed = 0
    for link in keeper.iterdir():
        if not os.readlink(link).startswith("/memfd:"):
            continue
        try:
            fd = os.open(link, os.O_RDWR)
        except PermissionError:
            pytest.skip("this kernel lets nobody open another's descriptors")
        try:
            for offset in _offsets_of(fd, mark * 2):
                os.pwrite(fd, bytes([mark[0] ^ 0xFF]), offset)
                changed += 1
        finally:
            os.close(fd)
    assert changed == 1
    assert not np.array_equal(store.get(oid), value)


def _offsets_of(fd: int, pattern: bytes) -> Iterator[int]:
    """Yield the first position of these bytes in a sparse file, if any. Holes are not read: that would fill them."""
    end = os.fstat(fd).st_size
    offset = 0
    while offset < end:
        try:
            offset = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # only a hole is left
        hole = os.lseek(fd, offset, os.SEEK_HOLE)
        while offset < hole:
            index = os.pread(fd, min(MIB, hole - offset), offset).find(pattern)
            if index >= 0:
                yield offset + index
                return
            offset += MIB
        offset = hole


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 10
    for path, name in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in text, f"{path}::{name}"
    native = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "core" / "tests").rglob("*_test.cpp"))
    cases = re.findall(r"`([A-Z]\w+)\.([A-Z]\w+)`", PAGE)
    assert len(cases) > 5
    for suite, case in cases:
        assert re.search(rf"TEST(_F|_P)?\({suite}, {case}\)", native), f"{suite}.{case}"


def test_every_guarantee_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py|`[A-Z]\w+\.[A-Z]\w+`", row.rsplit("|", 2)[1]), row
