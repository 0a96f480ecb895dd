"""Many objects in one call: published, fetched by their references, and prefetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from entrepot.errors import ObjectLost, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.origins import Life, copy_of
from entrepot_io.reference import Reference
from entrepot_io.values import get_values, prefetch_values, put_value

pytestmark = pytest.mark.timeout(180)


def references(hosts: Any, name: str, count: int = 6) -> list[Reference]:
    """References to values of the first two hosts in turn, small ones and large ones."""
    return [
        put_value(hosts[number % 2].store, f"{name} {number}", np.full(10 + number * 50_000, number))
        for number in range(count)
    ]


def is_copied(host: Any, reference: Reference) -> bool:
    """Whether a host has a copy of what a reference names."""
    return copy_of(host.store, reference.id, Life(reference.instance, reference.generation)) is not None


def test_several_objects_are_published_at_once(shared_hosts: Any) -> None:
    a, b, _ = shared_hosts
    oids = [a.store.put(number) for number in range(50)]
    a.store.publish(*oids)
    assert b.store.get_many(oids) == list(range(50))
    a.store.publish()
    unpublished, missing = a.store.put("x"), ObjectID.random()
    with pytest.raises(ObjectNotFound, match=str(missing)):
        a.store.publish(unpublished, missing)
    with pytest.raises(ObjectNotFound):
        b.store.get(unpublished)


def test_references_of_several_hosts_are_read_together(shared_hosts: Any) -> None:
    _, _, c = shared_hosts
    wanted = references(shared_hosts, "read")
    values = get_values([*wanted, wanted[0]], address=c.address)
    assert [int(value[0]) for value in values] == [0, 1, 2, 3, 4, 5, 0]
    assert all(is_copied(c, reference) for reference in wanted)


def test_each_reference_means_its_own_life(shared_hosts: Any) -> None:
    a, b, c = shared_hosts
    first = put_value(a.store, "lives", "of host a")
    second = put_value(b.store, "lives", "of host b")
    assert first.id == second.id
    put_value(c.store, "lives", "of host c")
    assert get_values([first, second, first], address=c.address) == ["of host a", "of host b", "of host a"]
    assert c.store.get(first.id) == "of host c"
    third = put_value(a.store, "lives", "again of host a")
    other = references(shared_hosts, "beside lives", 2)
    assert get_values([third, *other], address=c.address)[0] == "again of host a"
    gone = replace(third, generation=third.generation + 5)
    with pytest.raises(ObjectLost, match="could not be fetched"):
        get_values([*other, gone], address=c.address)


def test_copies_elsewhere_are_as_good(shared_hosts: Any) -> None:
    a, b, c = shared_hosts
    wanted = [put_value(a.store, f"copied {number}", [number]) for number in range(3)]
    assert get_values(wanted, address=b.address) == [[0], [1], [2]]
    b.store.publish(*(reference.id for reference in wanted))
    for reference in wanted:
        a.store.delete(reference.id)
    assert get_values(wanted, address=c.address) == [[0], [1], [2]]


def test_inputs_are_fetched_before_they_are_read(shared_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, _, c = shared_hosts
    wanted = references(shared_hosts, "inputs")
    local = put_value(c.store, "local input", "here")
    lost = put_value(a.store, "lost input", "gone")
    a.store.delete(lost.id)
    prefetch_values([*wanted, local, lost], address=c.address)
    wait_until(lambda: all(is_copied(c, reference) for reference in wanted), "the inputs to be here")
    assert not is_copied(c, lost)
    assert int(get_values(wanted, address=c.address)[3][0]) == 3


def test_objects_given_by_id_are_fetched_before_they_are_read(
    shared_hosts: Any, wait_until: Callable[..., None]
) -> None:
    a, b, _ = shared_hosts
    oids = [a.store.put(np.full(50_000, number)) for number in range(3)]
    a.store.publish(*oids)
    b.store.prefetch(*oids, ObjectID.random())
    wait_until(lambda: all(b.store.exists(oid) for oid in oids), "the objects to be here")
