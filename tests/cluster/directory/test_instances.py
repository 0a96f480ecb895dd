"""Instances in every kind of directory, on real servers: leases, losses, watches, registrations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from directory_objects import Join, holders, random_ids
from entrepot.errors import InvalidArgument
from entrepot_cluster.directory import (
    Directory,
    InstanceForgotten,
    InstanceSuperseded,
    NameEntry,
    PlaceEntry,
    SessionEntry,
    session_reference,
)


def test_an_instance_is_listed_with_what_it_registered(directory: Directory, join: Join) -> None:
    join(directory, 1)
    (instance,) = directory.instances()
    assert (instance.id, instance.host, instance.addresses) == (f"{1:032x}", "host-1", ("10.0.0.1:7000",))
    assert (instance.protocol, instance.started_at, instance.live) == (1, 1001.0, True)


def test_an_instance_that_departs_is_gone_with_what_it_published(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    (oid,) = random_ids(1)
    registration.publish([PlaceEntry(oid, 1, 1)], [NameEntry("s", "r", "n", oid, 1)], [SessionEntry("s", "r")])
    assert holders(directory, oid) == ["host-1"]
    registration.depart()
    assert directory.instances() == []
    assert directory.places([oid])[0].entries == []
    assert directory.lookup_name("s", "r", "n").entries == []
    assert directory.sessions(session_reference("s", "r")).entries == []
    publish = partial(registration.publish, [PlaceEntry(oid, 1, 1)])
    for call in (registration.renew, registration.confirm, registration.depart, publish):
        with pytest.raises(InstanceForgotten, match="register it again"):
            call()


def test_a_lost_instance_is_remembered_with_its_places_until_it_is_pruned(
    open_it: Callable[..., Directory], join: Join, wait_until: Callable[..., None]
) -> None:
    directory = open_it(lost_seconds=0.0)
    registration = join(directory, 1, lease_seconds=2.0)
    (oid,) = random_ids(1)
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


def test_a_lost_instance_is_seen_within_two_seconds_and_may_come_back(
    open_it: Callable[..., Directory], join: Join
) -> None:
    here, elsewhere = open_it(), open_it()
    registration = join(here, 1, lease_seconds=2.0)
    join(here, 2)
    with elsewhere.watch() as watch:
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
        assert again.was_known
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


def test_a_quiet_watch_outlasts_the_timeout(open_it: Callable[..., Directory], join: Join) -> None:
    directory = open_it(timeout=1.0)
    join(directory, 1)
    with directory.watch() as watch:
        assert len(watch.wait(10.0)) == 1
        assert watch.wait(2.5) == []
        join(directory, 2)
        assert [change.instance.host for change in watch.wait(10.0)] == ["host-2"]


def test_renewing_keeps_an_instance(directory: Directory, join: Join, wait_until: Callable[..., None]) -> None:
    registration = join(directory, 1, lease_seconds=2.0)
    begin = time.monotonic()

    def renewed() -> bool:
        registration.renew()
        return time.monotonic() - begin > 5.0

    wait_until(renewed, "five seconds of renewals")
    assert directory.instances()[0].live


def test_the_second_gateway_of_an_instance_supersedes_the_first(open_it: Callable[..., Directory], join: Join) -> None:
    here, elsewhere = open_it(), open_it()
    first = join(here, 1)
    (oid, other) = random_ids(2)
    first.publish([PlaceEntry(oid, 1, 1)])
    second = join(elsewhere, 1)
    assert second.was_known
    assert not first.was_known
    for call in (first.renew, first.confirm, first.depart, lambda: first.publish([PlaceEntry(other, 1, 1)])):
        with pytest.raises(InstanceSuperseded, match="host-1"):
            call()
    second.renew()
    assert holders(here, oid) == ["host-1"]
    assert holders(here, other) == []
    assert len(here.instances()) == 1


def test_what_was_published_before_counts_until_it_is_confirmed(open_it: Callable[..., Directory], join: Join) -> None:
    directory = open_it()
    kept, deleted_meanwhile = random_ids(2)
    join(directory, 1).publish([PlaceEntry(kept, 1, 1), PlaceEntry(deleted_meanwhile, 2, 2)])
    again = join(directory, 1)
    assert holders(directory, deleted_meanwhile) == ["host-1"]
    again.publish([PlaceEntry(kept, 1, 1, sequence=1)])
    for _ in range(2):
        again.confirm()
    reader = open_it()
    for either in (directory, reader):
        assert holders(either, kept) == ["host-1"]
        assert holders(either, deleted_meanwhile) == []
    while not reader.sweep():
        pass
    assert [entry.key[1:21] for entry in reader._backend.read_prefixes([b"p"])[0]] == [kept]


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
