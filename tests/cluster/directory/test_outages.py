"""Directories that hang, refuse, come back empty or older, belong to somebody else, or hold garbage."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from directory_servers import KINDS, Server, free_port, locked
from entrepot.errors import DirectoryUnavailable, VersionMismatch
from entrepot_cluster.directory import (
    ClusterMismatch,
    Directory,
    DirectoryDamaged,
    InstanceForgotten,
    NameEntry,
    PlaceEntry,
    Registration,
    SessionEntry,
    open_directory,
    session_reference,
)
from entrepot_cluster.directory.backends.etcd import EtcdBackend
from entrepot_cluster.directory.codec import with_number

Join = Callable[..., Registration]
both_servers = pytest.mark.parametrize("private_server", sorted(KINDS), indirect=True)
etcd_only = pytest.mark.parametrize("private_server", ["etcd"], indirect=True)
OID = bytes(range(20))


@pytest.fixture
def opened(private_server: Server) -> Iterator[Directory]:
    """A directory on a server that the test may stop."""
    with open_directory(private_server.url("outage"), timeout=1.0) as directory:
        yield directory


@pytest.mark.exhaustive
@pytest.mark.slow
@both_servers
def test_calls_end_while_the_server_is_stopped_and_work_again(
    private_server: Server, opened: Directory, join: Join
) -> None:
    registration = join(opened, 1)
    registration.publish([PlaceEntry(OID, 1, 1)])
    calls: list[Callable[[], Any]] = [
        registration.renew,
        registration.confirm,
        lambda: registration.publish([PlaceEntry(OID, 2, 1)]),
        lambda: registration.withdraw([OID]),
        lambda: opened.places([OID]),
        lambda: opened.lookup_name("s", "r", "n"),
        lambda: opened.list_names("s", "r"),
        opened.list_objects,
        opened.sweep,
        lambda: join(opened, 2),
        lambda: open_directory(private_server.url("outage"), timeout=1.0),
        lambda: opened.watch().wait(1.0),
    ]
    private_server.stop()
    try:
        for call in calls:
            begin = time.monotonic()
            with pytest.raises(DirectoryUnavailable, match="did not answer within 1 s"):
                call()
            assert time.monotonic() - begin < 5.0
    finally:
        private_server.go_on()
    registration.renew()
    registration.publish([PlaceEntry(OID, 3, 1)])
    assert [place.generation for place in opened.places([OID])[0].entries] == [3]
    assert opened.instances()[0].live


@both_servers
def test_a_watch_notices_an_outage_and_reports_what_it_missed(
    private_server: Server, opened: Directory, join: Join, wait_until: Callable[..., None]
) -> None:
    registration = join(opened, 1)
    with opened.watch() as watch:
        assert [change.kind for change in watch.wait(10.0)] == ["joined"]
        private_server.stop()
        try:
            with pytest.raises(DirectoryUnavailable):
                watch.wait(20.0)
        finally:
            private_server.go_on()
        registration.depart()
        join(opened, 2)
        seen: set[tuple[str, str]] = set()

        def both_seen() -> bool:
            seen.update((change.kind, change.instance.host) for change in watch.wait(1.0))
            return seen == {("departed", "host-1"), ("joined", "host-2")}

        wait_until(both_seen, "the changes")


@both_servers
def test_a_directory_that_comes_back_empty_is_filled_again(
    private_server: Server, opened: Directory, join: Join, wait_until: Callable[..., None]
) -> None:
    registration = join(opened, 1)
    sequence = registration.publish([PlaceEntry(OID, 1, 1)])
    for _ in range(10):  # so that its positions are well above those of an empty one
        sequence = registration.publish([PlaceEntry(OID, 1, 1)])
    with opened.watch() as watch:
        assert len(watch.wait(10.0)) == 1
        private_server.kill()
        with pytest.raises(DirectoryUnavailable):
            opened.places([OID])
        with pytest.raises(DirectoryUnavailable):
            registration.renew()
        private_server.empty()
        private_server.start()
        with pytest.raises(InstanceForgotten):
            registration.renew()
        with pytest.raises(InstanceForgotten):
            registration.publish([PlaceEntry(OID, 1, 1)])
        assert opened.places([OID])[0].entries == []
        again = join(opened, 1, highest_sequence=sequence)
        assert not again.was_known
        again.publish([PlaceEntry(OID, 1, 1, sequence=sequence)])
        assert [place.sequence for place in opened.places([OID])[0].entries] == [sequence]
        assert again.publish([PlaceEntry(OID, 2, 1)]) > sequence
        kinds: list[str] = []

        def joined() -> bool:
            try:
                kinds.extend(change.kind for change in watch.wait(1.0))
            except DirectoryUnavailable:  # the connection to the server before
                return False
            return "joined" in kinds or opened.instances()[0].live

        wait_until(joined, "the watch to go on")


@etcd_only
def test_etcd_restarted_with_its_data_has_forgotten_nothing(
    private_server: Server, opened: Directory, join: Join
) -> None:
    registration = join(opened, 1)
    registration.publish([PlaceEntry(OID, 1, 1)])
    registration.renew()
    private_server.kill()
    private_server.start()
    registration.renew()
    assert [place.instance.live for place in opened.places([OID])[0].entries] == [True]


@pytest.mark.slow
@etcd_only
def test_a_restored_backup_is_noticed(private_server: Server, opened: Directory, join: Join) -> None:
    registration = join(opened, 1)
    sequence = 0
    private_server.kill()
    backup = private_server.folder.parent / f"{private_server.folder.name}-backup"
    shutil.copytree(private_server.folder / "data", backup)
    try:
        private_server.start()
        for generation in range(1, 20):
            sequence = registration.publish([PlaceEntry(OID, generation, 1)])
        registration.renew()
        private_server.kill()
        private_server.empty()
        shutil.copytree(backup, private_server.folder / "data")
    finally:
        shutil.rmtree(backup)
    private_server.start()
    with pytest.raises(InstanceForgotten, match="backup"):
        registration.renew()
    assert opened.places([OID])[0].entries == []
    again = join(opened, 1, highest_sequence=sequence)
    assert again.was_known
    assert again.publish([PlaceEntry(OID, 20, 1)]) > sequence


@etcd_only
def test_a_watch_of_compacted_history_starts_anew(private_server: Server, opened: Directory, join: Join) -> None:
    backend = opened._backend
    assert isinstance(backend, EtcdBackend)
    cursor = backend.snapshot().cursor
    registration = join(opened, 1)
    backend._gateway.call("kv/compaction", {"revision": backend.state().position})
    registration.renew()
    subscription = backend.subscribe(cursor)
    try:
        assert subscription.wait(20.0) is None
    finally:
        subscription.close()


@etcd_only
def test_a_sweep_compacts_the_history(
    private_server: Server, opened: Directory, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrepot_cluster.directory.backends.etcd.COMPACT_SECONDS", 0.0)
    backend = opened._backend
    assert isinstance(backend, EtcdBackend)
    registration = join(opened, 1)
    early = backend.state().position
    for generation in range(3):
        registration.publish([PlaceEntry(OID, generation, 1)])
    for _ in range(2):
        while not opened.sweep():
            pass
    with pytest.raises(DirectoryUnavailable, match="compacted"):
        backend._gateway.call("kv/range", {"key": "YQ==", "revision": str(early)})
    assert [place.generation for place in opened.places([OID])[0].entries] == [2]


@pytest.mark.parametrize("scheme", ["etcd", "redis"])
def test_a_refused_connection_is_reported_at_once(scheme: str) -> None:
    begin = time.monotonic()
    with pytest.raises(DirectoryUnavailable, match="refused"):
        open_directory(f"{scheme}://127.0.0.1:{free_port()}/nobody")
    assert time.monotonic() - begin < 4.0


@both_servers
def test_a_server_of_another_kind_is_no_directory(private_server: Server) -> None:
    scheme = {"etcd": "redis", "redis": "etcd"}[private_server.scheme]
    with pytest.raises(DirectoryUnavailable):
        open_directory(f"{scheme}://127.0.0.1:{private_server.port}/wrong", timeout=2.0)


@etcd_only
def test_another_member_takes_over_for_one_that_is_gone_or_hangs(private_server: Server, join: Join) -> None:
    hanging = KINDS["redis"]()  # whatever listens and does not answer
    try:
        hanging.start()
        hanging.stop()
        hosts = f"127.0.0.1:{free_port()},127.0.0.1:{hanging.port},127.0.0.1:{private_server.port}"
        with open_directory(f"etcd://{hosts}/several", timeout=3.0) as directory:
            join(directory, 1).publish([PlaceEntry(OID, 1, 1)])
            begin = time.monotonic()
            for _ in range(20):  # the member that answered is asked first from then on
                assert len(directory.places([OID])[0].entries) == 1
            assert time.monotonic() - begin < 2.0
    finally:
        hanging.end()


def test_a_locked_file_is_reported_after_the_timeout(tmp_path: Path, join: Join) -> None:
    with open_directory(f"embedded://{tmp_path}/one", timeout=0.5) as directory:
        registration = join(directory, 1)
        with locked(tmp_path / "one"):
            with pytest.raises(DirectoryUnavailable, match="locked by another process"):
                registration.publish([PlaceEntry(OID, 1, 1)])
            assert directory.places([OID])[0].entries == []  # readers do not wait for writers
        registration.publish([PlaceEntry(OID, 1, 1)])


def test_a_file_that_is_replaced_is_noticed(tmp_path: Path, join: Join) -> None:
    with open_directory(f"embedded://{tmp_path}/one") as directory:
        registration = join(directory, 1)
        for path in tmp_path.iterdir():
            path.unlink()
        with pytest.raises(InstanceForgotten):
            registration.renew()
        join(directory, 1).publish([PlaceEntry(OID, 1, 1)])
        assert len(directory.places([OID])[0].entries) == 1
        assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"something else" * 1000)
    with pytest.raises(DirectoryUnavailable, match="not a database"):
        open_directory(f"embedded://{tmp_path}/one")
    assert (tmp_path / "one").read_bytes().startswith(b"something else")


def test_another_clusters_directory_is_refused(open_it: Callable[..., Directory], join: Join) -> None:
    directory = open_it()
    _overwrite(directory, b"m", b'{"name": "another", "format": 1, "id": "00"}')
    with pytest.raises(ClusterMismatch, match="'another'"):
        open_it()
    with pytest.raises(ClusterMismatch, match="'another'"):
        join(directory, 1)


def test_a_newer_format_is_refused(open_it: Callable[..., Directory], join: Join) -> None:
    directory = open_it()
    _overwrite(directory, b"m", f'{{"name": "{directory.name}", "format": 2, "id": "00", "new": []}}'.encode())
    with pytest.raises(VersionMismatch, match="format 2"):
        open_it()
    with pytest.raises(VersionMismatch, match="format 2"):
        join(directory, 1)


@pytest.mark.parametrize("garbage", [b"", b"\xff\x00", b"{}", b"[]"], ids=["empty", "bytes", "object", "list"])
def test_a_directory_that_does_not_say_whose_it_is_is_refused(
    open_it: Callable[..., Directory], garbage: bytes
) -> None:
    _overwrite(open_it(), b"m", garbage)
    with pytest.raises(DirectoryDamaged):
        open_it()


def test_garbage_is_reported_and_everything_else_is_found(directory: Directory, join: Join) -> None:
    registration = join(directory, 1)
    other, alone = os.urandom(20), os.urandom(20)
    registration.publish(
        [PlaceEntry(OID, 1, 1), PlaceEntry(other, 1, 1)],
        [NameEntry("s", "r", "name", OID, 1), NameEntry("s", "r", "other", OID, 1)],
        [SessionEntry("s", "r")],
    )
    for key in (b"p" + OID, b"p" + alone, b"n" + session_reference("s", "r") + b"name\x00\x01"):
        _overwrite(directory, with_number(key, 5), b"garbage")
    _overwrite(directory, b"s" + session_reference("s", "r") + b"numb", b"\x10\x01\x01\x01xanother")
    _overwrite(directory, b"p short", b"")
    results = directory.places([OID, other, alone])
    assert [len(result.entries) for result in results] == [1, 1, 0]
    assert [result.damage is None for result in results] == [False, True, False]
    with pytest.raises(DirectoryDamaged, match="cannot be decoded"):
        results[0].raise_damage()
    for binding in (directory.lookup_name("s", "r", "name"), directory.sessions(session_reference("s", "r"))):
        assert len(binding.entries) == 1
        assert isinstance(binding.damage, DirectoryDamaged)
    page = directory.list_objects()
    assert {place.oid for place in page.entries} == {OID, other}
    assert len(page.damage) == 3
    names = directory.list_names("s", "r")
    assert [binding.name for binding in names.entries] == ["name", "other"]
    assert len(names.damage) == 1
    while not directory.sweep():
        pass
    assert len(directory.list_objects().entries) == 2


def test_a_damaged_instance_is_reported_and_can_register_again(directory: Directory, join: Join) -> None:
    join(directory, 1).publish([PlaceEntry(OID, 1, 1)])
    join(directory, 2).publish([PlaceEntry(OID, 1, 1)])
    key, _ = directory._backend.read_prefixes([b"i"])[0][0]
    _overwrite(directory, key, b"garbage")
    with directory.watch() as watch:
        assert len(watch.wait(10.0)) == 1
    assert len(directory.instances()) == 1
    (damage,) = directory.damaged_instances()
    assert "cannot be decoded" in str(damage)
    assert len(directory.places([OID])[0].entries) == 1
    for number in (1, 2):
        registration = join(directory, number)
        registration.publish([PlaceEntry(OID, 1, 1)])
    with directory.watch() as watch:
        watch.wait(10.0)
    assert [instance.live for instance in directory.instances()] == [True, True]
    assert directory.damaged_instances() == []
    assert len(directory.places([OID])[0].entries) == 2


def _overwrite(directory: Directory, key: bytes, value: bytes) -> None:
    """Write what another program would."""
    before = directory._backend.read([key])[0]
    assert directory._backend.swap({key: before}, {key: value})
