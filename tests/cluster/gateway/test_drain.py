"""``entrepot drain``: everything moves to other hosts, or stays where it is."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.cli import main
from entrepot_io.values import get_value, put_value

pytestmark = pytest.mark.timeout(180)


def drained(host: Any, *options: str) -> int:
    return main(["drain", "--address", host.address, *options])


def own_objects(host: Any) -> int:
    count: int = host.store.status()["objects"]
    return count


def test_everything_moves_and_the_store_leaves(
    cluster: Any, capsys: pytest.CaptureFixture[str], wait_until: Callable[..., None]
) -> None:
    a, b, c = (cluster.host(name) for name in "abc")
    reference = put_value(a.store, "named", np.arange(300_000))
    plain = [a.store.put(index) for index in range(150)]
    with a.store.session("run", ttl=600) as run:
        builder = run.collection("parts")
        for index in range(5):
            builder.put(np.full(50_000, index), index=index)
        collection = builder.seal().id
    copied = b.store.put("of b", name="of b")
    b.store.publish(copied)
    assert a.store.get(copied) == "of b"
    stream = a.store.stream("numbers")
    assert drained(a) == 1
    assert "has 1 streams, which connect the processes of one host" in capsys.readouterr().err
    stream.remove()
    assert drained(a, "--timeout", "0s") == 1
    assert "there was no time left to move it" in capsys.readouterr().out
    assert drained(a, "--parallel", "2") == 0
    out = capsys.readouterr().out
    assert "157 objects were moved, and the store has left the cluster" in out
    assert "157 moved" in out
    assert a.wait_gateway() == 0
    assert drained(a) == 1
    assert "this store has no gateway" in capsys.readouterr().err
    assert cluster.instances() == {"b": True, "c": True}
    assert get_value(reference, address=b.address)[-1] == 299_999
    assert [c.store.get(oid) for oid in plain] == list(range(150))
    parts = c.store.session("run").get_by_name("parts")
    assert [int(part[0]) for part in parts] == list(range(5))
    assert c.store.session("run").resolve("parts") == collection
    assert a.store.exists(copied)  # a copy, which was not needed elsewhere
    assert {info.ttl_seconds for info in c.store.sessions() if info.session == "run"} == {600}


@pytest.mark.exhaustive
def test_what_fits_nowhere_stays_and_is_listed(
    cluster: Any, capsys: pytest.CaptureFixture[str], wait_until: Callable[..., None]
) -> None:
    a = cluster.host("a", size="256MiB")
    b = cluster.host("b", size="64MiB")
    large = a.store.put(np.zeros(12_000_000), name="large")
    small = a.store.put("small")
    taken = a.store.put("of a", name="taken")
    b.store.put("of b", name="taken")
    assert drained(a) == 1
    captured = capsys.readouterr()
    assert "2 objects stay here, so the store stays in the cluster; 1 were moved" in captured.err
    assert f"{large} (large)" in captured.out
    assert "host b: " in captured.out
    assert "its name 'taken' is bound to object" in captured.out
    assert cluster.instances() == {"a": True, "b": True}
    assert a.store.get(large, remote=False).shape == (12_000_000,)
    assert a.store.get(taken, remote=False) == "of a"
    assert b.store.get(small, remote=False) == "small"
    # While it is being drained, and for a while afterwards, it takes no copies.
    with entrepot.connect(b.address, session="run", cluster=True, replicas=2) as store:
        oid = store.put("value")
        store.publish(oid)
        wait_until(lambda: "is being drained" in b.log, "the refusal")
        assert {place.host for place in store.locate(oid)} == {"b"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("victim", ["command", "gateway", "other gateway"])
def test_a_drain_that_is_killed_halfway_goes_on_when_it_is_repeated(
    cluster: Any, victim: str, wait_until: Callable[..., None]
) -> None:
    a, b = cluster.host("a"), cluster.host("b")
    oids = [a.store.put(np.full(100_000, index)) for index in range(60)]
    command = [sys.executable, "-m", "entrepot", "drain", "--address", a.address, "--parallel", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as draining:
        wait_until(lambda: own_objects(b) > 0, "objects to arrive")
        if victim == "command":
            draining.kill()
        else:
            killed = a if victim == "gateway" else b
            killed.kill_gateway()
            killed.start_gateway()
        draining.communicate(timeout=120)
    where = [next(host for host in (a, b) if host.store.exists(oid)) for oid in oids]
    assert [int(host.store.get(oid, remote=False)[0]) for host, oid in zip(where, oids, strict=True)] == list(range(60))
    if cluster.instances().get("a"):
        wait_until(lambda: drained(a) == 0, "the rest to be moved")
    assert [int(b.store.get(oid, remote=False)[0]) for oid in oids] == list(range(60))
    assert not any(a.store.exists(oid) for oid in oids)


@pytest.mark.exhaustive
def test_two_stores_that_are_drained_at_once_keep_every_object(two_hosts: Any) -> None:
    hosts = list(two_hosts)
    oids = [host.store.put(f"of {host.name} {n}") for host in hosts for n in range(50)]
    codes: list[int] = []
    commands = [threading.Thread(target=lambda host=host: codes.append(drained(host))) for host in hosts]
    for command in commands:
        command.start()
    for command in commands:
        command.join(120)
    assert len(codes) == 2
    for oid in oids:
        assert any(host.store.exists(oid) for host in hosts)
