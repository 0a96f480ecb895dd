"""The front end, alone or together with the store's daemon, is killed while two of Plasma's own clients put objects."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import entrepot
import pytest

from benchmarks.commands.plasma_restart import restarts

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20
ROUNDS = 3
OBJECTS_BEFORE_KILL = 150  # of each round, by both clients
TOO_MANY = 100_000  # which no client gets to

# In the clients: put objects until the server is gone, one way and the other, and read some of them.
LOAD = """
def numbered(number):
    return plasma.ObjectID(b"under-load-%09d" % number)

def content(number):
    return (b"%d," % number) * (number % 7 * 1000 + 1)

def load(first, count):
    sealed = []
    try:
        for number in range(first, first + count):
            data = content(number)
            if number % 2:
                client.create_and_seal(numbered(number), data, b"meta")
            else:
                buffer = client.create(numbered(number), len(data), metadata=b"meta")
                memoryview(buffer).cast("B")[:] = data
                client.seal(numbered(number))
                del buffer
            sealed.append(number)
            if number % 5 == 0:
                assert client.get_buffers([numbered(number)])[0].to_pybytes() == data
    except OSError:
        pass
    return sealed

def wrong(numbers, timeout_ms):
    found = client.get_buffers([numbered(number) for number in numbers], with_meta=True, timeout_ms=timeout_ms)
    return [
        number
        for number, (meta, data) in zip(numbers, found)
        if data is None or data.to_pybytes() != content(number) or meta != b"meta"
    ]
"""


def loaded(stock_client: Callable[[Any], Any], front_end: Any) -> Any:
    client = stock_client(front_end)
    client.run(LOAD)
    return client


def test_the_one_that_is_started_in_its_place_has_every_sealed_object() -> None:
    # Reads every object, compares its bytes, and measures how long that took, which is the benchmark's figure.
    deaths = restarts(2, 50, 2)
    assert all(death.milliseconds > 0 and death.put_under_load > 0 for death in deaths)


@pytest.mark.parametrize("with_daemon", [False, True], ids=["front end", "front end and daemon"])
def test_every_sealed_object_is_there_after_the_restart(
    daemon: Any,
    new_front_end: Any,
    stock_client: Callable[[Any], Any],
    wait_until: Callable[..., None],
    with_daemon: bool,
) -> None:
    front_end = new_front_end(64 * MIB)
    sealed: list[int] = []
    with entrepot.connect(daemon.address) as store:
        for each in range(ROUNDS):
            before = store.status()["objects"]
            firsts = [(2 * each + client) * TOO_MANY for client in range(2)]
            clients = [loaded(stock_client, front_end) for _ in firsts]
            for client, first in zip(clients, firsts, strict=True):
                client.send(f"load({first}, {TOO_MANY})")
            wait_until(
                lambda before=before: store.status()["objects"] >= before + OBJECTS_BEFORE_KILL, "objects to be put"
            )
            killed = store.status()["pid"]
            if with_daemon:
                os.kill(killed, signal.SIGKILL)
            front_end.kill()
            for client, first in zip(clients, firsts, strict=True):
                done = client.receive()
                assert 0 < len(done) < TOO_MANY
                assert done == list(range(first, first + len(done)))
                sealed += done
            front_end.start()
            reader = loaded(stock_client, front_end)
            for client_first in firsts:
                number = client_first + sum(client_first <= done < client_first + TOO_MANY for done in sealed)
                # Of the one that it was about to put, there is all or nothing.
                assert reader.run(f"client.contains(numbered({number})) and wrong([{number}], 10_000)") in (False, [])
            assert reader.run(f"wrong({sealed}, 10_000)") == []
            assert reader.run(f"wrong([{TOO_MANY - 1}], 0)") == [TOO_MANY - 1]  # nobody got to it
            assert (store.status()["pid"] != killed) is with_daemon
        front_end.stop()
        wait_until(lambda: store.status()["pinned_bytes"] == 0, "the pins of the front ends to end")
