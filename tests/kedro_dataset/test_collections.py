"""A collection passes from node to node like any value: by ID, whole or in part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import entrepot
import pytest
from entrepot_io.connections import close_all
from entrepot_kedro import EntrepotDataset
from kedro.io import DataCatalog
from kedro.pipeline import node, pipeline
from kedro.runner import SequentialRunner, ThreadRunner


@pytest.fixture(autouse=True)
def _environment(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    yield
    close_all()


def _make() -> entrepot.Collection:
    with entrepot.connect(scope="tests", session="orders") as store:
        builder = store.collection("orders")
        for day in range(3):
            builder.put([day, day + 1], index=day)
        return builder.seal()


def _split(orders: entrepot.Collection) -> dict[str, Any]:
    return {"first": orders[:1], "rest": orders[1:]}


def _sum(parts: dict[str, Any]) -> int:
    return sum(sum(member) for part in parts.values() for member in part)


@pytest.mark.parametrize("runner", [SequentialRunner, ThreadRunner])
def test_a_collection_goes_through_a_pipeline(runner: Any) -> None:
    total = EntrepotDataset(name="total", session="kept")
    catalog = DataCatalog(
        {
            "orders": EntrepotDataset(name="orders", session="kept"),
            "parts": EntrepotDataset(name="parts", session="kept"),
            "total": total,
        }
    )
    steps = [node(_make, None, "orders"), node(_split, "orders", "parts"), node(_sum, "parts", "total")]
    runner().run(pipeline(steps), catalog)
    assert total.load() == 9
    orders = EntrepotDataset(name="orders", session="kept").load()
    assert isinstance(orders, entrepot.Collection)
    with entrepot.connect(scope="tests", session="orders") as store:
        assert orders == store.get_by_name("orders")
