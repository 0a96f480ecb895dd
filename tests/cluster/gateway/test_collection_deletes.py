"""Deleting collections whose members are on several hosts: everywhere, or with an error that names the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from entrepot.errors import ObjectNotFound, StoreUnavailable

pytestmark = pytest.mark.timeout(180)


def built(hosts: tuple[Any, Any, Any], name: str) -> Any:
    """A collection with a member on each host, sealed on the last one."""
    for index, host in enumerate(hosts):
        host.store.collection(name).put(np.full(100, index), index=index)
    return hosts[-1].store.collection(name).seal(3)


def left(host: Any, name: str) -> tuple[bool, list[int]]:
    """What a host has: whether the collection, and which members."""
    builder = host.store.collection(name)
    return builder.sealed, builder.indexes()


def test_what_was_sealed_here_is_deleted_everywhere(shared_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b, c = shared_hosts
    sealed = built(shared_hosts, "everywhere")
    assert left(a, "everywhere") == (True, [0])
    assert len(list(b.store.get_by_name("everywhere"))) == 3  # b has copies of all members
    assert c.store.delete(sealed.id)
    assert [left(host, "everywhere") for host in shared_hosts] == [(False, [])] * 3

    def is_gone() -> bool:
        try:
            a.store.get_by_name("everywhere")
        except ObjectNotFound:
            return True
        return False

    wait_until(is_gone, "its name to be withdrawn")
    assert not c.store.delete(sealed.id)
    assert len(built(shared_hosts, "everywhere")) == 3  # nothing of it stands in the way of another one


def test_a_copy_is_deleted_alone(shared_hosts: Any) -> None:
    _, b, _ = shared_hosts
    sealed = built(shared_hosts, "copied")
    assert b.store.delete(sealed.id)
    assert left(b, "copied") == (False, [])
    assert [left(host, "copied")[0] for host in shared_hosts] == [True, False, True]


def test_without_its_members_it_is_deleted_here(shared_hosts: Any) -> None:
    a, _, c = shared_hosts
    sealed = built(shared_hosts, "members stay")
    assert c.store.delete(sealed.id, members=False)
    assert left(c, "members stay") == (False, [2])
    assert left(a, "members stay") == (True, [0])


def test_another_collection_of_that_name_stays(shared_hosts: Any) -> None:
    a, _, c = shared_hosts
    for host, count in ((c, 1), (a, 2)):
        for index in range(count):
            host.store.collection("two of a name").put(np.full(100, index), index=index)
        host.store.collection("two of a name").seal(count)
    assert c.store.delete(c.store.collection("two of a name").id)
    assert left(c, "two of a name") == (False, [])
    assert left(a, "two of a name") == (True, [0, 1])


def test_a_host_that_does_not_answer_is_named_and_the_next_attempt_completes(cluster: Any) -> None:
    lease = ("--lease-seconds", "60")
    hosts = cluster.host("a", *lease), cluster.host("b", *lease), cluster.host("c", *lease)
    _, b, c = hosts
    sealed, other = built(hosts, "kept"), built(hosts, "discarded")
    b.kill_gateway()
    with pytest.raises(StoreUnavailable, match=r"'kept', or members of it, may still be on hosts .*host b: "):
        c.store.delete(sealed.id)
    assert left(c, "kept") == (True, [2])
    with pytest.raises(StoreUnavailable, match=r"'discarded', or members of it, may still be on hosts .*host b: "):
        c.store.collection("discarded").discard()
    b.start_gateway()
    assert c.store.delete(sealed.id)
    c.store.collection("discarded").discard()
    assert [left(host, name) for host in hosts for name in ("kept", "discarded")] == [(False, [])] * 6
    assert not c.store.exists(other.id)


@pytest.mark.exhaustive
def test_without_its_own_gateway_nothing_is_deleted_in_secret(two_hosts: Any) -> None:
    a, b = two_hosts
    hosts = (b, b, a)
    sealed = built(hosts, "kept")
    a.kill_gateway()
    with pytest.raises(StoreUnavailable, match="the store's gateway"):
        a.store.delete(sealed.id)
    assert a.store.exists(sealed.id)
    with pytest.raises(StoreUnavailable, match="the store's gateway"):
        a.store.collection("kept").discard()
    assert left(a, "kept") == (True, [2])
    a.start_gateway()
    a.store.collection("kept").discard()
    assert left(b, "kept") == (False, [])
