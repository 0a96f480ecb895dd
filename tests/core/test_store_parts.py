"""The parts of a store, each without the store."""

from __future__ import annotations

import gc
import json
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import entrepot
import pytest
from entrepot._client.locality_sets import LocalitySets
from entrepot._client.pins import Residency
from entrepot._client.session import Session
from entrepot._store.access import access_to
from entrepot._store.connection import _acquire_client  # pyright: ignore[reportPrivateUsage]
from entrepot._store.durable_objects import DurableObjects
from entrepot._store.objects import DirectObjects, to_item
from entrepot._store.store import Store
from entrepot.durable import Durable
from entrepot.errors import InvalidArgument, ObjectNotFound, StoreUnavailable
from entrepot.ids import ObjectID

LARGE = bytes(100_000)


def open_session(daemon: Any, name: str = "run") -> Session:
    return Session(_acquire_client(daemon.address, None), daemon.address, "tests", name, True)


def openers_of(session: Session, name: str) -> int:
    records = json.loads(session.raw().sessions())["sessions"]
    return sum(record["opened_by"] for record in records if record["session"] == name)


@pytest.fixture
def session(daemon: Any) -> Iterator[Session]:
    opened = open_session(daemon)
    yield opened
    opened.close()


class Shelf:
    """A durable tier in this process: keeps items, and puts them back into the session that it was made for."""

    def __init__(self, direct: DirectObjects) -> None:
        self.direct = direct
        self.kept: dict[ObjectID, Any] = {}
        self.names: dict[str, ObjectID] = {}
        self.stores: list[Any] = []

    def check(self) -> None:
        pass

    def save(self, store: Any, oid: ObjectID) -> None:
        self.stores.append(store)
        self.kept[oid] = self.direct.get_versioned(None, oid, copy="always")[0]

    save_later = save

    def flush(self, timeout: float | None) -> None:
        pass

    def contains(self, oid: ObjectID) -> bool:
        return oid in self.kept

    def recall(self, store: Any, oid: ObjectID, life: tuple[str, int] | None) -> bool:
        if oid in self.kept:
            self.direct.put_item(None, to_item(self.direct.session, self.kept[oid], oid, False))
        return oid in self.kept

    def delete(self, oid: ObjectID) -> bool:
        return self.kept.pop(oid, None) is not None

    def bind(self, store: Any, name: str, oid: ObjectID) -> None:
        self.names[name] = oid

    def unbind(self, store: Any, name: str) -> bool:
        return self.names.pop(name, None) is not None

    def lookup(self, store: Any, name: str) -> ObjectID | None:
        return self.names.get(name)


def test_a_session_opens_others_over_its_connection(session: Session) -> None:
    other = session.open_another("other", ttl=5.5, limit_bytes=1 << 20, delete_consumed=None)
    assert other.client is session.client
    (info,) = [info for info in session.all() if info.session == "other"]
    assert (info.ttl_seconds, info.limit_bytes) == (6, 1 << 20)
    assert session.number_of("other") == other.number
    assert session.number_of(None) == session.number
    other.close()
    session.remove("other")
    with pytest.raises(ObjectNotFound):
        session.number_of("other")


def test_a_closed_session_refuses_requests_and_leaves_its_connection_to_others(session: Session) -> None:
    other = session.open_another("other", ttl=None, limit_bytes=None, delete_consumed=None)
    other.close()
    other.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        other.raw()
    with pytest.raises(StoreUnavailable, match="closed"):
        other.open_another("third", ttl=None, limit_bytes=None, delete_consumed=None)
    assert openers_of(session, "run") == 1


def test_a_session_that_nobody_holds_is_closed_at_once(session: Session) -> None:
    other = session.open_another("other", ttl=None, limit_bytes=None, delete_consumed=None)
    assert openers_of(session, "other") == 1
    gc.disable()
    try:
        del other
        assert openers_of(session, "other") == 0
    finally:
        gc.enable()


def test_a_dropped_store_is_in_no_circle_with_its_parts(session: Session, daemon: Any) -> None:
    store = entrepot.connect(daemon.address, scope="tests", session="other")
    oid = store.put(LARGE)
    gc.disable()
    try:
        del store
        assert openers_of(session, "other") == 0
    finally:
        gc.enable()
    assert DirectObjects(session).exists(oid)


def test_a_session_that_the_daemon_refuses_gives_its_connection_back(daemon: Any) -> None:
    client = _acquire_client(daemon.address, None)
    before = client.references
    assert client.acquire()
    with pytest.raises(InvalidArgument):
        Session(client, daemon.address, "tests", "n" * 5000, True)
    assert client.references == before
    client.release(None)


def test_direct_objects_are_put_read_and_named(session: Session) -> None:
    objects = DirectObjects(session)
    oid = ObjectID.random()
    generation, nbytes, existed = objects.put_item(None, to_item(session, LARGE, oid, True, "large"))
    assert (nbytes, existed) == (len(LARGE), False)
    value, read = objects.get_versioned(None, objects.resolve(None, "large"))
    assert (bytes(value), read) == (LARGE, generation)
    objects.unset_name(None, "large")
    with pytest.raises(ObjectNotFound):
        objects.resolve(None, "large")
    assert objects.delete(oid, members=True)
    assert not objects.exists(oid)
    assert not objects.recall(None, oid, None)
    with pytest.raises(InvalidArgument, match="not durable"):
        objects.make_durable(None, oid)


@pytest.mark.parametrize("mode", ["through", "behind"])
def test_durable_objects_come_back_and_name_the_store_that_they_act_for(session: Session, mode: Any) -> None:
    direct = DirectObjects(session)
    shelf = Shelf(direct)
    objects = DurableObjects(direct, Durable("/nowhere", mode, "kept*"), shelf)
    store = object()
    kept, other = ObjectID.random(), ObjectID.random()
    objects.put_item(store, to_item(session, LARGE, kept, True, "kept1"))
    objects.put_item(store, to_item(session, LARGE, other, True))
    assert (list(shelf.kept), shelf.stores) == ([kept], [store])
    direct.unset_name(None, "kept1")
    direct.delete(kept, members=False)
    direct.delete(other, members=False)
    assert objects.exists(kept)
    assert not objects.exists(other)
    assert objects.resolve(store, "kept1", 0) == kept
    direct.delete(kept, members=False)
    assert bytes(objects.get_versioned(store, kept, 0, "never")[0]) == LARGE
    with pytest.raises(ObjectNotFound):
        objects.get_many(store, [kept, other], 0, "never")
    assert objects.delete(kept, members=True)
    assert not objects.exists(kept)


def test_access_is_direct_unless_something_is_declared(session: Session, tmp_path: Any) -> None:
    declared = Durable(str(tmp_path))
    assert access_to(session, None).durable is None
    assert access_to(session, declared).durable == declared
    assert access_to(session, None).durable == declared, "it is recorded in the session"
    assert access_to(session, False).durable is None


def test_locality_sets_and_residency_need_only_a_session(session: Session) -> None:
    objects, sets, residency = DirectObjects(session), LocalitySets(session), Residency(session)
    defined = sets.define("features", None, 3, {"reading": "random"})
    assert (defined.reading, defined.priority) == ("random", 3)
    assert sets.handle_of("features") == sets.handle_of(defined) == defined.handle
    item = sets.with_usage(to_item(session, LARGE, oid := ObjectID.random(), True), "features", 2)
    objects.put_item(None, item)
    assert sets.consumed(oid, "first") == 1
    with residency.pin(oid, 0) as pin:
        assert pin.pinned
    with pytest.raises(ObjectNotFound):
        sets.handle_of("missing")


def fake_connect(*arguments: Any, **options: Any) -> Any:
    return arguments, options


def test_a_store_is_opened_again_by_what_it_was_given(daemon: Any) -> None:
    with Store._open(open_session(daemon), fake_connect, None) as store:  # pyright: ignore[reportPrivateUsage]
        with store.session("other") as other:
            reopen: Callable[..., Any] = other.__reduce__()[0]
        assert isinstance(reopen, partial)
        assert reopen.func is fake_connect
    options = {"session": "other", "scope": "tests", "allow_pickle": True, "object_strings": "object"}
    assert reopen() == ((daemon.address,), options)
    assert b"entrepot" in pickle.dumps(entrepot.connect)
