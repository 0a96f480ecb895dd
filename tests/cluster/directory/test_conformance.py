"""What every kind of directory does, on real servers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_cluster.directory import (
    Directory,
    InstanceForgotten,
    InstanceSuperseded,
    Life,
    NameEntry,
    PlaceEntry,
    Registration,
    SessionEntry,
    session_reference,
)

Join = Callable[..., Registration]


def _oids(count: int) -> list[bytes]:
    return [os.urandom(20) for _ in range(count)]


def _holders(directory: Directory, oid: bytes) -> list[str]:
    return [place.instance.host for place in directory.places([oid])[0].raise_damage()]


def test_an_instance_is_listed_with_what_it_registered(directory: Directory, join: Join) -> None:
    join(directory, 1)
    (instance,) = directory.instances()
    assert (instance.id, instance.host, instance.addresses) == (f"{1:032x}", "host-1", ("10.0.0.1:7000",))
    assert (instance.protocol, instance.started_at, instance.live) == (1, 1001.0, True)


def test_published_objects_are_found_from_elsewhere(open_it: Callable[..., Directory], join: Join) -> None:
    here, there = open_it(), open_it()
    first, second = join(here, 1), join(there, 2)
    oid, other, unknown = _oids(3)
    session = session_reference("default", "run-1")
    first.publish([PlaceEntry(oid, 7, 1 << 40, session), PlaceEntry(other, 8, 0)])
    second.publish([PlaceEntry(oid, 3, 1 << 40, origin=Life(f"{1:032x}", 7), sequence=1)])
    found = there.places([oid, other, unknown])
    assert [len(places.entries) for places in found] == [2, 1, 0]
    place = found[0].entries[0]
    assert (place.instance.host, place.generation, place.nbytes, place.session) == ("host-1", 7, 1 << 40, session)
    copy = found[0].entries[1]
    assert copy.instance.host == "host-2"
    assert copy.life == place.life == (f"{1:032x}", 7)
    assert found[1].entries[0].session == bytes(8)


def test_the_life_published_last_comes_first(open_it: Callable[..., Directory], join: Join) -> None:
    here, there = open_it(), open_it()
    first, second = join(here, 1), join(there, 2)
    (oid,) = _oids(1)
    numbers = [one.publish([PlaceEntry(oid, 1, 10)]) for one in (first, second, first, second)]
    assert numbers == sorted(set(numbers))
    assert _holders(here, oid) == ["host-2", "host-1"]
    first.publish([PlaceEntry(oid, 2, 10)])
    assert _holders(there, oid) == ["host-1", "host-2"]
    # Published again with the number from the first time, as after an outage: it does not count as newer.
    second.publish([PlaceEntry(oid, 1, 10, sequence=numbers[3])])
    assert _holders(there, oid) == ["host-1", "host-2"]


def test_thousands_are_published_and_withdrawn_in_one_call(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    oids = _oids(3000)
    entries = [PlaceEntry(oid, number, number) for number, oid in enumerate(oids)]
    for _ in range(2):  # publishing the same again changes nothing
        registration.publish(entries)
    found = directory.places(oids)
    assert [places.entries[0].nbytes for places in found] == list(range(3000))
    for _ in range(2):
        registration.withdraw(oids[1000:])
    found = directory.places(oids)
    assert [len(places.entries) for places in found] == [1] * 1000 + [0] * 2000


def test_a_batch_may_name_an_object_twice(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    (oid,) = _oids(1)
    registration.publish([PlaceEntry(oid, 1, 1), PlaceEntry(oid, 2, 2)])
    assert [place.generation for place in directory.places([oid, oid])[1].entries] == [2]
    registration.withdraw([oid, oid])
    assert directory.places([oid])[0].entries == []


def test_nothing_is_published_of_a_batch_with_an_invalid_entry(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    (oid,) = _oids(1)
    for entry in (
        PlaceEntry(b"short", 1, 1),
        PlaceEntry(os.urandom(20), -1, 1),
        PlaceEntry(os.urandom(20), 1 << 64, 1),
    ):
        with pytest.raises(InvalidArgument):
            registration.publish([PlaceEntry(oid, 1, 1), entry])
    with pytest.raises(InvalidArgument):
        registration.publish(names=[NameEntry("s", "r", "", oid, 1)])
    assert directory.places([oid])[0].entries == []
    with pytest.raises(InvalidArgument):
        directory.places([b"short"])


def test_names_are_bound_per_instance_and_the_newest_comes_first(open_it: Callable[..., Directory], join: Join) -> None:
    here, there = open_it(), open_it()
    first, second = join(here, 1), join(there, 2)
    old, new = _oids(2)
    first.publish(names=[NameEntry("scope", "run", "table", old, 1)])
    second.publish(names=[NameEntry("scope", "run", "table", new, 9)])
    bindings = here.lookup_name("scope", "run", "table").raise_damage()
    assert [(one.oid, one.generation, one.instance.host) for one in bindings] == [
        (new, 9, "host-2"),
        (old, 1, "host-1"),
    ]
    assert here.lookup_name("scope", "other", "table").entries == []
    assert here.lookup_name("scope", "run", "tab").entries == []
    second.withdraw(names=[("scope", "run", "table")])
    assert [one.oid for one in here.lookup_name("scope", "run", "table").entries] == [old]


def test_names_may_have_any_characters(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    names = ["a", "a\x00", "a\x00b", "a\x00\x01", "ab", "ä", "\udc80", "\xff" * 100, "x" * 255]
    oids = _oids(len(names))
    registration.publish(names=[NameEntry("s", "r", name, oid, 1) for name, oid in zip(names, oids, strict=True)])
    for name, oid in zip(names, oids, strict=True):
        assert [one.oid for one in directory.lookup_name("s", "r", name).entries] == [oid], name
    assert {one.name for one in directory.list_names("s", "r").entries} == set(names)
    with pytest.raises(InvalidArgument, match="255"):
        directory.lookup_name("s", "r", "x" * 256)


def test_names_are_listed_by_glob_and_in_pages(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    (oid,) = _oids(1)
    names = [*sorted(f"part-{number}" for number in range(25)), "other"]
    registration.publish(names=[NameEntry("s", "r", name, oid, 1) for name in names])
    registration.publish(names=[NameEntry("s", "another session", "part-x", oid, 1)])
    seen: list[str] = []
    pages = 0
    after: bytes | None = b""
    while after is not None:
        page = directory.list_names("s", "r", "part-*", after=after, limit=10)
        seen += [one.name for one in page.entries]
        after, pages = page.next, pages + 1
    assert seen == names[:-1]
    assert pages == 3
    assert [one.name for one in directory.list_names("s", "r", "part-[12]").entries] == ["part-1", "part-2"]
    assert [one.name for one in directory.list_names("s", "r", "*-2?").entries] == [
        f"part-2{digit}" for digit in range(5)
    ]
    with pytest.raises(InvalidArgument, match="10000"):
        directory.list_names("s", "r", limit=10_001)


def test_all_objects_are_listed_in_pages(open_it: Callable[..., Directory], join: Join) -> None:
    here, there = open_it(), open_it()
    oids = _oids(500)
    join(here, 1).publish([PlaceEntry(oid, 1, 1) for oid in oids])
    join(there, 2).publish([PlaceEntry(oid, 1, 1) for oid in oids[:100]])
    seen = []
    after: bytes | None = b""
    while after is not None:
        page = here.list_objects(after=after, limit=77)
        assert len(page.entries) <= 77
        seen += [(place.oid, place.instance.host) for place in page.entries]
        after = page.next
    assert sorted(seen) == sorted([(oid, "host-1") for oid in oids] + [(oid, "host-2") for oid in oids[:100]])
    assert [oid for oid, _ in seen] == sorted(oid for oid, _ in seen)


def test_a_session_says_where_it_lives(open_it: Callable[..., Directory], join: Join) -> None:
    here, there = open_it(), open_it()
    join(here, 1).publish(sessions=[SessionEntry("scope", "run", 2)])
    second = join(there, 2)
    second.publish(sessions=[SessionEntry("scope", "run", 2), SessionEntry("scope", "other")])
    reference = session_reference("scope", "run")
    places = here.sessions(reference).raise_damage()
    assert [(one.scope, one.session, one.replicas, one.instance.host) for one in places] == [
        ("scope", "run", 2, "host-1"),
        ("scope", "run", 2, "host-2"),
    ]
    second.withdraw(sessions=[("scope", "run")])
    assert [one.instance.host for one in here.sessions(reference).entries] == ["host-1"]


def test_an_instance_that_departs_is_gone_with_what_it_published(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    (oid,) = _oids(1)
    registration.publish([PlaceEntry(oid, 1, 1)], [NameEntry("s", "r", "n", oid, 1)], [SessionEntry("s", "r")])
    assert _holders(directory, oid) == ["host-1"]
    registration.depart()
    with directory.watch() as watch:
        assert watch.wait(0.0) == []
    assert directory.instances() == []
    assert directory.places([oid])[0].entries == []
    assert directory.lookup_name("s", "r", "n").entries == []
    assert directory.sessions(session_reference("s", "r")).entries == []
    publish = partial(registration.publish, [PlaceEntry(oid, 1, 1)])
    for call in (registration.renew, registration.confirm, registration.depart, publish):
        with pytest.raises(InstanceForgotten, match="register it again"):
            call()


@pytest.mark.slow
def test_a_lost_instance_is_remembered_with_its_places_until_it_is_pruned(
    open_it: Callable[..., Directory], join: Join, wait_until: Callable[..., None]
) -> None:
    directory = open_it(lost_seconds=0.0)
    registration = join(directory, 1, lease_seconds=2.0)
    (oid,) = _oids(1)
    registration.publish([PlaceEntry(oid, 1, 1)], [NameEntry("s", "r", "n", oid, 1)], [SessionEntry("s", "r")])
    wait_until(lambda: not directory.instances()[0].live, "the lease to end")
    since = directory.instances()[0].lost_since
    assert since is not None
    assert abs(since - time.time()) < 10
    (place,) = directory.places([oid])[0].entries
    assert (place.instance.host, place.instance.lost_since) == ("host-1", since)
    another = open_it()  # another host says the same
    assert another.places([oid])[0].entries[0].instance.lost_since == since
    with pytest.raises(InstanceForgotten, match="register it again"):
        registration.renew()

    def swept() -> bool:
        while not directory.sweep():
            pass
        return not directory.instances()

    wait_until(swept, "the instance to be pruned")
    while not directory.sweep():  # its entries, in case that the page with them was read before
        pass
    assert directory._backend.read_prefixes([b"p", b"n", b"s", b"i", b"x"]) == [[], [], [], [], []]


@pytest.mark.slow
def test_a_lost_instance_is_seen_within_two_seconds_and_may_come_back(
    open_it: Callable[..., Directory], join: Join
) -> None:
    here, there = open_it(), open_it()
    registration = join(here, 1, lease_seconds=2.0)
    join(here, 2)
    with there.watch() as watch:
        assert {(change.kind, change.instance.host) for change in watch.wait(10.0)} == {
            ("joined", "host-1"),
            ("joined", "host-2"),
        }
        registration.renew()
        renewed_at = time.monotonic()
        (change,) = watch.wait(20.0)
        seen_after = time.monotonic() - renewed_at
        assert (change.kind, change.instance.host) == ("lost", "host-1")
        assert 1.5 < seen_after < 2.0 + 2.0
        again = join(here, 1)
        assert again.known
        (change,) = watch.wait(10.0)
        assert (change.kind, change.instance.lost_since) == ("joined", None)
        again.depart()
        (change,) = watch.wait(10.0)
        assert (change.kind, change.instance.host) == ("departed", "host-1")
        join(here, 2, started_at=5.0)
        (change,) = watch.wait(10.0)
        assert (change.kind, change.instance.started_at) == ("changed", 5.0)
        assert watch.wait(0.0) == []


def test_closing_a_watch_ends_a_wait_in_another_thread(directory: Directory, join: Join) -> None:
    join(directory, 1)
    watch = directory.watch()
    assert len(watch.wait(10.0)) == 1
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(watch.wait(60.0)))
    thread.start()
    watch.close()
    thread.join(20.0)
    assert results == [[]]


@pytest.mark.slow
def test_a_quiet_watch_outlasts_the_timeout(open_it: Callable[..., Directory], join: Join) -> None:
    directory = open_it(timeout=1.0)
    join(directory, 1)
    with directory.watch() as watch:
        assert len(watch.wait(10.0)) == 1
        assert watch.wait(2.5) == []
        join(directory, 2)
        assert [change.instance.host for change in watch.wait(10.0)] == ["host-2"]


@pytest.mark.slow
def test_renewing_keeps_an_instance(directory: Directory, join: Join, wait_until: Callable[..., None]) -> None:
    registration = join(directory, 1, lease_seconds=2.0)
    begin = time.monotonic()

    def renewed() -> bool:
        registration.renew()
        return time.monotonic() - begin > 5.0

    wait_until(renewed, "five seconds of renewals")
    assert directory.instances()[0].live


def test_the_second_gateway_of_an_instance_supersedes_the_first(open_it: Callable[..., Directory], join: Join) -> None:
    here, there = open_it(), open_it()
    first = join(here, 1)
    (oid, other) = _oids(2)
    first.publish([PlaceEntry(oid, 1, 1)])
    second = join(there, 1)
    assert second.known
    assert not first.known
    for call in (first.renew, first.confirm, first.depart, lambda: first.publish([PlaceEntry(other, 1, 1)])):
        with pytest.raises(InstanceSuperseded, match="host-1"):
            call()
    second.renew()
    assert _holders(here, oid) == ["host-1"]
    assert _holders(here, other) == []
    assert len(here.instances()) == 1


def test_what_was_published_before_counts_until_it_is_confirmed(open_it: Callable[..., Directory], join: Join) -> None:
    directory = open_it()
    kept, deleted_meanwhile = _oids(2)
    join(directory, 1).publish([PlaceEntry(kept, 1, 1), PlaceEntry(deleted_meanwhile, 2, 2)])
    again = join(directory, 1)
    assert _holders(directory, deleted_meanwhile) == ["host-1"]
    again.publish([PlaceEntry(kept, 1, 1, sequence=1)])
    for _ in range(2):
        again.confirm()
    reader = open_it()
    assert _holders(reader, kept) == ["host-1"]
    assert _holders(reader, deleted_meanwhile) == []
    while not reader.sweep():
        pass
    assert [entry.key[1:21] for entry in reader._backend.read_prefixes([b"p"])[0]] == [kept]


def test_a_sweep_goes_on_where_it_stopped_and_keeps_what_counts(open_it: Callable[..., Directory], join: Join) -> None:
    directory = open_it()
    kept, stale = _oids(50), _oids(50)
    join(directory, 1).publish([PlaceEntry(oid, 1, 1) for oid in kept])
    leaving = join(directory, 2)
    leaving.publish([PlaceEntry(oid, 1, 1) for oid in stale])
    leaving.depart()
    steps = 1
    while not directory.sweep(limit=30):
        steps += 1
    assert steps >= 4
    assert {entry.key[1:21] for entry in directory._backend.read_prefixes([b"p"])[0]} == set(kept)


def test_numbers_stay_higher_than_those_of_what_is_published_again(
    open_it: Callable[..., Directory], join: Join
) -> None:
    here, there = open_it(), open_it()
    (oid,) = _oids(1)
    join(here, 1, highest_sequence=10**9).publish([PlaceEntry(oid, 1, 1, sequence=10**9)])
    sequence = join(there, 2).publish([PlaceEntry(oid, 1, 1)])
    assert sequence > 10**9
    assert _holders(here, oid) == ["host-2", "host-1"]


def test_many_instances_register_at_once(open_it: Callable[..., Directory], join: Join) -> None:
    directories = [open_it() for _ in range(8)]
    failures: list[BaseException] = []

    def register(directory: Directory, first: int) -> None:
        try:
            for number in range(first, first + 5):
                join(directory, number).publish([PlaceEntry(bytes(20), 1, number)])
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=register, args=(directory, 10 * index)) for index, directory in enumerate(directories)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert failures == []
    directory = open_it()
    assert len(directory.instances()) == 40
    places = directory.places([bytes(20)])[0].raise_damage()
    assert len({place.instance.id for place in places}) == 40
    assert [place.sequence for place in places] == sorted((place.sequence for place in places), reverse=True)


def test_an_instance_registers_under_an_id_only(directory: Directory) -> None:
    for identity in ("", "12", "g" * 32, "0" * 33, "00 " * 16):
        with pytest.raises(InvalidArgument, match="32 hexadecimal"):
            directory.register(identity, "h", [], protocol=1, started_at=0.0)
    with pytest.raises(InvalidArgument, match="at least 1 s"):
        directory.register("0" * 32, "h", [], protocol=1, started_at=0.0, lease_seconds=0.5)
