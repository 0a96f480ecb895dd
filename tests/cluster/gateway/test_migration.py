"""Objects that are moved to another host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from entrepot.errors import InvalidArgument, ObjectExists, ObjectNotFound, StoreFull, StoreUnavailable
from entrepot_io.values import get_value, put_value

pytestmark = pytest.mark.timeout(180)


def test_an_object_moves_with_its_name_and_its_references(two_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = two_hosts
    reference = put_value(a.store, "moved", np.arange(100_000))
    name = a.store.info(reference.id).names[0]
    a.store.migrate(reference.id, "b")
    assert not a.store.exists(reference.id)
    assert b.store.resolve(name, remote=False) == reference.id
    wait_until(lambda: [p.host for p in a.store.locate(reference.id)] == ["b"], "the new place to be published")
    assert get_value(reference, address=b.address)[-1] == 99_999
    assert get_value(reference, address=a.address)[-1] == 99_999  # it comes back as a copy


def test_a_collection_moves_with_its_members(two_hosts: Any) -> None:
    a, b = two_hosts
    builder = a.store.collection("parts")
    for index in range(5):
        builder.put(np.full(10_000, index), index=index)
    oid = builder.seal().id
    a.store.migrate(oid, "b")
    assert a.store.status()["objects"] == 0
    assert [int(part[0]) for part in b.store.get(oid, remote=False)] == list(range(5))


def test_what_does_not_fit_there_stays_here(cluster: Any) -> None:
    a, _ = cluster.host("a", size="256MiB"), cluster.host("b", size="64MiB")
    oid = a.store.put(np.zeros(12_000_000), name="large")
    with pytest.raises(StoreFull):
        a.store.migrate(oid, "b")
    assert a.store.get_by_name("large", remote=False).shape == (12_000_000,)


def test_another_object_of_that_id_there_is_not_touched(two_hosts: Any) -> None:
    a, b = two_hosts
    oid = a.store.put("of a", id=a.store.derive("both"))
    b.store.put("of b", id=oid)
    with pytest.raises(ObjectExists, match="delete one of the two"):
        a.store.migrate(oid, "b")
    assert (a.store.get(oid), b.store.get(oid)) == ("of a", "of b")


def test_wrong_targets_are_named(two_hosts: Any) -> None:
    a, _ = two_hosts
    oid = a.store.put("x")
    with pytest.raises(StoreUnavailable, match=r"no store of host or instance 'nowhere' is live.*there are: a, b"):
        a.store.migrate(oid, "nowhere")
    with pytest.raises(InvalidArgument, match="is this store"):
        a.store.migrate(oid, "a")
    with pytest.raises(ObjectNotFound):
        a.store.migrate(a.store.derive("nothing"), "b")
    assert a.store.get(oid) == "x"
