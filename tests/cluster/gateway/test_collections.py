"""Collections whose members are on several hosts: built there, sealed from any of them, and read near the data."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.errors import InvalidArgument, ObjectExists, ObjectLost, ObjectNotFound, StoreUnavailable, Timeout
from entrepot_io.collections.block_shuffle import BlockShuffle
from entrepot_io.collections.fetch_ahead import FetchAhead

pytestmark = pytest.mark.timeout(180)

LENGTH = 40_000  # of each member: 320 kB


def part(number: int, length: int = LENGTH) -> Any:
    """A member."""
    return np.full(length, number)


def put(host: Any, name: str, *indexes: int) -> None:
    """Put members on a host."""
    builder = host.store.collection(name)
    for index in indexes:
        builder.put(part(index), index=index)


def first_numbers(collection: entrepot.Collection) -> list[int]:
    """Read all members."""
    return [int(member[0]) for member in collection]


def built(hosts: Any, name: str, count: int = 6) -> entrepot.Collection:
    """A collection with its members on the first two hosts in turn, sealed on the third."""
    a, b, c = hosts
    put(a, name, *range(0, count, 2))
    put(b, name, *range(1, count, 2))
    sealed: entrepot.Collection = c.store.collection(name).seal(count)
    return sealed


def here(host: Any, collection: entrepot.Collection) -> list[int]:
    """Positions of the members that are in a host's store."""
    return [position for position, oid in enumerate(collection.ids) if host.store.exists(oid)]


# --- building


def test_members_of_two_hosts_are_sealed_on_a_third(shared_hosts: Any) -> None:
    a, b, c = shared_hosts
    put(a, "built", 0, 2)
    put(b, "built", 1, 3)
    sealed = c.store.collection("built").seal()
    assert here(c, sealed) == []  # only their descriptions have travelled
    assert sealed.sizes == [8 * LENGTH] * 4
    assert sealed.row_counts == [LENGTH] * 4
    for host in (a, b, c):  # at once: nobody has to wait for a publication
        read = host.store.get_by_name("built")
        assert read == sealed
        assert first_numbers(read) == [0, 1, 2, 3]
    assert a.store.collection("built").seal(4) == sealed  # again, elsewhere
    with pytest.raises(ObjectExists, match="sealed"):
        b.store.collection("built").put(part(9), index=9)


def test_missing_members_are_named_and_waited_for(shared_hosts: Any) -> None:
    a, b, c = shared_hosts
    put(a, "waiting", 0, 1)
    put(b, "waiting", 4)
    with pytest.raises(ObjectNotFound, match="lacks 2 of 5 members, at index 2, 3"):
        c.store.collection("waiting").seal()
    with pytest.raises(Timeout, match="lacks 2 of 5 members"):
        c.store.collection("waiting").seal(5, timeout=0.1)
    sealed: list[entrepot.Collection] = []
    sealer = threading.Thread(target=lambda: sealed.append(c.store.collection("waiting").seal(5, timeout=60)))
    sealer.start()
    put(b, "waiting", 2)
    put(c, "waiting", 3)
    sealer.join(90)
    assert first_numbers(sealed[0]) == [0, 1, 2, 3, 4]


def test_a_rerun_on_another_host_counts_once_if_it_is_the_same(shared_hosts: Any) -> None:
    a, b, c = shared_hosts
    put(a, "rerun", 0, 1)
    put(b, "rerun", 1, 2)
    put(c, "rerun", 2)
    sealed = c.store.collection("rerun").seal()
    assert [{place.host for place in places} for places in sealed.places()] == [{"a"}, {"a", "b"}, {"b", "c"}]
    assert first_numbers(sealed) == [0, 1, 2]


def test_different_values_at_one_index_are_refused(shared_hosts: Any) -> None:
    a, b, c = shared_hosts
    for number, host in enumerate((a, b)):
        host.store.collection("different").append(part(number))
    with pytest.raises(ObjectExists, match=r"different values at index 0 .* on hosts a and b"):
        c.store.collection("different").seal()
    assert c.store.collection("different").discard() == 2
    assert a.store.collection("different").indexes() == b.store.collection("different").indexes() == []
    built(shared_hosts, "different", 2)


def test_a_collection_of_other_members_is_refused(shared_hosts: Any) -> None:
    a, _, c = shared_hosts
    put(a, "other", 0)
    kept = a.store.collection("other").seal()
    put(c, "other", 1)
    with pytest.raises(ObjectExists, match="already sealed with other members in the store of host"):
        c.store.collection("other").seal(2)
    assert not c.store.exists(kept.id)
    assert a.store.get(kept.id) == kept


def test_a_member_that_is_replaced_elsewhere_while_it_is_sealed_counts(
    shared_hosts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _, c = shared_hosts
    put(a, "replaced", 0, 1)
    builder = c.store.collection("replaced")
    gathered = builder._gather_members
    done: list[entrepot.ObjectID] = []

    def then_replaced(*arguments: Any) -> Any:
        members = gathered(*arguments)
        if not done:
            done.append(a.store.collection("replaced").put(part(7, LENGTH + 1), index=1, replace=True))
        return members

    monkeypatch.setattr(builder, "_gather_members", then_replaced)
    sealed = builder.seal(2)
    assert sealed.row_counts == [LENGTH, LENGTH + 1]
    assert first_numbers(sealed) == [0, 7]


def test_who_replaces_a_member_of_what_another_host_just_sealed_is_told(
    shared_hosts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = shared_hosts
    put(a, "reopened", 0)
    put(b, "reopened", 1)
    builder = a.store.collection("reopened")
    refuse = builder._refuse_if_sealed

    def then_sealed(*arguments: Any) -> None:
        refuse(*arguments)
        c.store.collection("reopened").seal(2)

    monkeypatch.setattr(builder, "_refuse_if_sealed", then_sealed)
    with pytest.raises(ObjectExists, match="member 0 was being replaced"):
        builder.put(part(8), index=0, replace=True)
    assert not any(host.store.exists(builder.id) for host in shared_hosts)
    assert first_numbers(b.store.collection("reopened").seal(2)) == [8, 1]


# --- where members are


def test_members_are_read_where_they_are(shared_hosts: Any) -> None:
    a, b, c = shared_hosts
    sealed = built(shared_hosts, "near")
    assert [[place.host for place in places] for places in sealed.places()] == [["a"], ["b"]] * 3
    workers = {"w1": "a", "w2": b.store.instance_id}
    assigned = sealed.assign(workers)
    assert [list(view.positions) for view in assigned.values()] == [[0, 2, 4], [1, 3, 5]]
    assert {key: list(view.positions) for key, view in sealed.assign(["a", "b"]).items()} == {
        "a": [0, 2, 4],
        "b": [1, 3, 5],
    }
    for worker, host in (("w1", a), ("w2", b)):
        oid = c.store.put(assigned[worker])  # as a reference, which each host's store resolves
        c.store.publish(oid)
        view = host.store.get(oid)
        assert view.local() == view == assigned[worker]
    assert here(a, sealed) == [0, 2, 4]
    assert here(b, sealed) == [1, 3, 5]
    assert len(sealed.local()) == 0
    spread = sealed.assign({str(number): "c" for number in range(3)})  # nobody has any: all have to move
    assert [len(view) for view in spread.values()] == [2, 2, 2]
    for wrong in ({}, [], "a", {"w": 3}, ["a", "a"]):
        with pytest.raises(InvalidArgument):
            sealed.assign(wrong)  # type: ignore[arg-type]


def test_a_selection_is_a_collection_of_its_members(shared_hosts: Any) -> None:
    sealed = built(shared_hosts, "selected")
    chosen = sealed.select([4, 0, 1, -1])
    assert first_numbers(chosen) == [4, 0, 1, 5]
    assert chosen.row_counts == [LENGTH] * 4
    assert first_numbers(chosen[1:3]) == [0, 1]
    assert sealed.select(range(2, 4)) == sealed[2:4]
    copied = pickle.loads(pickle.dumps(chosen))
    assert copied == chosen
    assert len(pickle.dumps(sealed.select([0] * 3 + [2] * 3))) < 1000
    with pytest.raises(IndexError):
        sealed.select([6])


# --- fetching ahead


def test_prefetch_returns_and_the_members_come(shared_hosts: Any, wait_until: Callable[..., None]) -> None:
    _, _, c = shared_hosts
    sealed = built(shared_hosts, "prefetched")
    sealed[:4].prefetch(max_bytes=2 * 8 * LENGTH)
    wait_until(lambda: here(c, sealed) == [0, 1], "two members to be fetched")
    sealed.prefetch()
    wait_until(lambda: here(c, sealed) == [0, 1, 2, 3, 4, 5], "all members to be fetched")
    assert sealed.local() == sealed
    assert {place.host for place in sealed.places()[1]} >= {"b", "c"}


def test_the_next_member_is_fetched_while_one_is_in_hand(shared_hosts: Any, wait_until: Callable[..., None]) -> None:
    _, _, c = shared_hosts
    sealed = built(shared_hosts, "ahead")
    numbers = []
    for position, member in enumerate(sealed):
        numbers.append(int(member[0]))
        wait_until(lambda after=position + 1: after in (*here(c, sealed), 6), "the next member to be here")
    assert numbers == [0, 1, 2, 3, 4, 5]


def test_what_is_fetched_ahead_is_bounded(shared_hosts: Any, wait_until: Callable[..., None]) -> None:
    _, _, c = shared_hosts
    sealed = built(shared_hosts, "bounded")
    iteration = sealed.iterate(prefetch=3, prefetch_bytes=2 * 8 * LENGTH)
    next(iteration)
    wait_until(lambda: here(c, sealed) == [0, 1, 2], "two members to be fetched ahead")
    next(iteration)
    wait_until(lambda: here(c, sealed) == [0, 1, 2, 3], "one more")
    del iteration


def test_a_reader_in_order_has_its_next_members_fetched(shared_hosts: Any, wait_until: Callable[..., None]) -> None:
    _, _, c = shared_hosts
    sealed = built(shared_hosts, "in order", 8)
    ahead = FetchAhead(sealed)
    ahead.reading(0)
    wait_until(lambda: here(c, sealed) == [1, 2], "the two after the first")
    ahead.reading(3)  # another step: no order to go by yet
    ahead.reading(6)
    assert not {4, 5, 7} & set(here(c, sealed))
    shuffled = BlockShuffle([2] * 8, blocks=2, seed=1, announce=sealed.fetch_ahead)
    rows = iter(shuffled)
    opened = {row // 2 for row in [next(rows) for _ in range(4)]}
    wait_until(lambda: opened <= set(here(c, sealed)) and len(here(c, sealed)) >= 4, "two blocks of members")
    rest = {row // 2 for row in [next(rows) for _ in range(4)]}
    wait_until(lambda: rest <= set(here(c, sealed)), "the second block of members")


def test_an_error_is_raised_at_the_member_that_failed(shared_hosts: Any) -> None:
    _, b, _ = shared_hosts
    sealed = built(shared_hosts, "failing")
    b.store.delete(sealed.ids[3])
    members = iter(sealed)
    assert [int(next(members)[0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ObjectLost, match="member 3 "):
        next(members)


# --- faults


@pytest.mark.slow
def test_a_collection_outlives_gateways_and_the_host_that_sealed_it(
    cluster: Any, wait_until: Callable[..., None]
) -> None:
    a, b, c = [
        cluster.host(name, "--lease-seconds", seconds) for name, seconds in (("a", "60"), ("b", "60"), ("c", "6"))
    ]
    put(a, "outliving", 0)
    put(b, "outliving", 1)
    b.kill_gateway()
    with pytest.raises(ObjectNotFound, match="lacks 1 of 2 members, at index 1; host b did not answer"):
        c.store.collection("outliving").seal(2)
    with pytest.raises(StoreUnavailable, match=r"may have members on hosts that .*; host b did not answer"):
        c.store.collection("outliving").seal()
    with pytest.raises(StoreUnavailable, match=r"discard it again\. host b"):
        c.store.collection("another").discard()
    b.start_gateway()
    sealed = c.store.collection("outliving").seal(2, timeout=60)
    b.kill_gateway()
    c.kill()
    b.start_gateway()  # it publishes the same again, without being asked
    wait_until(lambda: cluster.instances() == {"a": True, "b": True, "c": False}, "the host to be lost")
    wait_until(lambda: [place.is_live for place in a.store.locate(sealed.ids[1])] == [True], "the member to be found")
    assert first_numbers(a.store.get_by_name("outliving")) == [0, 1]
    assert first_numbers(b.store.get_by_name("outliving")) == [0, 1]


@pytest.mark.slow
def test_without_a_gateway_only_this_host_counts(daemon: Any) -> None:
    with entrepot.connect(daemon.address) as store:
        builder = store.collection("alone")
        for index in range(4):
            builder.put(part(index), index=index)
        sealed = builder.seal()
        sealed.prefetch()
        sealed.fetch_ahead([0, 1, 2])
        assert sealed.local() == sealed
        assert [[place.instance for place in places] for places in sealed.places()] == [[store.instance_id]] * 4
        assert [len(view) for view in sealed.assign({"one": store.host, "two": store.instance_id}).values()] == [2, 2]
        store.delete(sealed.ids[2])
        assert list(sealed.local().positions) == [0, 1, 3]
        assert sealed.places()[2] == []
        assert builder.discard() == 3
