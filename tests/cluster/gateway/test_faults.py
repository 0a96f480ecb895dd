"""Gateways, stores and directories that die, stop, or refuse."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from entrepot.errors import DirectoryUnavailable, ObjectLost, ObjectNotFound, StoreUnavailable
from entrepot_cluster.commands import CANNOT_GO_ON
from entrepot_cluster.gateway.timely_exit import LATE
from entrepot_io.values import get_value, put_value
from suspension import suspend

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def test_a_gateway_that_is_killed_costs_nothing(two_hosts: Any) -> None:
    a, b = two_hosts
    oid = a.store.put("value")
    a.store.publish(oid)
    suspend(b.gateway_pid)
    read: list[Any] = []
    reader = threading.Thread(target=lambda: read.append(b.store.get(oid)))
    reader.start()
    b.signal_gateway(signal.SIGKILL)
    b.wait_gateway()
    b.start_gateway()
    reader.join(60)
    assert read == ["value"]


@pytest.mark.exhaustive
def test_a_gateway_that_does_not_respond_is_waited_for_ten_seconds(two_hosts: Any, wait_until: Any) -> None:
    a, b = two_hosts
    oid = a.store.put("value")
    a.store.publish(oid)
    suspend(b.gateway_pid)
    began = time.monotonic()
    with pytest.raises(ObjectNotFound, match="has not responded for 10 s"):
        b.store.get(oid)
    assert time.monotonic() - began < 30
    assert b.store.get(b.store.put("local")) == "local"
    os.kill(b.gateway_pid, signal.SIGCONT)

    def answers() -> bool:
        try:
            return bool(b.store.get(oid) == "value")
        except ObjectNotFound:
            return False

    wait_until(answers, "the gateway to serve again")


@pytest.mark.exhaustive
def test_a_host_that_is_silent_is_asked_once(cluster: Any) -> None:
    a, b = cluster.host("a", "--lease-seconds", "600"), cluster.host("b")
    for value in ("first", "second"):  # the connection of the first one may be open then
        oid = a.store.put(value)
        a.store.publish(oid)
        if value == "first":
            assert b.store.get(oid) == value
    suspend(a.gateway_pid)
    try:
        with pytest.raises(ObjectLost, match="10 s") as caught:
            b.store.get(oid)
    finally:
        os.kill(a.gateway_pid, signal.SIGCONT)
    assert "; " not in str(caught.value), "there is one reason, of one attempt"


def test_without_a_gateway_reads_stay_local_and_say_so(cluster: Any) -> None:
    host = cluster.host("a", gateway=False)
    oid = host.store.put(1)
    assert host.store.get(oid) == 1
    with pytest.raises(StoreUnavailable, match="has no gateway"):
        host.store.locate(oid)
    with pytest.raises(StoreUnavailable, match="has no gateway"):
        host.store.publish(oid)
    with pytest.raises(StoreUnavailable, match="has no gateway"):
        host.store.migrate(oid, "b")
    with pytest.raises(ObjectNotFound, match="no object has the name 'absent'") as caught:
        host.store.get_by_name("absent")
    assert "other stores" not in str(caught.value)
    host.start_gateway()
    host.kill_gateway()
    with pytest.raises(
        ObjectNotFound, match=r"'absent'.* other stores could not be asked: the store's gateway .* ended"
    ):
        host.store.get_by_name("absent")


def test_a_lost_instance_is_named_with_the_time(two_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = two_hosts
    reference = put_value(a.store, "lost", "value")
    a.store.publish(reference.id)
    assert b.store.locate(reference.id)[0].is_live
    a.kill()
    killed_at = time.monotonic()
    wait_until(lambda: not b.store.locate(reference.id)[0].is_live, "the lost instance to be noticed")
    assert time.monotonic() - killed_at < 20  # a lease of two seconds, and at most two more, on a busy machine
    with pytest.raises(ObjectLost, match=r"host a \(instance .*, lost since 20"):
        b.store.get(reference.id)
    with pytest.raises(ObjectLost, match=r"host a .*lost since 20"):
        get_value(reference, address=b.address)
    (place,) = b.store.locate(reference.id)
    assert not place.is_live
    assert place.lost_since > 0


def test_a_gateway_that_leaves_takes_its_places_with_it(
    two_hosts: Any, cluster: Any, wait_until: Callable[..., None]
) -> None:
    a, b = two_hosts
    oid = a.store.put("value", name="named")
    a.store.publish(oid)
    a.signal_gateway(signal.SIGTERM)
    assert a.wait_gateway() == 0
    assert cluster.instances() == {"b": True}
    wait_until(lambda: b.store.locate(oid) == [], "the other gateway to see it")
    with pytest.raises(ObjectNotFound):
        b.store.get(oid)
    a.start_gateway()
    assert b.store.get_by_name("named", timeout=30) == "value"


def test_the_daemon_is_killed_and_the_gateway_serves_the_next_one(two_hosts: Any, wait_until: Any) -> None:
    a, b = two_hosts
    oid = a.store.put(np.arange(100_000), name="kept")
    a.store.publish(oid)
    for host in (a, b):
        pid = host.store.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda host=host, pid=pid: host.store.status()["pid"] != pid, "the daemon to be restarted")
    assert b.store.get(oid, timeout=30)[-1] == 99_999


def test_the_store_is_replaced_and_the_gateway_ends(two_hosts: Any) -> None:
    a, _ = two_hosts
    a.daemon.kill(a.store)
    assert a.wait_gateway() == 1
    assert "the store" in a.log


def test_a_store_has_one_gateway(two_hosts: Any) -> None:
    a, b = two_hosts
    first = a.gateway_pid
    a.start_gateway(wait=False)
    assert a.wait_gateway() == CANNOT_GO_ON
    assert f"this store has a gateway already: process {first}" in a.log
    oid = a.store.put("value")
    a.store.publish(oid)
    assert b.store.get(oid) == "value"
    os.kill(first, signal.SIGTERM)


def test_a_directory_of_another_cluster_is_refused(cluster: Any) -> None:
    host = cluster.host("a")
    path = cluster.url.removeprefix("embedded://")
    host.signal_gateway(signal.SIGTERM)
    assert host.wait_gateway() == 0
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.rename(path + suffix, path + "2" + suffix)
    other = cluster.host("b", "--cluster", cluster.url + "2", gateway=False)
    other.start_gateway(wait=False)
    assert other.wait_gateway() == CANNOT_GO_ON
    assert "this is the directory of cluster 'test', not of 'test2'" in other.log
    assert host.store.get(host.store.put(1)) == 1


def test_a_directory_that_is_away(two_hosts: Any, cluster: Any, wait_until: Callable[..., None]) -> None:
    a, b = two_hosts
    oid = a.store.put("value", name="named")
    a.store.publish(oid)
    path = Path(cluster.url.removeprefix("embedded://")).parent
    away = path.with_name(f"{path.name}-away")
    path.rename(away)  # the folder: nothing can be opened or created there
    try:
        assert b.store.get(b.store.put("local")) == "local"
        began = time.monotonic()
        with pytest.raises(ObjectNotFound, match="could not be fetched from another one"):
            b.store.get(oid)
        with pytest.raises(ObjectNotFound, match=r"'named'.* other stores could not be asked: the directory"):
            b.store.get_by_name("named")
        with pytest.raises(DirectoryUnavailable):
            b.store.locate(oid)
        assert time.monotonic() - began < 30
    finally:
        away.rename(path)
    wait_until(lambda: cluster.instances() == {"a": True, "b": True}, "both to be registered again")
    assert b.store.get(oid, timeout=60) == "value"


def test_a_directory_that_comes_back_empty_is_filled_again(
    two_hosts: Any, cluster: Any, wait_until: Callable[..., None]
) -> None:
    a, b = two_hosts
    oids = [a.store.put(number, name=f"number {number}") for number in range(50)]
    wait_until(lambda: len(b.store.locate(oids[-1])) == 1, "the objects to be published")
    path = Path(cluster.url.removeprefix("embedded://"))
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            file.unlink()
    wait_until(lambda: cluster.instances() == {"a": True, "b": True}, "both to be registered again")
    assert b.store.get(oids[7], timeout=60) == 7
    assert b.store.get_by_name("number 31", timeout=60) == 31


def test_other_tokens_are_refused(cluster: Any, tmp_path: Path) -> None:
    tokens = []
    for number in range(2):
        tokens.append(tmp_path / f"token{number}")
        tokens[-1].write_text(f"{number}" * 32)
        tokens[-1].chmod(0o600)
    a = cluster.host("a", "--token-file", str(tokens[0]))
    b = cluster.host("b", "--token-file", str(tokens[1]))
    oid = a.store.put("value")
    a.store.publish(oid)
    with pytest.raises(ObjectLost, match="token"):
        b.store.get(oid)
    tokens[1].write_text(tokens[0].read_text())  # it is read again
    assert b.store.get(oid) == "value"


@pytest.mark.exhaustive
def test_a_gateway_leaves_though_its_store_stands_still(two_hosts: Any, cluster: Any) -> None:
    a, _ = two_hosts
    pid = a.store.status()["pid"]
    suspend(pid)
    try:
        a.signal_gateway(signal.SIGTERM)
        assert a.wait_gateway() == LATE
        assert cluster.instances() == {"b": True}
        assert "has not come to its end in 5 s" in a.log
    finally:
        os.kill(pid, signal.SIGCONT)
