"""Handing over values through a running store: threads, forks, retries, loss, and a store that disappears."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from entrepot._codecs.encoding import encode_item
from entrepot.errors import InvalidArgument, ObjectExists, ObjectLost, ObjectNotFound, StoreUnavailable
from entrepot.ids import ObjectID
from entrepot_io.connections import close_all, scope_store, session_store
from entrepot_io.usage_hints import parse_usage_hints
from entrepot_io.values import delete_by_key, delete_value, get_by_key, get_value, key_exists, put_value

SCOPE = "tests"


@pytest.fixture(autouse=True)
def _environment(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    yield
    close_all()


def run_store(name: str = "airflow/etl/run-1") -> Any:
    return session_store(None, SCOPE, name, 3600)


def test_reference_says_where_the_value_is() -> None:
    store = run_store()
    reference = put_value(store, "load/return_value", np.zeros((100, 3)))
    assert reference.id == store.derive("load/return_value")
    assert (reference.scope, reference.session) == (SCOPE, "airflow/etl/run-1")
    assert reference.instance == store.instance_id
    assert (reference.type, reference.shape, reference.key) == ("numpy.ndarray", (100, 3), "load/return_value")
    assert reference.nbytes >= 2400
    assert np.array_equal(get_value(reference), np.zeros((100, 3)))


def test_people_find_the_object_by_its_key() -> None:
    reference = put_value(run_store(), "load/return_value", np.zeros(10))
    assert run_store().resolve("load/return_value") == reference.id


def test_long_keys_have_an_alias_too() -> None:
    key = "dag/" + "ä" * 400
    reference = put_value(run_store(), key, [1, 2, 3])
    assert get_value(reference) == [1, 2, 3]
    assert get_by_key(run_store(), key) == [1, 2, 3]


def test_without_a_key_every_put_is_another_object() -> None:
    references = [put_value(run_store(), None, b"x" * 100) for _ in range(2)]
    assert references[0].id != references[1].id
    assert [get_value(reference) for reference in references] == [b"x" * 100] * 2


def test_a_retry_replaces_and_the_old_reference_says_so() -> None:
    old = put_value(run_store(), "k", np.full(1000, 1))
    new = put_value(run_store(), "k", np.full(1000, 2))
    assert old.id == new.id
    assert get_value(new)[0] == 2
    with pytest.raises(ObjectLost, match="was replaced by a later attempt"):
        get_value(old)


class InterferingClient:
    """A client that follows every put by another writer's put of the same ID."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def put(self, items: list[Any], timeout: float) -> Any:
        done = self._real.put(items, timeout)
        for oid, session, *_ in items:
            other = encode_item("the other's", ObjectID(oid), False, session, replace=True, allow_pickle=False)
            self._real.put([other], timeout)
        return done


def test_a_value_replaced_before_its_reference_was_made_is_never_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = run_store()
    with monkeypatch.context() as during:
        during.setattr(store._client, "raw", InterferingClient(store._client.raw))
        reference = put_value(store, "k", np.full(1000, 1))
    assert get_by_key(store, "k") == "the other's"
    with pytest.raises(ObjectLost, match="was replaced by a later attempt"):
        get_value(reference)


def test_every_reference_of_racing_attempts_gives_its_own_value_or_none() -> None:
    store = run_store()
    outcomes: list[str] = []

    def attempt(number: int) -> None:
        for turn in range(60):
            mine = [number, turn]
            reference = put_value(store, "k", mine)
            try:
                outcomes.append("mine" if get_value(reference) == mine else "another's")
            except ObjectLost:
                outcomes.append("replaced")

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 240
    assert "mine" in outcomes
    assert "another's" not in outcomes


def test_deleted_and_written_again_is_another_life() -> None:
    old = put_value(run_store(), "k", np.full(1000, 1))
    assert delete_value(old)
    put_value(run_store(), "k", np.full(1000, 1))
    with pytest.raises(ObjectLost, match="was replaced"):
        get_value(old)


def test_without_replace_other_content_is_refused() -> None:
    put_value(run_store(), "k", np.full(1000, 1))
    put_value(run_store(), "k", np.full(1000, 1), replace=False)
    with pytest.raises(ObjectExists):
        put_value(run_store(), "k", np.full(1000, 2), replace=False)
    assert get_by_key(run_store(), "k")[0] == 1


def test_a_lost_value_is_an_error_that_names_it() -> None:
    reference = put_value(run_store(), "k", np.arange(1000))
    assert delete_value(reference)
    assert not delete_value(reference)
    with pytest.raises(ObjectLost, match=r"'k' \(numpy.ndarray 1000, .* is no longer in the store"):
        get_value(reference)
    with pytest.raises(ObjectLost, match="is no longer in the store"):
        get_by_key(run_store(), "k", recorded=reference)
    with pytest.raises(ObjectNotFound, match="nothing is stored under the key 'k' in session 'airflow/etl/run-1'"):
        get_by_key(run_store(), "k")


def test_a_removed_session_takes_its_values() -> None:
    reference = put_value(run_store(), "k", np.arange(1000))
    scope_store(None, SCOPE).remove_session("airflow/etl/run-1")
    with pytest.raises(ObjectLost, match="its session ended"):
        get_value(reference)
    again = put_value(run_store(), "k", np.arange(10))
    assert len(get_value(again)) == 10


def test_sessions_and_scopes_do_not_mix() -> None:
    references = [
        put_value(session_store(None, scope, session, 3600), "k", f"{scope} {session}")
        for scope in ("one", "two")
        for session in ("", "run-1", "run-2")
    ]
    assert len({reference.id for reference in references}) == 6
    assert [get_value(reference) for reference in references] == [
        f"{reference.scope} {reference.session}" for reference in references
    ]


def test_another_store_is_named() -> None:
    reference = put_value(run_store(), "k", np.arange(1000))
    elsewhere = replace(reference, instance="ab" * 16, host="node-b")
    with pytest.raises(ObjectLost, match="lives on host 'node-b'"):
        get_value(elsewhere)
    with pytest.raises(ObjectLost, match="lives on host 'node-b'"):
        get_by_key(run_store(), "k", recorded=elsewhere)
    assert not delete_value(elsewhere)
    assert len(get_value(reference)) == 1000


def test_a_new_store_at_the_old_address_knows_that_it_is_another(daemon: Any) -> None:
    reference = put_value(run_store(), "k", np.arange(1000))
    daemon.stop()
    close_all()
    daemon.start()
    put_value(run_store(), "k", np.zeros(1000))
    with pytest.raises(ObjectLost, match="ended or was killed, and this is a new one"):
        get_value(reference)


def test_a_store_that_is_gone(daemon: Any) -> None:
    reference = put_value(run_store(), "k", np.arange(1000))
    value = get_value(reference)
    daemon.stop()
    close_all()
    with pytest.raises(StoreUnavailable):
        get_value(reference)
    with pytest.raises(StoreUnavailable):
        run_store()
    assert int(value.sum()) == 1000 * 999 // 2


def test_deleting_by_key() -> None:
    assert not delete_by_key(run_store(), "k")
    put_value(run_store(), "k", 1)
    assert key_exists(run_store(), "k")
    assert delete_by_key(run_store(), "k")
    assert not key_exists(run_store(), "k")


def test_one_connection_a_process_and_scope() -> None:
    assert scope_store(None, "one") is scope_store(None, "one")
    assert scope_store(None, "one") is not scope_store(None, "two")
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: scope_store(None, "three"), range(32)))
    assert len({id(store) for store in stores}) == 1


def test_a_closed_connection_is_opened_again() -> None:
    reference = put_value(run_store(), "k", np.arange(1000))
    scope_store(None, SCOPE).close()
    assert len(get_value(reference)) == 1000


def test_threads_share_the_connection() -> None:
    start = threading.Barrier(4)

    def work(number: int) -> bool:
        start.wait(20)
        for turn in range(25):
            reference = put_value(run_store(f"run-{number}"), f"k{turn}", np.full(2000, number * 1000 + turn))
            if int(get_value(reference)[0]) != number * 1000 + turn:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def _child(reference: Any, results: Any) -> None:
    value = get_value(reference)
    results.put(int(value.sum()))
    results.put(put_value(run_store(), "from child", np.full(1000, 3)))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_other_processes_read_and_write(start: Any) -> None:
    """A forked child inherits the cached connection and has to open its own."""
    context = multiprocessing.get_context(start)
    reference = put_value(run_store(), "k", np.arange(100_000))
    value = get_value(reference)
    results = context.Queue()
    child = context.Process(target=_child, args=(reference, results)) if start == "fork" else None
    if child is None:
        # With pytest's importlib mode a spawned child cannot import this module, so it calls functions of the package.
        with context.Pool(1) as pool:
            assert int(pool.apply_async(get_value, (reference,)).get(60).sum()) == 100_000 * 99_999 // 2
        return
    child.start()
    assert results.get(timeout=60) == 100_000 * 99_999 // 2
    back = results.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert get_value(back).tolist() == [3] * 1000
    assert int(value.sum()) == 100_000 * 99_999 // 2


def test_concurrent_attempts_never_give_a_mixture() -> None:
    """Two attempts of a task write concurrently: reading a reference returns its own value or raises ObjectLost."""
    outcomes: list[tuple[int, Any]] = []
    start = threading.Barrier(2)

    def attempt(number: int) -> None:
        start.wait(20)
        for _ in range(50):
            outcomes.append((number, put_value(run_store(), "contended", np.full(5000, number))))

    threads = [threading.Thread(target=attempt, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    read = lost = 0
    for _, reference in outcomes:
        try:
            value = get_value(reference)
        except ObjectLost:
            lost += 1
        else:
            read += 1
            assert len(set(value.tolist())) == 1
    assert len(outcomes) == 100
    assert read >= 1
    assert read + lost == 100


@pytest.mark.parametrize(
    ("locality_set", "reading"), [("features", "unknown"), ({"name": "features", "reading": "random"}, "random")]
)
def test_an_output_belongs_to_the_locality_set_that_is_named(locality_set: Any, reading: str) -> None:
    store = run_store()
    for key in ("a/b", None):
        reference = put_value(store, key, np.zeros(10_000), usage_hints=parse_usage_hints(locality_set))
        assert store.info(reference.id).locality_set == "features"
    assert [entry.reading for entry in store.locality_sets() if entry.name == "features"] == [reading]
    assert parse_usage_hints(None) is None


@pytest.mark.parametrize(
    ("locality_set", "message"),
    [(5, "not 5"), ({"reading": "once"}, "has none"), ({"name": "x", "colour": 1}, "'colour'")],
)
def test_an_invalid_locality_set_is_refused(locality_set: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse_usage_hints(locality_set)
