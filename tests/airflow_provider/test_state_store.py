"""States of tasks and assets in the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import entrepot
import pytest
from entrepot.errors import InvalidReference, ObjectLost
from entrepot_io import connections

pytest.importorskip("airflow.sdk.state", reason="Airflow has no state store before 3.3")

from airflow.sdk.state import AssetScope, TaskScope
from entrepot_airflow.state_store import MARK, EntrepotStateStoreBackend

LARGE = {"cursor": "x" * 100_000, "numbers": list(range(1000))}


def task(index: int = -1, run: str = "run/1") -> TaskScope:
    return TaskScope(dag_id="etl", run_id=run, task_id="load", map_index=index)


@pytest.fixture
def backend(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[EntrepotStateStoreBackend]:
    """The backend, with a store of its own."""
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.setenv("ENTREPOT_SCOPE", "states")
    yield EntrepotStateStoreBackend()
    connections.close_all()


def test_large_states_go_to_the_store_and_small_ones_do_not(backend: EntrepotStateStoreBackend) -> None:
    small = backend.serialize_task_state_store_to_ref(value={"a": [1, None]}, key="k", scope=task())
    assert small == '{"a": [1, null]}'
    assert backend.deserialize_task_state_store_from_ref(small) == {"a": [1, None]}
    stored = backend.serialize_task_state_store_to_ref(value=LARGE, key="k", scope=task())
    assert stored.startswith(MARK)
    assert len(stored) < 300
    assert backend.deserialize_task_state_store_from_ref(stored) == LARGE
    # The same name for the same key, as Airflow asks for, and the last state that was written.
    again = backend.serialize_task_state_store_to_ref(value={**LARGE, "cursor": "y" * 50_000}, key="k", scope=task())
    assert again == stored
    assert backend.deserialize_task_state_store_from_ref(stored)["cursor"][0] == "y"


def test_states_of_assets_never_expire_and_those_of_tasks_do(backend: EntrepotStateStoreBackend, daemon: Any) -> None:
    asset = AssetScope(asset_id=7, name="orders")
    stored = backend.serialize_asset_state_store_to_ref(value=LARGE, key="watermark", scope=asset)
    assert backend.deserialize_asset_state_store_from_ref(stored) == LARGE
    backend.set(task(), "k", json.dumps(LARGE))
    with entrepot.connect(daemon.address, scope="states") as store:
        seconds = {each.session: each.ttl_seconds for each in store.sessions() if each.session}
    assert seconds == {"airflow-state/asset/orders": 0, "airflow-state/etl/run%2F1/load/-1": 30 * 86_400}


def test_deleting_and_clearing(backend: EntrepotStateStoreBackend) -> None:
    for index in (0, 1):
        backend.set(task(index), "a", "1")
        asyncio.run(backend.aset(task(index), "b", "2"))
    backend.set(task(0, "run/2"), "a", "3")
    backend.delete(task(0), "a")
    backend.delete(task(0), "never written")
    assert (backend.get(task(0), "a"), asyncio.run(backend.aget(task(0), "b"))) == (None, "2")
    backend.clear(task(0))
    assert (backend.get(task(0), "b"), backend.get(task(1), "a")) == (None, "1")
    backend.clear(task(0), all_map_indices=True)
    assert (backend.get(task(1), "a"), backend.get(task(0, "run/2"), "a")) == (None, "3")


def test_a_lost_or_damaged_state_is_an_error(backend: EntrepotStateStoreBackend) -> None:
    stored = backend.serialize_task_state_store_to_ref(value=LARGE, key="k", scope=task())
    backend.clear(task())
    with pytest.raises(ObjectLost, match="the state 'k' of session 'airflow-state/etl/run%2F1/load/-1' is no longer"):
        backend.deserialize_task_state_store_from_ref(stored)
    with pytest.raises(InvalidReference, match="is damaged"):
        backend.deserialize_task_state_store_from_ref(f"{MARK}[")
