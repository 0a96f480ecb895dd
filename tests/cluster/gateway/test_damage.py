"""Bytes that are changed between gateways, and a registration that the directory forgets during a publication."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import entrepot
import numpy as np
import pytest
from entrepot.errors import DirectoryUnavailable, ObjectLost, StoreUnavailable

sys.path.insert(0, str(Path(__file__).parents[1] / "network"))
sys.path.insert(0, str(Path(__file__).parents[1] / "directory/servers"))

from directory_servers import free_port
from entrepot_cluster.directory.directory import Directory
from entrepot_cluster.directory.registration import Registration
from entrepot_cluster.gateway.directory_access import DirectoryAccess
from entrepot_cluster.gateway.object_source import StoreObjects
from entrepot_cluster.gateway.publication import Publication
from entrepot_cluster.gateway.store_snapshot import MIN_FORGOTTEN, StoreSnapshots
from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies
from tcp_relay import TO_CLIENT, TcpRelay

pytestmark = pytest.mark.timeout(180)
SMALL, LARGE = 20_000, 9_000_000


@pytest.fixture
def relayed_hosts(cluster: Any) -> Iterator[tuple[Any, Any, TcpRelay]]:
    """Two hosts, and the relay through which the second one reaches the first."""
    port = free_port()
    with TcpRelay(f"127.0.0.1:{port}") as relay:
        a = cluster.host("a", "--listen", f"127.0.0.1:{port}", "--advertise", relay.address)
        yield a, cluster.host("b"), relay


@pytest.mark.parametrize("nbytes", [SMALL, LARGE], ids=["small", "large"])
def test_bytes_that_were_damaged_are_sent_again(relayed_hosts: tuple[Any, Any, TcpRelay], nbytes: int) -> None:
    a, b, relay = relayed_hosts
    first = a.store.put(np.full(SMALL, 1, dtype=np.uint8))
    oid = a.store.put(np.full(nbytes, 7, dtype=np.uint8))
    for each in (first, oid):
        a.store.publish(each)
    b.store.get(first)  # connects
    relay.corrupt(TO_CLIENT, nbytes // 2)
    assert (b.store.get(oid) == 7).all()
    assert "arrived damaged, and are fetched again" in b.log
    moved = a.store.put(np.full(nbytes, 8, dtype=np.uint8))
    relay.corrupt(TO_CLIENT, nbytes // 2)
    a.store.migrate(moved, "b")
    assert (b.store.get(moved, remote=False) == 8).all()


@pytest.mark.parametrize("nbytes", [SMALL, pytest.param(LARGE, marks=pytest.mark.exhaustive)], ids=["small", "large"])
@pytest.mark.parametrize("home", ["reached through the relay", "reaches through the relay"])
def test_chunks_of_streams_that_were_damaged_are_sent_again(
    relayed_hosts: tuple[Any, Any, TcpRelay], nbytes: int, home: str
) -> None:
    a, b, relay = relayed_hosts
    at_home, elsewhere = (a, b) if home == "reached through the relay" else (b, a)
    opened = at_home.store.stream("damaged", cluster=True)
    with ExitStack() as ends:
        if at_home is a:  # b's gateway fetches chunks for its reader
            writer = ends.enter_context(opened.writer())
            reader = ends.enter_context(elsewhere.store.stream("damaged", cluster=True).reader("group"))
        else:  # b's gateway fetches chunks of a's writer
            writer = ends.enter_context(elsewhere.store.stream("damaged", cluster=True).writer())
            reader = ends.enter_context(opened.reader("group"))
        writer.put(np.full(SMALL, 1, dtype=np.uint8))
        assert (reader.get(timeout=60) == 1).all()  # they are connected
        relay.corrupt(TO_CLIENT, nbytes // 2)
        writer.put(np.full(nbytes, 7, dtype=np.uint8), timeout=60)
        assert (reader.get(timeout=60) == 7).all()
    assert "arrived damaged, and are fetched again" in b.log


def test_bytes_that_are_always_damaged_come_from_the_next_place(
    relayed_hosts: tuple[Any, Any, TcpRelay], cluster: Any
) -> None:
    a, b, relay = relayed_hosts
    c = cluster.host("c")
    oid = a.store.put(np.full(SMALL, 7, dtype=np.uint8))
    a.store.publish(oid)
    assert (c.store.get(oid) == 7).all()
    c.store.publish(oid)
    relay.corrupt_all(TO_CLIENT)
    assert (b.store.get(oid) == 7).all()
    alone = a.store.put(np.full(SMALL, 9, dtype=np.uint8))
    a.store.publish(alone)
    with pytest.raises(ObjectLost, match="could not be fetched from host a"):
        b.store.get(alone)
    relay.forget_faults()
    assert (b.store.get(alone) == 9).all()


class Publishing(NamedTuple):
    """A store whose objects are published in a directory, without a gateway."""

    store: entrepot.Store
    directory: Directory
    publication: Publication
    snapshots: StoreSnapshots

    def register(self) -> Registration:
        """Register the store, as membership does."""
        return self.directory.register(
            self.store.instance_id, "a", ["127.0.0.1:7411"], protocol=1, started_at=time.time(), lease_seconds=60
        )


@pytest.fixture
def publishing(daemon: Any, tmp_path: Path) -> Iterator[Publishing]:
    """A store that was not registered yet."""
    access = DirectoryAccess(f"embedded://{tmp_path}/test")
    with entrepot.connect(daemon.address) as store:
        unrecorded = UnrecordedCopies()
        source = StoreObjects(store, unrecorded)
        snapshots = StoreSnapshots(store, source, unrecorded)
        publication = Publication(store, access, snapshots, source)
        yield Publishing(store, access.open(), publication, snapshots)
        publication.stop()
    access.close()


def test_a_publication_waits_for_the_next_registration(publishing: Publishing) -> None:
    oid = publishing.store.put("value")
    forgotten = publishing.register()
    publishing.publication.registered(forgotten)
    forgotten.depart()  # the directory knows it no more
    publisher = threading.Thread(target=lambda: publishing.publication.publish(oid.binary))
    publisher.start()
    assert publishing.publication.wait_until_forgotten(60)  # as membership does, which then registers again
    publishing.publication.registered(publishing.register())
    publisher.join(60)
    (published,) = publishing.directory.places([oid.binary])
    assert [place.instance.id for place in published.entries] == [publishing.store.instance_id]


def test_a_publication_says_that_there_is_no_registration(
    publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrepot_cluster.gateway.publication.LOCK_SECONDS", 0.1)
    oid = publishing.store.put("value")
    with pytest.raises(DirectoryUnavailable, match="not registered"):
        publishing.publication.publish(oid.binary)
    forgotten = publishing.register()
    publishing.publication.registered(forgotten)
    forgotten.depart()
    with pytest.raises(DirectoryUnavailable, match="has forgotten this store"):
        publishing.publication.publish(oid.binary)


def test_a_publication_says_that_another_gateway_has_taken_over(publishing: Publishing) -> None:
    oid = publishing.store.put("value")
    publishing.publication.registered(publishing.register())
    publishing.register()
    with pytest.raises(StoreUnavailable, match="another gateway"):
        publishing.publication.publish(oid.binary)


def test_what_is_published_and_deleted_while_the_directory_is_away_is_forgotten(
    publishing: Publishing, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    monkeypatch.setattr("entrepot_cluster.gateway.publication.LOCK_SECONDS", 0.0)
    kept = publishing.store.put("value")
    published = [publishing.store.put(number) for number in range(MIN_FORGOTTEN)]
    for oid in [kept, *published]:
        with pytest.raises(DirectoryUnavailable):
            publishing.publication.publish(oid.binary)
    for oid in published:
        publishing.store.delete(oid)
    assert publishing.snapshots.explicit_count == MIN_FORGOTTEN + 1
    publishing.publication.start()
    wait_until(lambda: publishing.snapshots.explicit_count == 1, "all that is gone to be forgotten")
    publishing.publication.registered(publishing.register())
    wait_until(lambda: bool(publishing.directory.places([kept.binary])[0].entries), "the rest to be published")


def test_a_new_registration_does_not_wait_for_the_next_listing(
    publishing: Publishing, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    for constant in ("INTERVAL_SECONDS", "MAX_INTERVAL_SECONDS"):
        monkeypatch.setattr(f"entrepot_cluster.gateway.publication.{constant}", 3600.0)
    named = publishing.store.put("value", name="named")
    publishing.publication.start()
    publishing.publication.registered(publishing.register())
    wait_until(lambda: bool(publishing.directory.places([named.binary])[0].entries), "it to be published")
