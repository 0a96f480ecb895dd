"""Collections: built by several producers, sealed once, read by member, deleted as a whole."""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import threading
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.cli import main

MIB = 1 << 20


def _build(store: entrepot.Store, name: str = "parts", count: int = 4) -> entrepot.Collection:
    builder = store.collection(name)
    for index in range(count):
        builder.put({"part": index}, index=index)
    return builder.seal()


def test_a_sealed_collection_is_an_object_with_its_members_in_order(store: entrepot.Store) -> None:
    builder = store.collection("parts")
    ids = [builder.put({"part": index}, index=index) for index in (2, 0, 1)]
    assert not builder.sealed
    with pytest.raises(entrepot.ObjectNotFound):
        store.get_by_name("parts")
    sealed = builder.seal(3)
    assert builder.sealed
    loaded = store.get_by_name("parts")
    assert isinstance(loaded, entrepot.Collection)
    assert loaded == sealed == store.get(builder.id)
    assert len(loaded) == 3
    assert loaded.ids == [ids[1], ids[2], ids[0]]
    assert [value["part"] for value in loaded] == [0, 1, 2]
    assert [loaded[0], loaded[-1]] == [{"part": 0}, {"part": 2}]
    assert (loaded.name, loaded.type, loaded.kind, loaded.rows) == ("parts", "dict", "value", None)
    with pytest.raises(IndexError, match="3 members"):
        loaded[3]


def test_slices_are_views_of_the_same_members(store: entrepot.Store) -> None:
    builder = store.collection("arrays")
    for index in range(6):
        builder.put(np.full(10_000 + index, index), index=index)
    collection = builder.seal()
    assert collection.nbytes == sum(8 * (10_000 + index) for index in range(6))
    view = collection[1:6:2]
    assert [int(value[0]) for value in view] == [1, 3, 5]
    assert view.ids == collection.ids[1:6:2]
    assert view.nbytes == 8 * (30_000 + 9)
    assert view.row_counts == [10_001, 10_003, 10_005]
    assert [int(value[0]) for value in view[::-1]] == [5, 3, 1]
    assert len(collection[4:2]) == 0
    assert list(collection[4:2]) == []
    assert view != collection


def test_a_member_is_pinned_only_while_its_value_lives(store: entrepot.Store) -> None:
    builder = store.collection("arrays")
    for index in range(5):
        builder.put(np.full(MIB, index), index=index)
    collection = builder.seal()
    gc.collect()
    base = store._client.raw.pins
    value = None
    for value in collection.iterate(prefetch=0):
        assert store._client.raw.pins <= base + 2  # this member and, while the next one is loaded, that one
        assert value.flags.writeable is False
    del value
    gc.collect()
    assert store._client.raw.pins == base
    pinned_value = collection[3]
    store.delete(collection.id)
    assert pinned_value[7] == 3


def test_a_task_that_is_run_again_writes_the_same_members(store: entrepot.Store) -> None:
    builder = store.collection("parts")
    first = builder.put([1, 2], index=0)
    assert store.collection("parts").put([1, 2], index=0) == first
    assert store.session("other", ttl=60).collection("parts").put([1, 2], index=0) != first
    with pytest.raises(entrepot.ObjectExists, match="another value at index 0"):
        builder.put([1, 3], index=0)
    builder.put([1, 3], index=0, replace=True)
    assert list(builder.seal()) == [[1, 3]]


def test_sealing_the_same_again_is_success_and_other_contents_are_refused(store: entrepot.Store) -> None:
    sealed = _build(store)
    generation = store.generation_of(sealed.id)
    assert store.collection("parts").seal() == sealed
    assert store.collection("parts").seal(4) == sealed
    assert store.generation_of(sealed.id) == generation
    with pytest.raises(entrepot.InvalidArgument, match="has a member at index 3, so its length cannot be 3"):
        store.collection("parts").seal(3)
    store.delete(sealed.ids[3])
    with pytest.raises(entrepot.ObjectExists, match="already sealed"):
        store.collection("parts").seal(3)
    store.collection("parts").put({"part": 3}, index=3)
    builder = store.collection("parts")
    assert builder.put({"part": 1}, index=1) == sealed.ids[1]  # a late retry
    for put in (lambda: builder.put({}, index=4), lambda: builder.append({}), lambda: builder.put({}, index=1)):
        with pytest.raises(entrepot.ObjectExists):
            put()
    with pytest.raises(entrepot.ObjectExists, match="sealed with 4 members"):
        builder.put({}, index=1, replace=True)
    assert [value["part"] for value in sealed] == [0, 1, 2, 3]


def test_a_gap_is_named(store: entrepot.Store) -> None:
    builder = store.collection("parts")
    for index in (0, 1, 4):
        builder.put(index, index=index)
    assert builder.indexes() == [0, 1, 4]
    with pytest.raises(entrepot.ObjectNotFound, match="lacks 2 of 5 members, at index 2, 3:"):
        builder.seal()
    with pytest.raises(entrepot.Timeout, match=r"lacks 2 of 5 members, at index 2, 3 after 0.05 s"):
        builder.seal(timeout=0.05)
    assert not builder.sealed
    builder.put(2, index=2)
    builder.put(3, index=3)
    assert list(builder.seal()) == [0, 1, 2, 3, 4]


def test_sealing_waits_for_members_that_are_still_made(store: entrepot.Store, spawn: Any) -> None:
    other = spawn("sys.stdin.readline()\nfor i in (1, 2): store.collection('parts').put(i, index=i)")
    builder = store.collection("parts")
    builder.put(0, index=0)
    sealed: list[Any] = []
    waiting = threading.Thread(target=lambda: sealed.append(builder.seal(3, timeout=30)))
    waiting.start()
    other.communicate("go\n", timeout=30)
    waiting.join(30)
    assert [list(collection) for collection in sealed] == [[0, 1, 2]]


def test_members_of_several_types_are_refused(store: entrepot.Store) -> None:
    builder = store.collection("parts")
    builder.put(np.arange(3), index=0)
    builder.put("text", index=1)
    with pytest.raises(entrepot.UnsupportedType, match=r"a numpy.ndarray at index 0 and a str at index 1"):
        builder.seal()
    builder.put(np.arange(3.0), index=1, replace=True)
    with pytest.raises(entrepot.InvalidArgument, match=r"float64 with 1 axes instead of int64"):
        builder.seal()
    builder.put(np.arange(5), index=1, replace=True)
    assert builder.seal().rows == 8


@pytest.mark.parametrize("index", [-1, True, 1.5, "0", 1 << 40])
def test_an_index_is_a_whole_number_from_0_on(store: entrepot.Store, index: Any) -> None:
    with pytest.raises(entrepot.InvalidArgument, match="index of a member"):
        store.collection("parts").put(1, index=index)


def test_bad_names_and_lengths(store: entrepot.Store) -> None:
    for name in ("", "x" * 256, 7):
        with pytest.raises(entrepot.InvalidArgument, match="a name"):
            store.collection(name)  # type: ignore[arg-type]
    builder = store.collection("empty")
    with pytest.raises(entrepot.InvalidArgument, match="has no members"):
        builder.seal()
    with pytest.raises(entrepot.InvalidArgument, match="length of a collection"):
        builder.seal(-1)
    with pytest.raises(entrepot.InvalidArgument, match="timeout"):
        builder.seal(timeout=-1)
    empty = builder.seal(0)
    assert (len(empty), empty.nbytes, empty.type, list(empty)) == (0, 0, "", [])
    with pytest.raises(entrepot.InvalidArgument, match="0 or more"):
        empty.iterate(prefetch=-1)
    with pytest.raises(entrepot.InvalidArgument, match="copy must be one of"):
        _build(store)[0:1].get(0, copy="sometimes")  # type: ignore[arg-type]


def test_the_name_of_another_object_is_not_taken(store: entrepot.Store) -> None:
    other = store.put(b"mine", name="parts")
    builder = store.collection("parts")
    builder.put(1, index=0)
    with pytest.raises(entrepot.ObjectExists, match="parts"):
        builder.seal()
    assert store.resolve("parts") == other
    assert not builder.sealed


def test_deleting_a_collection_deletes_its_members_unless_told_otherwise(store: entrepot.Store) -> None:
    kept = _build(store, "kept")
    deleted = _build(store, "gone")
    assert store.delete(kept.id, members=False)
    assert all(store.exists(oid) for oid in kept.ids)
    assert store.delete(deleted.id)
    assert not any(store.exists(oid) for oid in deleted.ids)
    assert not store.delete(deleted.id)
    assert not deleted.delete()
    resealed = store.collection("kept").seal()
    assert resealed == kept
    assert resealed.delete()
    assert store.list() == []


def test_discarding_what_was_never_sealed(store: entrepot.Store) -> None:
    other = store.put(1)
    builder = store.collection("parts")
    builder.put(1, index=3)
    builder.append(2)
    assert builder.discard() == 2
    assert [info.id for info in store.list()] == [other]
    assert builder.append(7) == 0
    assert list(builder.seal()) == [7]
    assert builder.discard() == 1


def test_the_end_of_the_session_ends_collection_and_members(store: entrepot.Store) -> None:
    with store.session("run", ttl=600) as run:
        open_ = run.collection("open")
        open_.put(1, index=0)
        sealed = _build(run)
        value = sealed[0]
        store.remove_session("run")
        assert store.status()["objects"] == 0
        with pytest.raises(entrepot.ObjectLost, match="member 1"):
            sealed[1]
        assert value == {"part": 0}


def test_a_member_that_is_gone_or_replaced_is_lost(store: entrepot.Store) -> None:
    sealed = _build(store)
    store.delete(sealed.ids[2])
    assert sealed[1] == {"part": 1}
    with pytest.raises(entrepot.ObjectLost, match=r"member 2 .* of collection 'parts' is no longer available"):
        sealed[2]
    members = iter(sealed)
    assert [next(members)["part"] for _ in range(2)] == [0, 1]
    with pytest.raises(entrepot.ObjectLost, match="member 2"):
        next(members)
    store.put(bytes(100_000), id=sealed.ids[3], replace=True)
    with pytest.raises(entrepot.ObjectLost, match="was replaced"):
        sealed[3]


def test_a_collection_is_put_as_a_value_by_reference(store: entrepot.Store) -> None:
    sealed = _build(store)
    before = store.status()["objects"]
    reference = store.put(sealed)
    nested = store.put({"train": sealed[:3], "test": sealed[3:], "backwards": sealed[::-1], "n": 1})
    assert store.status()["objects"] == before + 2
    assert store.get(reference) == sealed
    loaded = store.get(nested)
    assert loaded["train"] == sealed[:3]
    assert loaded["test"].ids == sealed.ids[3:]
    assert [value["part"] for value in loaded["backwards"]] == [3, 2, 1, 0]
    assert store.delete(reference)  # deletes the reference, not its target
    assert list(sealed)[3] == {"part": 3}
    sealed.delete()
    with pytest.raises(entrepot.ObjectLost, match=r"'parts'.*no longer available"):
        store.get(nested)
    builder = store.collection("parts")
    builder.put("other", index=0)
    builder.seal()
    with pytest.raises(entrepot.ObjectLost, match="was rebuilt with other members"):
        store.get(nested)


def test_a_collection_outlives_the_store_that_it_was_got_from(daemon: Any) -> None:
    store = entrepot.connect(daemon.address, scope="tests", session="run")
    sealed = _build(store)
    store.close()
    assert sealed[1] == {"part": 1}
    assert pickle.loads(pickle.dumps(sealed[1:])).ids == sealed.ids[1:]


def test_a_collection_goes_to_other_processes(store: entrepot.Store, python: Any) -> None:
    sealed = _build(store)
    code = """
        import pickle
        part = pickle.loads(bytes.fromhex(sys.argv[1]))
        print([value["part"] for value in part], store.get_by_name("parts") == part)
    """
    done = python(code, pickle.dumps(sealed[1:3]).hex())
    assert done.stdout.strip() == "[1, 2] False", done.stderr


@pytest.mark.parametrize("depth", [0, 3])
def test_a_fork_goes_on_iterating(store: entrepot.Store, depth: int) -> None:
    sealed = _build(store, count=6)
    members = sealed.iterate(prefetch=2)
    taken = [next(members) for _ in range(depth)]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if [value["part"] for value in members] == list(range(depth, 6)) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert [value["part"] for value in [*taken, *members]] == list(range(6))


def test_collections_of_collections(store: entrepot.Store) -> None:
    builder = store.collection("months")
    for month in range(2):
        builder.put(_build(store, f"days-{month}", 2 + month), index=month)
    months = store.get(builder.seal().id)
    assert months.type == "entrepot.Collection"
    assert [[value["part"] for value in days] for days in months] == [[0, 1], [0, 1, 2]]


def test_several_processes_append_and_none_is_lost(store: entrepot.Store, spawn: Any) -> None:
    code = """
        builder = store.collection("rows")
        for number in range(25):
            builder.append([sys.argv[1], number])
    """
    running = [spawn(code, producer) for producer in "abc"]
    for process in running:
        process.communicate(timeout=60)
        assert process.returncode == 0
    rows = list(store.collection("rows").seal())
    assert len(rows) == 75
    for producer in "abc":
        assert [number for row_producer, number in rows if row_producer == producer] == list(range(25))


def test_a_named_producer_finds_what_it_appended_before(store: entrepot.Store) -> None:
    first = store.collection("rows", producer="task-1")
    assert [first.append([0]), first.append([1])] == [0, 1]
    assert store.collection("rows", producer="task-2").extend([[0], [5]]) == [2, 3]
    retried = store.collection("rows", producer="task-1")  # the task was killed and is retried
    assert retried.extend([[0], [1], [2]]) == [0, 1, 4]
    assert list(retried.seal()) == [[0], [1], [0], [5], [2]]
    with pytest.raises(entrepot.ObjectExists, match=r"'task-1' .* appended another value as its number 0"):
        store.collection("rows", producer="task-1").append([9])
    assert store.collection("rows", producer="task-1").append([0]) == 0


def test_a_killed_producer_leaves_what_it_sealed(store: entrepot.Store, spawn: Any, wait_until: Any) -> None:
    code = """
        import numpy as np
        builder = store.collection("arrays")
        first, last = int(sys.argv[1]), int(sys.argv[2])
        for index in range(first, last):
            if index == int(sys.argv[3]):
                unsealed = store.create(1 << 20)  # in the middle of making the next one
                unsealed.view[:4] = b"half"
                print("stuck", flush=True)
                sys.stdin.readline()
            builder.put(np.full(200_000, index), index=index)
    """
    good, bad = spawn(code, 0, 5, -1), spawn(code, 5, 10, 8)
    good.communicate(timeout=60)
    assert bad.stdout.readline() == "stuck\n"
    os.kill(bad.pid, signal.SIGKILL)
    bad.wait(30)
    builder = store.collection("arrays")
    assert builder.indexes() == [0, 1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(entrepot.ObjectNotFound, match="at index 8, 9"):
        builder.seal(10)
    wait_until(lambda: store.status()["unsealed_bytes"] == 0, "the half-made member to be dropped")
    spawn(code, 5, 10, -1).communicate(timeout=60)
    sealed = builder.seal(10)
    assert [int(value[199_999]) for value in sealed] == list(range(10))
    assert store.status()["objects"] == 11


def test_it_survives_a_kill_of_the_daemon(store: entrepot.Store) -> None:
    sealed = _build(store)
    builder = store.collection("later")
    builder.put([1], index=0)
    os.kill(store.status()["pid"], signal.SIGKILL)
    builder.put([2], index=1)
    assert list(builder.seal(2)) == [[1], [2]]
    assert [value["part"] for value in store.get(sealed.id)] == [0, 1, 2, 3]


def test_ls_and_info_show_members_and_bytes(
    store: entrepot.Store, daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = store.collection("arrays")
    for index in range(3):
        builder.put(np.zeros(MIB), index=index)
    sealed = builder.seal()
    options = ["--address", daemon.address, "--scope", "tests"]
    assert main(["ls", *options]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if str(sealed.id) in line]
    assert "collection of 3 numpy.ndarray" in line
    assert "24.0 MiB" in line
    assert main(["info", "arrays", "--json", *options]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["collection"] == {
        "name": "arrays", "members": 3, "nbytes": 24 * MIB, "rows": 3 * MIB, "type": "numpy.ndarray"
    }  # fmt: skip
    member = store.info(sealed.ids[1])
    assert (member.type, member.member_of) == ("numpy.ndarray", {"name": "arrays", "index": 1})
    assert main(["rm", "arrays", *options]) == 0
    assert store.list() == []
