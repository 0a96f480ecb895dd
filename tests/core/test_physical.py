"""Memory and disk that objects occupy: ``entrepot info``, and ``entrepot ls --physical`` against the store's status."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot._cli.physical import physical_infos
from entrepot._client.info import parents_of, split_by_owner
from entrepot.cli import main

pa = pytest.importorskip("pyarrow")
COLUMN = 1_600_000  # not a multiple of a page

Run = Callable[..., str]


@pytest.fixture
def cli(store: entrepot.Store, capsys: pytest.CaptureFixture[str]) -> Run:
    """``cli("ls", "--physical")``: run a subcommand; returns its output."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        assert main([*map(str, arguments), "--address", store.address]) == 0
        return capsys.readouterr().out

    return run


def physical(cli: Run, *options: object) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(cli("ls", "--physical", "--json", *options))
    return report


def test_info_shows_own_shared_and_referenced_bytes(cli: Run, store: entrepot.Store) -> None:
    parent = store.put({"x": np.arange(COLUMN // 8), "y": np.ones(COLUMN // 8)})
    value = store.get(parent)
    store.put({"x": value["x"], "z": np.zeros(COLUMN // 4)}, name="derived")
    shown = json.loads(cli("info", "derived", "--scope", "tests", "--json"))
    assert (shown["own_bytes"], shown["shared_bytes"], shown["referenced_bytes"]) == (2 * COLUMN, 0, COLUMN)
    assert shown["parents"] == [{"id": str(parent), "nbytes": COLUMN, "kept_bytes": COLUMN}]
    text = cli("info", "derived", "--scope", "tests")
    assert re.search(rf"^referenced_bytes +{COLUMN}$", text, re.MULTILINE)
    assert re.search(rf"^parents .*{parent}", text, re.MULTILINE)
    origin = store.info(parent)
    assert (origin.own_bytes, origin.shared_bytes, origin.referenced_bytes) == (2 * COLUMN, COLUMN, 0)
    assert origin.parents == []


def test_a_blob_passes_to_the_next_oldest_when_its_owner_is_deleted(store: entrepot.Store) -> None:
    oldest = store.put(np.arange(COLUMN // 8))
    older = store.put([store.get(oldest), "older"])
    younger = store.put([store.get(older)[0], "younger"])
    assert [origin["id"] for origin in store.info(older).parents] == [str(oldest)]
    assert [origin["id"] for origin in store.info(younger).parents] == [str(oldest)]
    store.delete(oldest)
    assert (store.info(older).own_bytes, store.info(older).parents) == (COLUMN, [])
    assert [origin["id"] for origin in store.info(younger).parents] == [str(older)]
    store.delete(older)
    assert (store.info(younger).own_bytes, store.info(younger).shared_bytes) == (COLUMN, 0)


def test_small_values_are_own_bytes_in_metadata(store: entrepot.Store) -> None:
    info = store.info(store.put(np.zeros(1000, np.uint8)))
    assert (info.own_bytes, info.inline_bytes, info.blobs) == (1000, 1000, [])


def test_overlapping_buffers_are_counted_once(store: entrepot.Store) -> None:
    value = store.get(store.put(np.arange(COLUMN // 8)))
    info = store.info(store.put([value, value[: COLUMN // 16], value[COLUMN // 32 :]]))
    assert (info.referenced_bytes, info.nbytes > 2 * COLUMN) == (COLUMN, True)


def fill(store: entrepot.Store) -> None:
    """Put values that share bytes across collections and sessions, and some that share none."""
    numbers = np.arange(COLUMN // 8)
    table = pa.table({"a": numbers, "b": numbers * 2, "c": ["text of a row"] * len(numbers)})
    value = store.get(store.put(table, name="table"))
    store.put(value.append_column("d", pa.array(numbers * 3)), name="wider")
    store.put(value.slice(100), name="slice")
    store.put(value.slice(0, 1000), name="small")
    store.put([1, 2, 3], name="plain")
    store.put(b"x" * 100_001, name="bytes")
    parts = store.collection("parts")
    for index in range(4):
        parts.put(value.select(["a"]) if index % 2 else pa.table({"a": numbers + index}), index=index)
    parts.seal(4)
    with entrepot.connect(store.address, scope="other", session="run") as other:
        other.put({"same": value, "new": np.ones(COLUMN // 8)})


def test_the_total_is_what_the_store_has_in_use(cli: Run, store: entrepot.Store) -> None:
    fill(store)
    report = physical(cli, "--all")
    total, status = report["total"], store.status()
    assert total["memory_bytes"] == total["kept_memory_bytes"] == status["used_bytes"] - status["record_bytes"]
    assert report["store"]["unlisted_memory_bytes"] == 0
    for name in ("own_bytes", "memory_bytes", "record_bytes"):
        assert total[name] == sum(item[name] for item in report["objects"])
    inline = sum(store.info(item["id"]).inline_bytes for item in report["objects"])
    blobs = sum(1 for item in report["objects"] for _ in store.info(item["id"]).blobs)
    assert 0 <= total["memory_bytes"] - (total["own_bytes"] - inline) < 4096 * blobs  # alignment
    # Logical sizes count shared bytes again and again: this store shares enough for that to show.
    assert sum(item["nbytes"] for item in report["objects"]) > 2 * total["own_bytes"]
    assert total["record_bytes"] <= status["record_bytes"]
    assert len(report["objects"]) == status["objects"]


def test_members_of_a_collection_are_counted_once(cli: Run, store: entrepot.Store) -> None:
    fill(store)
    rows = {name: item for item in physical(cli, "--all")["objects"] for name in item["names"]}
    assert rows["parts"]["memory_bytes"] == 0  # its list of members is in its metadata
    assert rows["slice"]["own_bytes"] < 1000
    assert COLUMN <= rows["wider"]["own_bytes"] < COLUMN + 1000
    assert rows["table"]["shared_bytes"] == rows["table"]["own_bytes"] > 2 * COLUMN


def test_spilled_bytes_are_on_disk(
    new_daemon: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wait_until: Callable[..., None],
) -> None:
    tmp_path.chmod(0o700)
    running = new_daemon("64MiB", f"--spill-path={tmp_path}")
    with entrepot.connect(running.address) as store:
        kept, moved = store.put(np.ones(COLUMN // 8)), store.put(np.zeros(COLUMN // 8))
        store.evict(moved)
        wait_until(lambda: store.info(moved).state == "spilled", "the object to leave memory")
        status = store.status()
        assert main(["ls", "--physical", "--all", "--json", "--address", running.address]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = {item["id"]: item for item in report["objects"]}
    assert (rows[str(moved)]["memory_bytes"], rows[str(moved)]["disk_bytes"]) == (0, COLUMN)
    assert rows[str(kept)]["disk_bytes"] == 0
    assert report["total"]["memory_bytes"] == rows[str(kept)]["memory_bytes"]
    assert report["total"]["memory_bytes"] == status["used_bytes"] - status["record_bytes"]
    assert report["total"]["disk_bytes"] == report["store"]["disk_bytes"] == status["spilled_bytes"] == COLUMN


def test_deleted_bytes_that_are_still_read_are_reported(cli: Run, store: entrepot.Store) -> None:
    kept, deleted = store.put(np.ones(COLUMN // 8)), store.put(np.zeros(COLUMN // 8))
    value = store.get(deleted)
    extent = store.info(deleted).blobs[0]["extent"]
    store.delete(deleted)
    report = physical(cli, "--all")
    assert [item["id"] for item in report["objects"]] == [str(kept)]
    assert report["store"]["unlisted_memory_bytes"] == extent
    assert "deleted but still being read" in cli("ls", "--physical", "--all")
    del value


def test_a_part_of_the_store_says_what_it_keeps_of_others(cli: Run, store: entrepot.Store) -> None:
    fill(store)
    report = physical(cli, "--scope", "tests", "slice")
    (item,) = report["objects"]
    assert item["names"] == ["slice"]
    assert item["referenced_bytes"] > 2 * COLUMN
    assert report["total"]["kept_memory_bytes"] > 2 * COLUMN > report["total"]["memory_bytes"]
    assert report["store"]["unlisted_memory_bytes"] is None
    lines = cli("ls", "--physical", "--scope", "tests", "slice").splitlines()
    assert lines[0].split()[:4] == ["id", "own", "shared", "referenced"]
    assert lines[2].startswith("total")
    assert lines[3].startswith("These objects keep")


def test_blobs_with_too_many_references_have_a_parent_without_an_id() -> None:
    def blob(owner: str | None, refs: int) -> dict[str, Any]:
        return {"blob": refs, "generation": 1, "owner": owner, "refs": refs, "length": 1000, "used": 600}

    alone, shared = blob(None, 1), blob(None, 2)
    assert split_by_owner("me", [alone, shared, blob("me", 3)]) == ([alone, blob("me", 3)], [shared])
    assert parents_of([shared, blob("other", 2), shared]) == [
        {"id": None, "nbytes": 1200, "kept_bytes": 2000},
        {"id": "other", "nbytes": 600, "kept_bytes": 1000},
    ]


def test_objects_that_are_deleted_meanwhile_are_left_out(store: entrepot.Store) -> None:
    kept, deleted = store.put([1]), store.put([2])
    listed = store.list()
    store.delete(deleted)
    raw = store._raw()  # pyright: ignore[reportPrivateUsage]
    assert [info.id for info in physical_infos(raw, listed)] == [kept]
