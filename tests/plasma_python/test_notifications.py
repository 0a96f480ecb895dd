"""``subscribe`` and notifications."""

from __future__ import annotations

import collections
import struct
import threading
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot import plasma
from entrepot.plasma import notifications


def test_what_this_process_does_is_reported_in_order(client: plasma.PlasmaClient, socket_name: str) -> None:
    other = plasma.connect(socket_name)
    client.subscribe()
    created = plasma.ObjectID.from_random()
    other.create(created, 10, b"meta")
    client.put_raw_buffer(b"first", first := plasma.ObjectID.from_random(), b"m")
    other.seal(created)
    big = other.put(np.zeros(10_000))
    size = other.get_buffers([big])[0].size
    other.delete([created])
    client.put_raw_buffer(b"again", created)
    expected = [(first, 5, 1), (created, 10, 4), (big, size, 0), (created, -1, -1), (created, 5, 0)]
    assert [client.get_next_notification() for _ in expected] == expected
    assert other.evict(5) == 5 + 1
    assert client.get_next_notification() == (first, -1, -1)
    other.disconnect()


def test_what_is_there_and_what_others_do_is_reported(client: plasma.PlasmaClient, store: Any, start: Any) -> None:
    before = client.put_raw_buffer(b"before")
    store.put(np.zeros(10_000))  # not a Plasma object
    client.subscribe()
    assert client.get_next_notification() == (before, 6, 0)
    other = start(
        """
        client.put_raw_buffer(b"12345", ids[0], b"m")
        client.put_raw_buffer(b"123", ids[1])
        sys.stdin.readline()
        client.delete(ids[:1])
        sys.stdin.readline()
        """,
        *(ids := [plasma.ObjectID.from_random() for _ in range(2)]),
    )
    assert client.get_next_notification() == (ids[0], 5, 1)
    assert client.get_next_notification() == (ids[1], 3, 0)
    other.stdin.write("\n")
    other.stdin.flush()
    assert client.get_next_notification() == (ids[0], -1, -1)
    store.delete(ids[1].binary())  # by Entrepot's own interface
    assert client.get_next_notification() == (ids[1], -1, -1)


def test_notifications_are_read_from_the_socket(client: plasma.PlasmaClient) -> None:
    client.subscribe()
    oid = client.put_raw_buffer(b"12", metadata=b"345")
    with client.get_notification_socket() as socket:
        (length,) = struct.unpack("L", socket.recv(8))
        content = socket.recv(length)
    assert client.decode_notifications(content) == ([oid], [2], [3])
    assert client.decode_notifications(content * 2) == ([oid] * 2, [2] * 2, [3] * 2)
    for damaged in (b"", content[:-1]):
        with pytest.raises(entrepot.InvalidArgument, match="multiple of 36 bytes"):
            client.decode_notifications(damaged)


def test_without_a_subscription_there_are_none(client: plasma.PlasmaClient) -> None:
    for call in (client.get_next_notification, client.get_notification_socket):
        with pytest.raises(entrepot.InvalidArgument, match=r"call subscribe\(\) first"):
            call()


def test_disconnect_ends_a_wait(client: plasma.PlasmaClient) -> None:
    client.subscribe()
    failures: list[Exception] = []

    def wait() -> None:
        try:
            client.get_next_notification()
        except Exception as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    client.disconnect()
    waiting.join(30)
    assert [type(error) for error in failures] in ([entrepot.StoreUnavailable], [entrepot.InvalidArgument])


def test_a_subscriber_that_does_not_read_is_cut_off(
    client: plasma.PlasmaClient, socket_name: str, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    monkeypatch.setattr(notifications, "MAX_UNREAD", 50)
    other = plasma.connect(socket_name)
    client.subscribe()
    client.put(1)
    client.get_next_notification()
    subscription = client._subscription
    assert subscription is not None

    def put_until_ended() -> bool:
        for _ in range(500):
            other.create_and_seal(plasma.ObjectID.from_random(), b"")
        return not subscription._thread.is_alive()

    wait_until(put_until_ended, "the subscription to end")
    with pytest.raises(entrepot.StoreUnavailable, match="let more than 50 notifications wait"):
        collections.deque(iter(client.get_next_notification, None), maxlen=0)
    other.put(2)  # nobody else notices
    other.evict(1 << 30)
    client.subscribe()
    oid = other.put_raw_buffer(b"new")
    assert client.get_next_notification() == (oid, 3, 0)
    other.disconnect()


def test_a_second_subscription_takes_the_place_of_the_first(client: plasma.PlasmaClient) -> None:
    client.subscribe()
    first = client._subscription
    client.subscribe()
    assert first is not None
    first._thread.join(30)
    assert not first._thread.is_alive()
    oid = client.put_raw_buffer(b"x")
    assert client.get_next_notification() == (oid, 1, 0)
