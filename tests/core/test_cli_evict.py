"""``entrepot evict --wait``: until the objects are on disk, with progress."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.cli import main

MIB = 1 << 20


def test_it_waits_until_they_are_on_disk(
    new_daemon: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = entrepot.connect(new_daemon("64MiB", "--spill-path", str(tmp_path / "spill")).address)
    oids = [store.put(np.full(2 * MIB, number, dtype=np.uint8)) for number in range(4)]
    small = store.put(b"lives in the store's records", name="small")
    here = ["--address", store.address]
    assert main(["evict", *map(str, oids), "small", *here, "--wait", "60s", "--progress"]) == 0
    assert [store.info(oid).state for oid in oids] == ["spilled"] * 4
    assert store.info(small).state == "sealed"
    last = capsys.readouterr().err.rstrip("\n").rpartition("\r")[2]
    assert last.startswith("100 %  8.0 MiB of 8.0 MiB, 4 of 4 objects, ")
    assert (store.get(oids[3]) == 3).all()
    assert main(["evict", str(oids[0]), *here, "--wait", "60s", "--no-progress"]) == 0
    assert capsys.readouterr().err == ""


def test_what_stays_in_memory_is_named(
    new_daemon: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = entrepot.connect(new_daemon("64MiB", "--spill-path", str(tmp_path / "spill")).address)
    oid = store.put(np.zeros(MIB, dtype=np.uint8))
    value: Any = store.get(oid)
    assert main(["evict", str(oid), "--address", store.address, "--wait", "0.2"]) == 1
    message = capsys.readouterr().err
    assert f"not on disk after 0.2 s: 1 object: {oid}: " in message
    assert "pinned by " in message
    assert f"(process {os.getpid()})" in message
    del value
