"""Round trips: same ID, type, content and names, in another store, from every kind of target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from entrepot import raw_objects
from entrepot_checkpoints import Progress, SaveReport
from entrepot_checkpoints.storage.chunks import CHUNK_BYTES, PACK_BELOW_BYTES, SMALL_BELOW_BYTES, SMALL_CHUNK_BYTES

VALUES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "bytes": lambda: b"few",
    "empty bytes": lambda: b"",
    "a large bytes": lambda: bytes(range(256)) * 4096,
    "text in a list": lambda: ["a", {"b": 2.5, "c": [None, True]}],
    "a small array": lambda: np.arange(10, dtype="i2"),
    "an empty array": lambda: np.empty((0, 3)),
    "an array of one chunk": lambda: np.arange(SMALL_CHUNK_BYTES, dtype="u1"),
    "an array of two chunks and a bit": lambda: np.arange(2 * SMALL_CHUNK_BYTES + 1, dtype="u1"),
    "an array of large chunks and a bit": lambda: np.arange(SMALL_BELOW_BYTES + CHUNK_BYTES + 1, dtype="u1"),
    "arrays of all sizes": lambda: {n: np.full(n, n % 251, dtype="u1") for n in (0, 1, 65535, 65536, PACK_BELOW_BYTES)},
    "the same array twice": lambda: (lambda a: {"x": a, "y": a})(np.arange(100_000)),
    "an Arrow table": lambda: pa.table({"a": range(50_000), "s": ["x" * (i % 30) for i in range(50_000)]}),
    "a pandas frame": lambda: pd.DataFrame({"a": np.arange(9000.0), "c": pd.Categorical(["u", "v", "w"] * 3000)}),
    "a Polars frame": lambda: pl.DataFrame({"a": range(5000), "s": [str(i) for i in range(5000)]}),
    "something pickled": lambda: {1 + 2j, "set"},
}


def equal(left: Any, right: Any) -> bool:
    """Whether two values are equal and of the same type."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())
    if isinstance(left, (pa.Table, pd.DataFrame, pl.DataFrame)):
        return bool(left.equals(right))
    return bool(left == right)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_value_comes_back_in_another_store(
    store: entrepot.Store, other: entrepot.Store, folder: Any, value: Callable[[], Any]
) -> None:
    oid = store.put(value(), name="it")
    store.save(oid, folder("one"))
    assert other.load(folder("one")) == oid
    assert equal(other.get(oid), value())
    assert other.resolve("it") == oid
    assert raw_objects.read(other, oid).tree == raw_objects.read(store, oid).tree


def test_every_kind_of_target_takes_a_session(store: entrepot.Store, other: entrepot.Store, target: Any) -> None:
    with store.session("run-7") as run:
        ids = {run.put(make(), name=name): make for name, make in VALUES.items()}
        report = store.save(run, target("run-7"), storage_options=target.options)
        assert report == SaveReport(target("run-7"), len(ids), report.nbytes, report.written_bytes, True)
    loaded = other.load(target("run-7"), session="again", storage_options=target.options)
    assert isinstance(loaded, list)
    assert sorted(loaded) == sorted(ids)
    with other.session("again") as again:
        for name, make in VALUES.items():
            assert equal(again.get_by_name(name), make()), name
        assert len(again.list()) == len(VALUES)


def test_a_list_comes_back_in_its_order(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    ids = store.put_many([f"value {i}".encode() * 100 for i in range(2000)])
    expected = [*ids[::-1], ids[0]]
    store.save(expected, folder("many"))
    assert other.load(folder("many")) == expected
    assert other.get_many(ids) == store.get_many(ids)


def test_a_collection_takes_its_members_along(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    class Pair:
        id = store.put({"this names": "two members"})
        ids = store.put_many([np.arange(70_000), b"small"])

    store.save(Pair(), folder("pair"))
    assert other.load(folder("pair")) == Pair.id
    assert equal(other.get(Pair.ids[0]), np.arange(70_000))
    assert other.get(Pair.ids[1]) == b"small"


def test_saving_the_same_again_writes_nothing(
    store: entrepot.Store, folder: Any, files: Callable[[str], dict[str, bytes]]
) -> None:
    ids = store.put_many([np.arange(200_000), b"small", np.arange(40)])
    first = store.save(ids, folder("a"))
    assert first.committed
    assert first.written_bytes >= 1_600_000
    before = files(folder.url)
    again = store.save(ids, folder("a"))
    assert (again.committed, again.written_bytes) == (False, 0)
    assert files(folder.url) == before


def test_what_another_checkpoint_has_is_not_written_again(
    store: entrepot.Store, other: entrepot.Store, folder: Any, files: Callable[[str], dict[str, bytes]]
) -> None:
    large, more = np.random.default_rng(0).bytes(3_000_000), np.random.default_rng(1).bytes(2_000_000)
    first = store.put(large)
    second = store.put({"old": large, "new": more})
    assert store.save(first, folder("a")).written_bytes == len(large)
    assert store.save(second, folder("b")).written_bytes == len(more)
    own = store.save(second, folder("c"), incremental=False)
    assert own.written_bytes == len(large) + len(more)
    assert {name for name in files(folder.url) if name.startswith("c/")} >= {"c/manifest.json"}
    assert len([name for name in files(folder.url) if name.startswith("c/chunks/")]) == 2
    for name in ("a", "b", "c"):
        other.load(folder(name))
    assert other.get(second) == {"old": large, "new": more}


def test_a_checkpoint_with_its_own_chunks_can_be_moved(
    store: entrepot.Store, other: entrepot.Store, folder: Any, tmp_path: Path
) -> None:
    oid = store.put(np.arange(300_000))
    store.save(oid, folder("here"), incremental=False)
    (tmp_path / "elsewhere").mkdir()
    Path(folder("here")).rename(tmp_path / "elsewhere/there")
    assert other.load(str(tmp_path / "elsewhere/there")) == oid
    assert equal(other.get(oid), np.arange(300_000))


def test_bytes_that_objects_share_are_stored_once_and_shared_again(
    store: entrepot.Store, other: entrepot.Store, folder: Any
) -> None:
    first = store.put(np.arange(500_000))
    seen = store.get(first)
    second = store.put({"twice": [seen, seen], "own": np.arange(70_000)})
    used = other.status()["used_bytes"]
    store.save([first, second], folder("shared"))
    other.load(folder("shared"))
    assert equal(other.get(second)["twice"][1], np.arange(500_000))
    assert other.status()["used_bytes"] - used < 1.2 * (8 * 500_000 + 8 * 70_000)


def test_loading_again_reads_no_payload(store: entrepot.Store, other: entrepot.Store, folder: Any) -> None:
    ids = [store.put(np.arange(400_000) + i, name=f"n{i}") for i in range(4)]
    store.save(ids, folder("a"))
    moved: list[int] = []

    def progress(done: Progress) -> None:
        moved.append(done.moved_bytes)

    other.load(folder("a"), progress=progress)
    assert moved[-1] == 4 * 8 * 400_000
    other.delete(ids[2])
    moved.clear()
    other.load(folder("a"), progress=progress)
    assert moved[-1] == 8 * 400_000
    assert other.get_by_name("n2")[0] == 2


def test_progress_ends_at_the_total(store: entrepot.Store, other: entrepot.Store, target: Any) -> None:
    ids = store.put_many([np.arange(5_000_000), np.arange(30_000), b"x" * 5000, b"y"])
    for move in (
        lambda progress: store.save(ids, target("a"), progress=progress, storage_options=target.options),
        lambda progress: other.load(target("a"), progress=progress, storage_options=target.options),
    ):
        seen: list[Progress] = []
        move(seen.append)
        assert seen[-1].done_bytes == seen[-1].total_bytes > 40_000_000
        assert seen[-1].done_objects == seen[-1].total_objects == 4
        assert [report.done_bytes for report in seen] == sorted(report.done_bytes for report in seen)


@pytest.mark.slow
def test_more_than_the_other_store_holds_is_refused_whole(
    store: entrepot.Store, other: entrepot.Store, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrepot.raw_objects.PUT_WAIT_SECONDS", 5.0)
    ids = [store.put(np.full(60 << 20, i, dtype="u1")) for i in range(3)]
    store.save(ids, folder("large"))
    with pytest.raises(entrepot.StoreFull):
        other.load(folder("large"))
    for oid in ids:
        if other.exists(oid):
            assert other.get(oid)[0] == ids.index(oid)
    for info in other.list():
        other.delete(info.id)
    oid = store.put(np.full(50 << 20, 9, dtype="u1"))
    store.save(oid, folder("fits"))
    other.load(folder("fits"))  # no reservation of the refused load is left
    assert other.get(oid)[-1] == 9


def test_a_checkpoint_of_format_1_is_read_by_every_later_version(other: entrepot.Store) -> None:
    """The files in version_1 were written by the first version and must never be rewritten."""
    assert other.load(str(Path(__file__).parent / "version_1/session")) == [
        entrepot.ObjectID("11" * 20),
        entrepot.ObjectID("22" * 20),
    ]
    small = other.get_by_name("small")
    assert small["text"] == ["a", None, 1.5]
    assert equal(small["array"], np.arange(6, dtype="<i2").reshape(2, 3))
    assert equal(other.get_by_name("zeros"), np.zeros(35_000, "<i2"))
