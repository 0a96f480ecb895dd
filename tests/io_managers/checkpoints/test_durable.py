"""Durable sessions: objects are also written to a URL, and reloaded from there by another store."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest
from entrepot import cli
from entrepot_checkpoints import list_checkpoints, prune
from entrepot_checkpoints.storage import local_files
from entrepot_io import connections, values


@pytest.fixture
def reboot(daemon: Any) -> Callable[[], None]:
    """Stop the store, and start a new one at the same address."""

    def again() -> None:
        connections.close_all()
        daemon.stop()
        daemon.start()

    return again


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    connections.close_all()


def connect(daemon: Any, durable: Any = None, session: str = "run") -> entrepot.Store:
    """Connect to a session of the test's scope."""
    return entrepot.connect(daemon.address, scope="tests", session=session, durable=durable)


def python(daemon: Any, code: str, *arguments: object) -> str:
    """Run code in another process; returns its output."""
    start = f"import sys, os, entrepot\nstore = entrepot.connect({daemon.address!r}, scope='tests', session='run')\n"
    command = [sys.executable, "-c", start + textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("mode", ["through", "behind"])
def test_what_was_put_is_there_after_a_reboot(daemon: Any, target: Any, reboot: Callable[[], None], mode: Any) -> None:
    durable = entrepot.Durable(target.url, mode, storage_options=target.options)
    with connect(daemon, durable) as store:
        large = store.put(np.arange(300_000), id=store.derive("large"), name="large")
        small = store.put(b"small")
        many = store.put_many([b"a", {"b": np.arange(100)}])
        with store.create(100_000, metadata=b"meta") as blob:
            blob.view[:4] = b"head"
    reboot()
    with connect(daemon, durable) as store:
        assert not store.list("[0-9a-f]*")[1:]  # only the declaration
        assert (store.get_by_name("large") == np.arange(300_000)).all()
        assert store.derive("large") == large == store.resolve("large")
        assert store.get(small) == b"small"
        assert store.get_many([*many, small])[0] == b"a"
        assert bytes(store.get(blob.id).view[:4]) == b"head"
        assert store.exists(many[1])
        assert not store.exists(entrepot.ObjectID.random())
        with pytest.raises(entrepot.ObjectNotFound):
            store.get(entrepot.ObjectID.random())
        with pytest.raises(entrepot.ObjectNotFound):
            store.get_by_name("none")


def test_other_processes_of_the_session_do_the_same(daemon: Any, folder: Any, reboot: Callable[[], None]) -> None:
    with connect(daemon, folder.url) as store:
        oid = entrepot.ObjectID(python(daemon, "print(store.put(b'from a process', name='n'))").strip())
        assert store.get(oid) == b"from a process"
        assert connect(daemon).durable == entrepot.Durable(folder.url)
        assert connect(daemon, False).durable is None
        assert connect(daemon, session="another").durable is None
        assert store.session("another").durable == entrepot.Durable(folder.url)
    reboot()
    assert connect(daemon).durable is None
    with connect(daemon, folder.url) as store:
        assert store.get_by_name("n") == b"from a process"


def test_the_environment_declares(daemon: Any, folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_DURABLE", folder.url)
    monkeypatch.setenv("ENTREPOT_DURABLE_MODE", "behind")
    with connect(daemon) as store:
        assert store.durable == entrepot.Durable(folder.url, "behind")
    monkeypatch.setenv("ENTREPOT_DURABLE_MODE", "sideways")
    with pytest.raises(entrepot.InvalidArgument, match="sideways"):
        connect(daemon)


def test_a_relative_path_is_for_one_working_directory(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a setting, which tasks with other working directories read, it is refused; in an argument, it is made
    absolute."""
    monkeypatch.chdir(tmp_path)
    for relative in ("runs", "./runs", "~/runs"):
        monkeypatch.setenv("ENTREPOT_DURABLE", relative)
        with pytest.raises(entrepot.InvalidArgument, match=f"absolute path, but got '{re.escape(relative)}'"):
            connect(daemon)
        with pytest.raises(entrepot.InvalidArgument, match="absolute path"):
            connections.durable_tier({"key": "value"})
    monkeypatch.delenv("ENTREPOT_DURABLE")
    with connect(daemon, "runs") as store:
        assert store.durable == entrepot.Durable(str(tmp_path / "runs"))
        store.put(b"kept", name="n")
    assert (tmp_path / "runs").is_dir()


def test_the_memory_of_a_process_is_no_durable_tier_of_other_processes(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_DURABLE", "memory://runs")
    with pytest.raises(entrepot.InvalidArgument, match="'memory://runs', in the memory of one process"):
        connect(daemon)


def test_names_without_an_object_are_pruned(daemon: Any, tmp_path: Path) -> None:
    """A value that is deleted, or pruned, leaves its name."""
    with connect(daemon, str(tmp_path)) as store:
        deleted = store.put(b"1", name="deleted")
        store.put(b"2", name="kept")
        store.delete(deleted)
    names = [path for path in (tmp_path / ".entrepot" / "names").rglob("*") if path.is_file()]
    assert len(names) == 2
    assert prune(str(tmp_path)).names == 0, "a recent name may precede its object"
    for path in names:
        os.utime(path, (0, 0))
    assert prune(str(tmp_path), dry_run=True).names == 1
    assert prune(str(tmp_path)).names == 1
    assert [json.loads(path.read_text())["name"] for path in names if path.exists()] == ["kept"]
    with connect(daemon, str(tmp_path)) as store:
        assert store.get_by_name("kept") == b"2"


def test_built_tables_are_durable(daemon: Any, folder: Any, reboot: Callable[[], None]) -> None:
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64())])
    durable = entrepot.Durable(folder.url)
    with connect(daemon, durable) as store:
        with store.build_table(schema, name="appended") as appended:
            appended.append(pa.record_batch([np.arange(300_000), np.ones(300_000)], schema=schema))
        with store.build_table(schema, rows=300_000, name="columns") as columns:
            columns.column("n")[:] = 7
            columns.set_column("x", np.zeros(300_000))
        changed = store.replace_columns(columns.id, {"n": np.arange(300_000)}, drop=["x"])
    reboot()
    with connect(daemon, durable) as store:
        assert store.get(appended.id)["x"].to_numpy().sum() == 300_000
        assert store.get_by_name("columns")["n"].to_numpy().sum() == 7 * 300_000
        assert store.get(changed).column_names == ["n"]


def test_only_what_matches_is_durable(daemon: Any, folder: Any, reboot: Callable[[], None]) -> None:
    durable = entrepot.Durable(folder.url, match="model_*")
    with connect(daemon, durable) as store:
        kept = store.put(b"kept", name="model_1")
        lost = store.put(b"lost", name="other")
        explicit = store.put(b"explicit")
        store.make_durable(explicit)
        later = store.put(b"later")
        store.set_name("model_2", later)
    reboot()
    with connect(daemon, durable) as store:
        assert store.get(kept) == b"kept"
        assert store.get(explicit) == b"explicit"
        assert store.get_by_name("model_2") == b"later"
        with pytest.raises(entrepot.ObjectNotFound):
            store.get(lost)
    with connect(daemon, session="plain") as plain, pytest.raises(entrepot.InvalidArgument, match="durable="):
        plain.make_durable(plain.put(b"x"))


def test_what_is_replaced_or_deleted_does_not_come_back(daemon: Any, folder: Any, reboot: Callable[[], None]) -> None:
    with connect(daemon, folder.url) as store:
        oid = store.put(b"first", name="n")
        store.put(b"second", id=oid, replace=True)
        deleted = store.put(b"gone", name="gone")
        assert store.delete(deleted)
        store.unset_name("gone")
        assert not store.exists(deleted)
    reboot()
    with connect(daemon, folder.url) as store:
        assert store.get_by_name("n") == b"second"
        with pytest.raises(entrepot.ObjectNotFound):
            store.get(deleted)
        with pytest.raises(entrepot.ObjectNotFound):
            store.get_by_name("gone")


def test_a_deleted_collection_goes_with_its_members(daemon: Any, folder: Any, reboot: Callable[[], None]) -> None:
    with connect(daemon, folder.url) as store:
        builder = store.collection("parts")
        builder.extend([np.full(50_000, index) for index in range(3)])
        sealed = builder.seal()
        kept = store.put(b"kept")
        assert all(store.exists(oid) for oid in [sealed.id, *sealed.ids])
        assert store.delete(sealed.id)
    reboot()
    with connect(daemon, folder.url) as store:
        assert not any(store.exists(oid) for oid in [sealed.id, *sealed.ids])
        assert store.get(kept) == b"kept"


def test_the_end_of_a_process_waits_for_what_it_put_off(daemon: Any, folder: Any, reboot: Callable[[], None]) -> None:
    with connect(daemon, entrepot.Durable(folder.url, "behind")):
        code = "import numpy\nfor i in range(30): store.put(numpy.full(200_000, i), id=store.derive(str(i)))"
        python(daemon, code)
    reboot()
    with connect(daemon, folder.url) as store:
        assert [store.get(store.derive(str(i)))[0] for i in range(30)] == list(range(30))


def test_a_forked_child_leaves_the_parents_work_alone(daemon: Any, folder: Any) -> None:
    code = """
        store.put(b"parents", name="p")
        child = os.fork()
        if child == 0:
            store.put(b"childs", name="c")
            store.flush_durable(30)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.flush_durable(30)
        """
    with connect(daemon, entrepot.Durable(folder.url, "behind")) as store:
        python(daemon, code)
        assert len(list_checkpoints(folder.url)) == 2
        assert store.get_by_name("c") == b"childs"


def test_a_clean_stop_flushes(daemon: Any, folder: Any, capsys: Any) -> None:
    with connect(daemon, entrepot.Durable(folder.url, "behind")):
        python(daemon, "store.put(bytes(300_000), name='n')\nos._exit(0)")  # exits, possibly before its write is done
        assert cli.main(["stop", "--address", daemon.address]) == 0
        assert "has 1 object in its durable tier" in capsys.readouterr().out
    daemon.stop()
    daemon.start()
    with connect(daemon, folder.url) as store:
        assert store.get_by_name("n") == bytes(300_000)


def test_a_stop_that_cannot_flush_leaves_the_store(daemon: Any, folder: Any, capsys: Any) -> None:
    with connect(daemon, folder.url) as store:
        oid = store.put(b"x")
        for path in sorted(Path(folder.url).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        Path(folder.url).rmdir()
        Path(folder.url).write_text("in the way")
        assert cli.main(["stop", "--address", daemon.address]) == 1
        assert "folder" in capsys.readouterr().err
        assert store.get(oid) == b"x"
        assert cli.main(["stop", "--address", daemon.address, "--no-flush"]) == 0
    daemon.stop()
    daemon.start()


@pytest.mark.parametrize("mode", ["through", "behind"])
def test_a_tier_that_fails(daemon: Any, folder: Any, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    def full(path: str, data: Any, sync: bool) -> None:
        raise OSError(28, "No space left on device")

    store = connect(daemon, entrepot.Durable(folder.url, mode, match="n*"))
    with monkeypatch.context() as patched:
        patched.setattr(local_files, "write_file", full)
        if mode == "through":
            with pytest.raises(entrepot.StoreFull, match="is in the store, but could not be made durable"):
                store.put(b"x", name="n")
        else:
            with pytest.raises(entrepot.StoreFull):
                store.put(b"x", name="n")  # the name could not be written
            with pytest.raises(entrepot.StoreFull, match="1 object could not be made durable"):
                store.flush_durable(30)
    oid = store.resolve("n")
    assert store.get(oid) == b"x"
    store.make_durable(oid)
    store.close()
    assert [checkpoint.name for checkpoint in list_checkpoints(folder.url)] == [str(oid)]


def test_a_damaged_tier_is_never_data(daemon: Any, folder: Any, reboot: Callable[[], None]) -> None:
    with connect(daemon, folder.url) as store:
        oid = store.put(np.arange(100_000), name="n")
    (chunk,) = (path for path in Path(folder.url, ".entrepot/chunks").rglob("*") if path.is_file())
    chunk.write_bytes(b"\1" * 800_000)
    (name,) = (path for path in Path(folder.url, ".entrepot/names").rglob("*") if path.is_file())
    name.write_text(json.dumps({"name": "m", "id": str(oid)}))
    reboot()
    with connect(daemon, folder.url) as store:
        with pytest.raises(entrepot.CorruptData):
            store.get(oid)
        with pytest.raises(entrepot.CorruptData, match="'n'"):
            store.get_by_name("n")


def test_a_reference_finds_its_value_after_reboots(
    daemon: Any, folder: Any, reboot: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Needed when a task is cleared later, such as the next day."""
    monkeypatch.setenv("ENTREPOT_DURABLE", folder.url)

    def session() -> entrepot.Store:
        return connections.session_store(daemon.address, "tests", "run", None)

    first = values.put_value(session(), "task/a", np.arange(50_000))
    changed = values.put_value(session(), "task/b", b"old")
    values.put_value(session(), "task/b", b"new")
    reboot()
    assert (values.get_value(first, address=daemon.address) == np.arange(50_000)).all()
    second = values.put_value(session(), "task/a", np.arange(50_000))  # the task was rerun, with the same result
    assert values.get_by_key(session(), "task/b", recorded=None) == b"new"
    with pytest.raises(entrepot.ObjectLost):
        values.get_value(changed, address=daemon.address)
    reboot()
    for reference in (first, second):
        assert (values.get_value(reference, address=daemon.address) == np.arange(50_000)).all()
        assert len(values.get_by_key(session(), "task/a", recorded=reference)) == 50_000
    with pytest.raises(entrepot.ObjectLost):
        values.get_value(changed, address=daemon.address)
    assert values.key_exists(session(), "task/a")


def test_what_is_loaded_into_a_durable_session_is_durable(
    daemon: Any, folder: Any, reboot: Callable[[], None], tmp_path: Path
) -> None:
    with connect(daemon, session="plain") as plain:
        ids = [plain.put(np.arange(50_000), name="n"), plain.put(b"m")]
        plain.save(ids, str(tmp_path / "saved/one"))
        for oid in ids:
            plain.delete(oid)
    with connect(daemon, entrepot.Durable(folder.url, match="n")) as store:
        assert store.load(str(tmp_path / "saved/one")) == ids
    reboot()
    with connect(daemon, folder.url) as store:
        assert store.get(ids[0])[-1] == 49_999
        assert not store.exists(ids[1])


def test_pruning_keeps_what_is_durable(daemon: Any, folder: Any, reboot: Callable[[], None]) -> None:
    with connect(daemon, folder.url) as store:
        kept, deleted = store.put(np.arange(90_000)), store.put(np.arange(80_000))
        store.delete(deleted)
        assert prune(folder.url).chunks == 1
    reboot()
    with connect(daemon, folder.url) as store:
        assert store.get(kept)[-1] == 89_999


def test_a_folder_that_cannot_be_written_is_not_declared(daemon: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(entrepot.EntrepotError, match="file"):
        connect(daemon, f"{tmp_path}/file/tier", session="mistyped")
    with connect(daemon, session="mistyped") as store:
        assert store.durable is None
        store.put(b"x")


def test_wrong_declarations(daemon: Any, tmp_path: Path) -> None:
    for wrong in ("nonsense://x/y", "", entrepot.ObjectID.random()):
        with pytest.raises(entrepot.InvalidArgument):
            connect(daemon, wrong)
    with pytest.raises(entrepot.InvalidArgument, match="sideways"):
        entrepot.Durable(str(tmp_path), "sideways")  # type: ignore[arg-type]
    with connect(daemon) as store:
        store.put(b"not a declaration", id=store.derive("entrepot.durable"))
    with pytest.raises(entrepot.CorruptData, match="durable"):
        connect(daemon)
    with connect(daemon, False) as store:
        newer = json.dumps({"entrepot_durable": 2, "url": "x"}).encode()
        store.put(newer, id=store.derive("entrepot.durable"), replace=True)
    with pytest.raises(entrepot.VersionMismatch, match="format 2"):
        connect(daemon)
    assert os.listdir(tmp_path) == []
