"""What referred to a lost host's objects is marked, on other hosts, and unmarked when there is another copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.cli import main
from entrepot.errors import ObjectLost

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def lost_ids(store: entrepot.Store, oid: entrepot.ObjectID) -> set[entrepot.ObjectID]:
    return {each.id for each in store.info(oid).lost}


@pytest.fixture
def three_hosts(cluster: Any) -> tuple[Any, Any, Any]:
    return cluster.host("a"), cluster.host("b"), cluster.host("c")


def test_what_refers_to_a_lost_host_is_marked(
    three_hosts: Any, cluster: Any, wait_until: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = three_hosts
    for index, host in enumerate((a, b, a, b)):
        host.store.collection("parts").put(np.full(1000, index), index=index)
    parts = b.store.collection("parts").seal(4)
    on_a, on_b = parts.ids[0::2], parts.ids[1::2]
    c.store.put(b.store.get(parts.ids[0]), id=parts.ids[0])  # another copy of one of them, by itself
    copied = b.store.get(parts.ids[0], remote=True)
    assert copied[0] == 0
    long = b.store.put({"text": list(range(10_000)), "all": parts})  # its document is in a buffer
    nested = b.store.put({"all": parts, "other": [parts[1:2]]}, name="nested")
    fine = b.store.put([parts[1:2], parts[3:4]], name="fine")
    copied_only = b.store.put(parts[:2], name="copied")
    plain = b.store.put("plain")
    elsewhere = c.store.put(c.store.get_by_name("parts"), name="elsewhere")  # the collection is a copy on this host
    only_there = c.store.put({"far": parts}, name="far")
    lost_name = a.store.put("gone", name="gone")
    for host, oid in ((a, lost_name), (b, nested), (b, parts.id)):
        host.store.publish(oid)
    wait_until(lambda: len(c.store.locate(parts.ids[2])) == 1, "the members to be published")
    assert not b.store.info(parts.id).lost
    a.kill()
    wait_until(lambda: lost_ids(b.store, nested) == {on_a[1]}, "the mark of a value that refers to a collection")
    wait_until(lambda: lost_ids(b.store, parts.id) == {on_a[1]}, "the mark of a collection")
    wait_until(lambda: lost_ids(c.store, elsewhere) == {on_a[1]}, "the mark of a reference to a copy")
    wait_until(lambda: lost_ids(c.store, only_there) == {on_a[1]}, "the mark of a reference")
    (lost,) = b.store.info(nested).lost
    assert (lost.host, lost.instance) == ("a", a.store.instance_id)
    assert lost.since > 0
    for oid in (fine, copied_only, plain, on_b[0]):
        assert not b.store.info(oid).lost
    wait_until(lambda: lost_ids(b.store, long) == {on_a[1]}, "the mark of a long value")
    assert {info.id for info in b.store.list() if info.lost} == {parts.id, nested, long}
    places = b.store.get(parts.id).places()
    assert [any(place.is_live for place in of_member) for of_member in places] == [True, True, False, True]
    # reads say where it was
    says = r"host a \(instance .*, lost since 20"
    reads: list[Callable[[], Any]] = [
        lambda: b.store.get(parts.id)[2],
        lambda: b.store.get_many([on_b[0], on_a[1]]),
        lambda: b.store.get_by_name("gone"),
        lambda: b.store.get(nested)["all"].get(2),
    ]
    for read in reads:
        with pytest.raises(ObjectLost, match=says):
            read()
    # the command line
    assert main(["ls", "--address", b.address, "--json"]) == 0
    listed = {item["id"]: item for item in json.loads(capsys.readouterr().out)}
    assert [each["host"] for each in listed[str(nested)]["lost"]] == ["a"]
    assert listed[str(fine)]["lost"] == []
    assert main(["ls", "--address", b.address]) == 0
    assert "1 on a since 20" in capsys.readouterr().out
    assert main(["info", "nested", "--address", b.address]) == 0
    assert "lost_count" in capsys.readouterr().out
    assert main(["info", str(lost_name), "--address", b.address]) == 1
    assert "was on host a, lost since 20" in capsys.readouterr().err
    # the directory is away: what was marked stays marked, also when the gateway is started meanwhile
    path = Path(cluster.url.removeprefix("embedded://")).parent
    away = path.with_name(f"{path.name}-away")
    path.rename(away)
    try:
        b.kill_gateway()
        assert b.store.info(nested).lost == (lost,)
    finally:
        away.rename(path)
    b.start_gateway()
    assert b.store.info(nested).lost == (lost,)
    # another copy
    c.store.put(np.full(1000, 2), id=on_a[1])
    c.store.publish(on_a[1])
    for store, oid in ((b.store, nested), (b.store, parts.id), (c.store, elsewhere), (c.store, only_there)):
        wait_until(lambda store=store, oid=oid: not store.info(oid).lost, "the mark to go")
    assert b.store.get(nested)["all"][2][0] == 2


def test_an_instance_that_returns_unmarks(two_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = two_hosts
    for index, host in enumerate((a, b)):
        host.store.collection("parts").put([index], index=index)
    parts = b.store.collection("parts").seal(2)
    wait_until(lambda: b.store.locate(parts.ids[0]), "the member to be published")
    a.kill_gateway()
    wait_until(lambda: lost_ids(b.store, parts.id) == {parts.ids[0]}, "the mark")
    a.start_gateway()
    wait_until(lambda: not b.store.info(parts.id).lost, "the mark to go")
    assert b.store.get(parts.id)[0] == [0]
    b.store.delete(parts.id, members=False)
    a.kill_gateway()
