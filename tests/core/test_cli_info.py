"""What ``entrepot info`` says first: what an object is, its schema, what it shares, and who reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.cli import main

pa = pytest.importorskip("pyarrow")
BYTES = 1_600_000


class Traced:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (_touch, (self.path,))


def _touch(path: str) -> str:
    Path(path).touch()
    return path


@pytest.fixture
def summary(capsys: pytest.CaptureFixture[str]) -> Callable[[entrepot.Store, object], dict[str, str]]:
    """The lines above the empty one, by label."""

    def run(store: entrepot.Store, name: object) -> dict[str, str]:
        capsys.readouterr()
        assert main(["info", str(name), "--address", store.address, "--scope", "tests"]) == 0
        head, _, fields = capsys.readouterr().out.partition("\n\n")
        assert fields.startswith("id ")
        lines = [line.split("  ", 1) for line in head.splitlines()]
        return {label: text.strip() for label, text in lines}

    return run


def test_schemas_of_tables_and_arrays(store: entrepot.Store, summary: Callable[..., dict[str, str]]) -> None:
    store.put(pa.table({"a": [1, 2, 3], "b\x1b[31m": ["x", "y", "z"]}), name="table")
    lines = summary(store, "table")
    assert lines["schema"] == r"a int64, b\x1b[31m string; 3 rows"
    assert lines["value"].startswith("arrow.table, ")
    assert "in memory, sealed " in lines["value"]
    store.put(np.zeros((200, 1000)), name="array")
    lines = summary(store, "array")
    assert lines["schema"] == "float64, shape (200, 1000)"
    assert lines["sharing"] == "1.5 MiB of its own"
    store.put(pa.table({f"c{number}": [number] for number in range(25)}), name="wide")
    assert summary(store, "wide")["schema"].endswith("c19 int64 and 5 more columns; 1 row")
    assert "schema" not in summary(store, store.put(b"bytes"))
    assert "schema" not in summary(store, store.put({"a": 1}))


def test_what_it_shares_and_who_reads_it(store: entrepot.Store, summary: Callable[..., dict[str, str]]) -> None:
    parent = store.put({"x": np.arange(BYTES // 8)}, name="parent")
    value = store.get(parent)
    store.put({"x": value["x"], "z": np.zeros(BYTES // 4)}, name="derived")
    assert f"1.5 MiB in older objects: 1.5 MiB of {parent} (parent)" in summary(store, "derived")["sharing"]
    lines = summary(store, parent)
    assert lines["sharing"] == "1.5 MiB of its own, of which 1.5 MiB are shared with newer objects"
    assert lines["read by"].startswith("1 process: ")


def test_nothing_is_unpickled(store: entrepot.Store, summary: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    trace = tmp_path / "unpickled"
    oid = store.put(Traced(str(trace)))
    assert "schema" not in summary(store, oid)
    assert not trace.exists()
    store.get(oid)
    assert trace.exists()  # it would have left this


def test_what_is_on_disk_stays_there(
    start_daemon: Callable[..., Any],
    tmp_path: Path,
    summary: Callable[..., dict[str, str]],
    wait_until: Callable[..., Any],
) -> None:
    folder = tmp_path / "spill"
    folder.mkdir(mode=0o700)
    daemon = start_daemon("128MiB", "--spill-path", str(folder))
    with entrepot.connect(daemon.address, scope="tests") as spilling:
        oid = spilling.put(np.zeros(BYTES // 8))
        spilling.evict(oid)
        wait_until(lambda: spilling.info(oid).state == "spilled", "the object to be on disk")
        lines = summary(spilling, oid)
        assert ", on disk, sealed " in lines["value"]
        assert "schema" not in lines
        assert spilling.info(oid).state == "spilled"
