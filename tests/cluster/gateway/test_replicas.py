"""Sessions whose objects are kept on several hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.errors import InvalidArgument, Timeout

pytestmark = pytest.mark.timeout(180)

WATCHDOG = 60.0


def hosts_of(store: entrepot.Store, oid: entrepot.ObjectID) -> set[str]:
    return {place.host for place in store.locate(oid) if place.is_live}


def replicated(host: Any, session: str = "run", replicas: int = 2) -> entrepot.Store:
    return entrepot.connect(host.address, session=session, cluster=True, replicas=replicas)


def test_objects_are_on_as_many_hosts_as_there_are_and_as_their_session_asks_for(
    cluster: Any, wait_until: Callable[..., None]
) -> None:
    hosts = {name: cluster.host(name) for name in "abc"}
    a = hosts["a"]
    with replicated(a) as store:
        large = store.put(np.arange(500_000), name="large")
        small = [store.put(index) for index in range(20)]
        store.publish(large, wait_for_replicas=True, timeout=WATCHDOG)
        for oid in small:
            store.publish(oid, wait_for_replicas=True, timeout=WATCHDOG)
        placed = [hosts_of(store, oid) for oid in [large, *small]]
        assert all("a" in where and len(where) == 2 for where in placed)
        (other,) = hosts_of(store, large) - {"a"}
        copies = hosts[other].store.session("run")
        assert copies.get(large, remote=False)[-1] == 499_999
        wait_until(lambda: store.replica_status() == (21, 0, 0), "the status")
        with replicated(a, "many", replicas=4) as many:
            wide = many.put("value")
            with pytest.raises(Timeout, match=r"of 4 hosts \(a.*the cluster has no hosts for 1 more"):
                many.publish(wide, wait_for_replicas=True, timeout=3)
            wait_until(lambda: hosts_of(store, wide) == {"a", "b", "c"}, "as many copies as there are hosts")
            wait_until(lambda: store.replica_status() == (22, 0, 1), "the status to say what is missing")
        a.kill()  # and with it the originals
        reader = hosts["b"].store.session("run")
        assert reader.get_by_name("large")[-1] == 499_999
        assert [reader.get(oid) for oid in small] == list(range(20))


@pytest.mark.exhaustive
def test_a_copy_that_is_lost_is_made_again_elsewhere(cluster: Any, wait_until: Callable[..., None]) -> None:
    hosts = {name: cluster.host(name) for name in "abc"}
    with replicated(hosts["a"]) as store:
        oid = store.put(np.arange(100_000))
        store.publish(oid, wait_for_replicas=True, timeout=WATCHDOG)
        (second,) = hosts_of(store, oid) - {"a"}
        (third,) = set("bc") - {second}
        hosts[second].kill()
        wait_until(lambda: hosts_of(store, oid) == {"a", third}, "another copy")
    hosts["a"].kill()
    late = cluster.host("d")
    # The copy has taken the place of the original, and makes sure that there are two.
    wait_until(lambda: hosts_of(late.store, oid) == {third, "d"}, "the copy to be copied")
    assert late.store.session("run").get(oid, remote=False)[-1] == 99_999


def test_copies_go_with_the_original_and_readers_keep_theirs(cluster: Any, wait_until: Callable[..., None]) -> None:
    a, b = cluster.host("a"), cluster.host("b")
    with replicated(a) as store:
        oid = store.put("first", id=store.derive("key"))
        store.publish(oid, wait_for_replicas=True, timeout=WATCHDOG)
        copies = b.store.session("run")
        assert copies.get(oid, remote=False) == "first"
        store.put("second", id=oid, replace=True)
        store.publish(oid, wait_for_replicas=True, timeout=WATCHDOG)
        wait_until(lambda: copies.exists(oid) and copies.get(oid, remote=False) == "second", "the copy to be replaced")
        read = a.store.put(np.arange(100_000))
        a.store.publish(read)
        assert b.store.get(read)[-1] == 99_999
        received = b.store.info(read).generation
        with replicated(a, session="") as own:  # what the reader has fetched counts as a copy
            own.publish(read, wait_for_replicas=True, timeout=WATCHDOG)
        a.store.delete(read)
        store.delete(oid)
        wait_until(lambda: not copies.exists(oid), "the copy to be deleted")
        assert b.store.get(read, remote=False)[-1] == 99_999
        assert b.store.info(read).generation == received


def test_what_is_deleted_without_a_gateway_takes_its_copies_with_it(
    cluster: Any, wait_until: Callable[..., None]
) -> None:
    a, b = cluster.host("a"), cluster.host("b")
    with replicated(a) as store:
        deleted, stays = store.put("deleted"), store.put("stays")
        replaced = store.put("first", id=store.derive("key"))
        with replicated(a, "ends") as ending:
            ended = ending.put("ends with its session")
            for each, oid in ((store, deleted), (store, replaced), (store, stays), (ending, ended)):
                each.publish(oid, wait_for_replicas=True, timeout=WATCHDOG)
        copies, others = b.store.session("run"), b.store.session("ends")
        assert others.get(ended, remote=False) == "ends with its session"
        a.kill_gateway()
        store.delete(deleted)
        store.put("second", id=replaced, replace=True)
        a.store.remove_session("ends")
        wait_until(lambda: not cluster.instances()["a"], "the lease to end")
        a.start_gateway()
        wait_until(lambda: not copies.exists(deleted), "the copy of what was deleted to go")
        wait_until(lambda: not others.exists(ended), "the copy of what ended with its session to go")
        wait_until(
            lambda: copies.exists(replaced) and copies.get(replaced, remote=False) == "second",
            "the copy to be replaced",
        )
        assert copies.get(stays, remote=False) == "stays"


@pytest.mark.exhaustive
def test_another_host_takes_what_does_not_fit(cluster: Any, wait_until: Callable[..., None]) -> None:
    a = cluster.host("a", size="256MiB")
    cluster.host("small", size="64MiB")
    with replicated(a) as store:
        oid = store.put(np.zeros(12_000_000))
        store.publish(oid)
        wait_until(lambda: "does not take copies" in a.log, "the refusal")
        assert hosts_of(store, oid) == {"a"}
        cluster.host("large", size="256MiB")
        store.publish(oid, wait_for_replicas=True, timeout=WATCHDOG)
        assert hosts_of(store, oid) == {"a", "large"}


@pytest.mark.exhaustive
def test_the_gateway_that_made_copies_is_killed(two_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = two_hosts
    with replicated(a) as store:
        oids = [store.put(np.full(200_000, index)) for index in range(20)]
        wait_until(lambda: b.store.status()["objects"] > 0, "copies to be made")
        a.kill_gateway()
        a.start_gateway()
        b.kill_gateway()
        b.start_gateway()
        for oid in oids:
            store.publish(oid, wait_for_replicas=True, timeout=WATCHDOG)
        copies = b.store.session("run")
        assert [int(copies.get(oid, remote=False)[0]) for oid in oids] == list(range(20))


def test_what_cannot_be_asked_for_is_refused(daemon: Any) -> None:
    with pytest.raises(InvalidArgument, match="needs cluster=True"):
        entrepot.connect(daemon.address, replicas=2)
    wrongs: list[Any] = [0, -1, 1.5, 101, "2"]
    for wrong in wrongs:
        with pytest.raises(InvalidArgument, match="replicas must be an integer"):
            entrepot.connect(daemon.address, cluster=True, replicas=wrong)
    began = time.monotonic()
    with entrepot.connect(daemon.address, session="s", cluster=True, replicas=2) as store:
        with pytest.raises(entrepot.errors.StoreUnavailable, match="has no gateway"):
            store.publish(store.put(1), wait_for_replicas=True)
        with pytest.raises(entrepot.errors.StoreUnavailable, match="has no gateway"):
            store.replica_status()
    assert time.monotonic() - began < 60
