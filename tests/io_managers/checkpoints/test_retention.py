"""Listing, verifying and pruning checkpoints, from Python and the command line."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import cli
from entrepot_checkpoints import list_checkpoints, prune, verify
from entrepot_checkpoints.storage import locks
from entrepot_checkpoints.storage.directory import open_directory


def numbers(seed: int, count: int = 300_000) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 60, count)


def test_a_root_is_listed_verified_and_pruned(store: entrepot.Store, other: entrepot.Store, target: Any) -> None:
    common = store.put(numbers(0))
    for name in ("a", "b", "c"):
        own = store.put(numbers(ord(name)), name=name)
        store.save([common, own], target(name), storage_options=target.options)
    checkpoints = list_checkpoints(target.url, storage_options=target.options)
    assert [
        (checkpoint.name, checkpoint.what, checkpoint.objects, checkpoint.nbytes, checkpoint.problem)
        for checkpoint in checkpoints
    ] == [(name, "objects", 2, 4_800_000, "") for name in ("a", "b", "c")]
    assert abs(checkpoints[0].created - time.time()) < 300
    nothing = prune(target.url, storage_options=target.options)
    assert (nothing.removed, nothing.chunks, nothing.kept_for) == ([], 0, 0)
    would = prune(target.url, keep=1, match="[ab]", dry_run=True, storage_options=target.options)
    assert (would.removed, would.chunks) == (["a"], 1)
    done = prune(target.url, keep=1, match="[ab]", storage_options=target.options)
    assert (done.removed, done.chunks, done.nbytes) == (["a"], 1, 2_400_000)
    assert verify(target("b"), storage_options=target.options).ok
    assert verify(target("c"), storage_options=target.options).nbytes == 4_800_000
    with pytest.raises(entrepot.ObjectNotFound):
        other.load(target("a"), storage_options=target.options)
    other.load(target("b"), storage_options=target.options)
    assert (other.get_by_name("b") == numbers(ord("b"))).all()
    assert prune(target.url, older_than=0, storage_options=target.options).removed == ["b", "c"]
    assert list_checkpoints(target.url, storage_options=target.options) == []


def test_an_empty_place_has_no_checkpoints(target: Any) -> None:
    assert list_checkpoints(target.url, storage_options=target.options) == []
    assert prune(target.url, keep=0, storage_options=target.options).removed == []
    with pytest.raises(entrepot.ObjectNotFound):
        verify(target("none"), storage_options=target.options)


def test_no_chunk_goes_while_somebody_saves(store: entrepot.Store, folder: Any) -> None:
    store.save(store.put(numbers(1)), folder("a"))
    (Path(folder("a")) / "manifest.json").unlink()
    root = open_directory(folder.url)
    with locks.save_lock(root):
        report = prune(folder.url)
        assert (report.chunks, report.kept_for) == (0, 1)
    report = prune(folder.url)
    assert (report.chunks, report.kept_for) == (1, 0)


def test_a_saver_waits_for_a_pruner_and_not_for_a_dead_one(
    store: entrepot.Store, folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = open_directory(folder.url)
    monkeypatch.setattr(locks, "PRUNE_WAIT_SECONDS", 0.0)
    oid = store.put(numbers(1))
    with locks.prune_lock(root), pytest.raises(entrepot.Timeout, match="prune"):
        store.save(oid, folder("a"))
    root.write(f"{locks.PRUNE_LOCKS}/dead", b"")
    long_ago = time.time() - 2 * locks.STALE_SECONDS
    os.utime(f"{folder.url}/{locks.PRUNE_LOCKS}/dead", (long_ago, long_ago))
    store.save(oid, folder("a"))


def test_a_manifest_that_cannot_be_read_keeps_all_chunks(
    store: entrepot.Store, folder: Any, files: Callable[[str], dict[str, bytes]]
) -> None:
    store.save(store.put(numbers(1)), folder("a"))
    store.save(store.put(numbers(2)), folder("b"))
    (Path(folder("a")) / "manifest.json").write_bytes(b"damaged")
    before = files(folder.url)
    with pytest.raises(entrepot.CorruptData):
        prune(folder.url, older_than=0)
    assert files(folder.url) == before
    assert [checkpoint.name for checkpoint in list_checkpoints(folder.url) if checkpoint.problem] == ["a"]


def test_what_a_dead_writer_left_goes_after_a_while(store: entrepot.Store, folder: Any) -> None:
    store.save(store.put(numbers(1)), folder("a"))
    left = Path(folder.url, ".entrepot/chunks/00/.00.tmp-0123")
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"half")
    assert prune(folder.url).chunks == 0
    os.utime(left, (0, 0))
    assert prune(folder.url).chunks == 1
    assert not left.exists()


def run(capsys: Any, *arguments: str, code: int = 0) -> str:
    """Run a subcommand; returns its output."""
    assert cli.main(list(arguments)) == code
    captured = capsys.readouterr()
    return str(captured.err if code else captured.out)


def test_the_command_line(store: entrepot.Store, other: entrepot.Store, folder: Any, capsys: Any) -> None:
    here = ["--address", store.address, "--scope", "tests"]
    other_options = ["--address", other.address, "--scope", "tests"]
    oid = store.put(numbers(1), name="orders")
    assert "2.3 MiB written" in run(capsys, "save", *here, "orders", folder("one"))
    assert "already up to date" in run(capsys, "save", *here, "orders", folder("one"))
    assert json.loads(run(capsys, "save", *here, folder("all"), "--json"))["objects"] == 1
    assert run(capsys, "load", *other_options, folder("one")).split() == [str(oid)]
    assert other.resolve("orders") == oid
    listed = run(capsys, "checkpoints", "list", folder.url)
    assert "one" in listed
    assert "session" in listed
    assert "2.3 MiB read" in run(capsys, "checkpoints", "verify", folder("one"))
    assert "removed 1 checkpoint, 0 chunks" in run(
        capsys, "checkpoints", "prune", folder.url, "--match", "all", "--older-than", "0s"
    )
    assert cli.main(["save", *here, "orders", folder("two"), "--progress"]) == 0
    assert "100 %" in capsys.readouterr().err
    chunk = next(path for path in Path(folder.url, ".entrepot/chunks").rglob("*") if path.is_file())
    chunk.write_bytes(b"")
    assert chunk.name in run(capsys, "checkpoints", "verify", folder("one"), code=1)
    assert "cannot be loaded completely" in run(capsys, "checkpoints", "verify", folder("one"), "--quick", code=1)
    assert "no checkpoint" in run(capsys, "load", *other_options, folder("none"), code=1)


@pytest.mark.parametrize("wrong", [["--older-than", "7"], ["--older-than", "xd"], ["--storage-option", "novalue"]])
def test_wrong_options_of_the_command_line(folder: Any, wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["checkpoints", "prune", folder.url, *wrong])
    assert ended.value.code == 2


def test_options_for_the_driver_on_the_command_line(store: entrepot.Store, s3: Any, capsys: Any) -> None:
    options = [f"--storage-option={key}={json.dumps(value)}" for key, value in s3.options.items()]
    oid = store.put(b"x" * 100_000)
    run(capsys, "save", "--address", store.address, "--scope", "tests", str(oid), s3("one"), *options)
    assert "one" in run(capsys, "checkpoints", "list", s3.url, *options)


def test_a_folder_that_does_not_exist_has_no_list(tmp_path: Path, capsys: Any) -> None:
    for url in (f"{tmp_path}/nosuch", f"file://{tmp_path}/nosuch"):
        assert f"there is no folder {tmp_path}/nosuch" in run(capsys, "checkpoints", "list", url, code=1)
    assert run(capsys, "checkpoints", "list", str(tmp_path)).split()[0] == "name"


def test_removing_all_checkpoints_must_be_confirmed(store: entrepot.Store, folder: Any, capsys: Any) -> None:
    store.save(store.put(numbers(1)), folder("one"))
    prune_all = ["checkpoints", "prune", folder.url, "--keep", "0"]
    assert "confirm it with --yes" in run(capsys, *prune_all, code=1)
    assert "would remove 1 checkpoint" in run(capsys, *prune_all, "--dry-run")
    assert "removed 0 checkpoints" in run(capsys, *prune_all, "--older-than", "1h")
    assert "removed 0 checkpoints" in run(capsys, "checkpoints", "prune", folder.url, "--keep", "1")
    assert "removed 1 checkpoint" in run(capsys, *prune_all, "--yes")
