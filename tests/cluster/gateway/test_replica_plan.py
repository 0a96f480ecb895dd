"""Which store has to make copies of an object, and where."""

from __future__ import annotations

import pytest
from entrepot.origins import Life
from entrepot_cluster.directory.model import Instance, Place
from entrepot_cluster.gateway.replica_plan import Duty, copies_of, targets_for

OID = bytes(20)
A, B, C, D = (letter * 32 for letter in "abcd")
LIFE = Life(A, 3)


def instance(identity: str, *, host: str = "", live: bool = True) -> Instance:
    return Instance(identity, host or f"host-{identity[0]}", ("127.0.0.1:1",), 1, 0.0, None if live else 1.0)


def original(*, live: bool = True) -> Place:
    return Place(OID, instance(A, live=live), 3, 10, bytes(8), 1, None)


def copy_at(identity: str, *, live: bool = True, is_primary: bool = False, host: str = "") -> Place:
    return Place(OID, instance(identity, live=live, host=host), 7, 10, bytes(8), 1, LIFE, is_primary)


def duties(places: list[Place], instances: list[Instance]) -> dict[str, Duty]:
    holders = [place.instance.id for place in places if place.instance.live]
    return {own[0]: copies_of(LIFE, places, instances, own, 2).duty for own in holders}


@pytest.mark.parametrize(
    ("places", "first_is_live", "expected"),
    [
        ([original(), copy_at(B)], True, {"a": Duty.KEEP, "b": Duty.NONE}),
        ([original(live=False), copy_at(C), copy_at(B)], False, {"b": Duty.TAKE_OVER, "c": Duty.NONE}),
        ([copy_at(C)], False, {"c": Duty.TAKE_OVER}),  # its store left the cluster
        ([copy_at(B), copy_at(C, is_primary=True)], True, {"b": Duty.NONE, "c": Duty.KEEP}),  # moved
        ([original(), copy_at(B, is_primary=True)], True, {"a": Duty.KEEP, "b": Duty.NONE}),  # lost, and back again
        ([copy_at(B), copy_at(C, is_primary=True, live=False)], True, {"b": Duty.TAKE_OVER}),  # moved, then lost
        ([copy_at(B), copy_at(C)], True, {"b": Duty.NONE, "c": Duty.NONE}),  # the original was deleted
    ],
)
def test_one_store_sees_to_the_copies(places: list[Place], first_is_live: bool, expected: dict[str, Duty]) -> None:
    instances = [instance(A, live=first_is_live), instance(B), instance(C)]
    if places == [copy_at(C)]:
        instances = instances[1:]
    assert duties(places, instances) == expected


def test_copies_are_counted_by_host() -> None:
    instances = [instance(A), instance(B, host="host-a"), instance(C), instance(D, live=False)]
    copies = copies_of(LIFE, [original(), copy_at(B, host="host-a")], instances, A, 3)
    assert (copies.missing, copies.unplaced) == (1, 1)
    newer = Place(OID, instance(C), 9, 10, bytes(8), 2, None)
    assert copies_of(LIFE, [original(), newer], instances, A, 2).missing == 1  # another life of the ID
    assert copies_of(LIFE, [original(), copy_at(C)], instances, A, 2).missing == 0


def test_targets_are_on_hosts_that_have_none() -> None:
    instances = [instance(A), instance(B), instance(C, host="host-b"), instance(D, live=False)]
    targets = targets_for(OID, [instances[0]], instances, lambda _: True)
    assert {target.host for target in targets} == {"host-b"}
    assert len(targets) == 1
    assert targets_for(OID, [instances[0]], instances, lambda each: each.host != "host-b") == []
    orders = {tuple(t.id for t in targets_for(bytes([n]) * 20, [], instances[:2], lambda _: True)) for n in range(16)}
    assert len(orders) == 2  # objects are spread
