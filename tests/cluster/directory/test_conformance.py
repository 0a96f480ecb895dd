"""Objects, names and sessions in every kind of directory, on real servers."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from directory_objects import Join, holders, random_ids
from entrepot.errors import InvalidArgument
from entrepot_cluster.directory import (
    Directory,
    Life,
    NameEntry,
    PlaceEntry,
    SessionEntry,
    session_reference,
)


def test_published_objects_are_found_from_elsewhere(open_it: Callable[..., Directory], join: Join) -> None:
    here, elsewhere = open_it(), open_it()
    first, second = join(here, 1), join(elsewhere, 2)
    oid, other, unknown = random_ids(3)
    session = session_reference("default", "run-1")
    first.publish([PlaceEntry(oid, 7, 1 << 40, session), PlaceEntry(other, 8, 0)])
    second.publish([PlaceEntry(oid, 3, 1 << 40, origin=Life(f"{1:032x}", 7), sequence=1, is_primary=True)])
    results = elsewhere.places([oid, other, unknown])
    assert [len(places.entries) for places in results] == [2, 1, 0]
    place = results[0].entries[0]
    assert (place.instance.host, place.generation, place.nbytes, place.session) == ("host-1", 7, 1 << 40, session)
    copy = results[0].entries[1]
    assert copy.instance.host == "host-2"
    assert (place.is_primary, copy.is_primary) == (False, True)
    assert copy.life == place.life == (f"{1:032x}", 7)
    assert results[1].entries[0].session == bytes(8)


def test_the_life_published_last_comes_first(open_it: Callable[..., Directory], join: Join) -> None:
    here, elsewhere = open_it(), open_it()
    first, second = join(here, 1), join(elsewhere, 2)
    (oid,) = random_ids(1)
    numbers = [registration.publish([PlaceEntry(oid, 1, 10)]) for registration in (first, second, first, second)]
    assert numbers == sorted(set(numbers))
    assert holders(here, oid) == ["host-2", "host-1"]
    first.publish([PlaceEntry(oid, 2, 10)])
    assert holders(elsewhere, oid) == ["host-1", "host-2"]
    # Published again with the number from the first time, as after an outage: it does not count as newer.
    second.publish([PlaceEntry(oid, 1, 10, sequence=numbers[3])])
    assert holders(elsewhere, oid) == ["host-1", "host-2"]


def test_thousands_are_published_and_withdrawn_in_one_call(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    oids = random_ids(3000)
    entries = [PlaceEntry(oid, number, number) for number, oid in enumerate(oids)]
    for _ in range(2):  # publishing the same again changes nothing
        registration.publish(entries)
    results = directory.places(oids)
    assert [places.entries[0].nbytes for places in results] == list(range(3000))
    for _ in range(2):
        registration.withdraw(oids[1000:])
    results = directory.places(oids)
    assert [len(places.entries) for places in results] == [1] * 1000 + [0] * 2000


def test_a_batch_may_name_an_object_twice(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    (oid,) = random_ids(1)
    registration.publish([PlaceEntry(oid, 1, 1), PlaceEntry(oid, 2, 2)])
    assert [place.generation for place in directory.places([oid, oid])[1].entries] == [2]
    registration.withdraw([oid, oid])
    assert directory.places([oid])[0].entries == []


def test_nothing_is_published_of_a_batch_with_an_invalid_entry(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    (oid,) = random_ids(1)
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
    here, elsewhere = open_it(), open_it()
    first, second = join(here, 1), join(elsewhere, 2)
    old, new = random_ids(2)
    first.publish(names=[NameEntry("scope", "run", "table", old, 1)])
    second.publish(names=[NameEntry("scope", "run", "table", new, 9)])
    bindings = here.lookup_name("scope", "run", "table").raise_damage()
    assert [(binding.oid, binding.generation, binding.instance.host) for binding in bindings] == [
        (new, 9, "host-2"),
        (old, 1, "host-1"),
    ]
    assert here.lookup_name("scope", "other", "table").entries == []
    assert here.lookup_name("scope", "run", "tab").entries == []
    second.withdraw(names=[("scope", "run", "table")])
    assert [binding.oid for binding in here.lookup_name("scope", "run", "table").entries] == [old]


def test_names_may_have_any_characters(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    names = ["a", "a\x00", "a\x00b", "a\x00\x01", "ab", "ä", "\udc80", "\xff" * 100, "x" * 255]
    oids = random_ids(len(names))
    registration.publish(names=[NameEntry("s", "r", name, oid, 1) for name, oid in zip(names, oids, strict=True)])
    for name, oid in zip(names, oids, strict=True):
        assert [binding.oid for binding in directory.lookup_name("s", "r", name).entries] == [oid], name
    assert {binding.name for binding in directory.list_names("s", "r").entries} == set(names)
    with pytest.raises(InvalidArgument, match="255"):
        directory.lookup_name("s", "r", "x" * 256)


def test_names_are_listed_by_glob_and_in_pages(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    (oid,) = random_ids(1)
    names = [*sorted(f"part-{number}" for number in range(25)), "other"]
    registration.publish(names=[NameEntry("s", "r", name, oid, 1) for name in names])
    registration.publish(names=[NameEntry("s", "another session", "part-x", oid, 1)])
    seen: list[str] = []
    pages = 0
    after: bytes | None = b""
    while after is not None:
        page = directory.list_names("s", "r", "part-*", after=after, limit=10)
        seen += [binding.name for binding in page.entries]
        after, pages = page.next, pages + 1
    assert seen == names[:-1]
    assert pages == 3
    assert [binding.name for binding in directory.list_names("s", "r", "part-[12]").entries] == ["part-1", "part-2"]
    assert [binding.name for binding in directory.list_names("s", "r", "*-2?").entries] == [
        f"part-2{digit}" for digit in range(5)
    ]
    with pytest.raises(InvalidArgument, match="10000"):
        directory.list_names("s", "r", limit=10_001)


def test_all_objects_are_listed_in_pages(open_it: Callable[..., Directory], join: Join) -> None:
    here, elsewhere = open_it(), open_it()
    oids = random_ids(500)
    join(here, 1).publish([PlaceEntry(oid, 1, 1) for oid in oids])
    join(elsewhere, 2).publish([PlaceEntry(oid, 1, 1) for oid in oids[:100]])
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
    here, elsewhere = open_it(), open_it()
    join(here, 1).publish(sessions=[SessionEntry("scope", "run", 2)])
    second = join(elsewhere, 2)
    second.publish(sessions=[SessionEntry("scope", "run", 2), SessionEntry("scope", "other")])
    reference = session_reference("scope", "run")
    places = here.sessions(reference).raise_damage()
    assert [(place.scope, place.session, place.replicas, place.instance.host) for place in places] == [
        ("scope", "run", 2, "host-1"),
        ("scope", "run", 2, "host-2"),
    ]
    second.withdraw(sessions=[("scope", "run")])
    assert [place.instance.host for place in here.sessions(reference).entries] == ["host-1"]


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.slow
def test_a_sweep_goes_on_where_it_stopped_and_keeps_what_counts(open_it: Callable[..., Directory], join: Join) -> None:
    directory = open_it()
    kept, stale = random_ids(50), random_ids(50)
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
    here, elsewhere = open_it(), open_it()
    (oid,) = random_ids(1)
    join(here, 1, highest_sequence=10**9).publish([PlaceEntry(oid, 1, 1, sequence=10**9)])
    sequence = join(elsewhere, 2).publish([PlaceEntry(oid, 1, 1)])
    assert sequence > 10**9
    assert holders(here, oid) == ["host-2", "host-1"]
