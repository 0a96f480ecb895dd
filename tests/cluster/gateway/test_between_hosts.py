"""Gateways on hosts with networks of their own, which are cut, lossy and slow."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from entrepot.errors import AccessDenied, EntrepotError, ObjectLost, StoreUnavailable, StreamFailed
from entrepot_io.values import get_value, put_value

sys.path.insert(0, str(Path(__file__).parent.parent / "network"))
sys.path.insert(0, str(Path(__file__).parent.parent / "transport"))

from isolated_hosts import refusal, two_hosts

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.slow,
    pytest.mark.skipif(bool(refusal()), reason=refusal()),
]


@pytest.fixture
def networks() -> Iterator[tuple[Any, Any]]:
    """Two hosts without stores."""
    with two_hosts() as (first, second):
        yield first, second


@pytest.fixture
def hosts(cluster: Any, networks: tuple[Any, Any], tmp_path: Path) -> tuple[Any, Any]:
    """A store on each, and their gateways, which share a token."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    first, second = [
        cluster.host(
            name, "--listen", f"{network.address}:0", "--token-file", str(token), network=network, size="256MiB"
        )
        for name, network in zip("ab", networks, strict=True)
    ]
    return first, second


@pytest.mark.parametrize("direction", ["block_from", pytest.param("block_to", marks=pytest.mark.exhaustive)])
def test_a_partition_is_an_error_and_not_a_hang(
    hosts: tuple[Any, Any], networks: tuple[Any, Any], direction: str, wait_until: Callable[..., None]
) -> None:
    a, b = hosts
    before, during, after = [put_value(a.store, f"value {number}", np.full(300_000, number)) for number in range(3)]
    assert get_value(before, address=b.address)[0] == 0
    getattr(networks[1], direction)(networks[0])
    began = time.monotonic()
    with pytest.raises(ObjectLost, match="could not be fetched"):
        get_value(during, address=b.address)
    assert time.monotonic() - began < 60
    assert get_value(before, address=b.address)[0] == 0
    assert b.store.get(b.store.put("local")) == "local"
    networks[1].heal()

    def is_read() -> bool:
        try:
            return bool(get_value(after, address=b.address)[0] == 2)
        except EntrepotError:
            return False

    wait_until(is_read, "the other host to be reached again")
    assert get_value(during, address=b.address)[0] == 1


def test_lost_packets_lose_nothing(hosts: tuple[Any, Any], networks: tuple[Any, Any]) -> None:
    a, b = hosts
    networks[0].lose(2)
    networks[1].lose(2)
    values = [np.random.default_rng(number).integers(0, 255, 500_000, np.uint8) for number in range(20)]
    references = [put_value(a.store, f"value {number}", value) for number, value in enumerate(values)]
    for reference, value in zip(references, values, strict=True):
        assert np.array_equal(get_value(reference, address=b.address), value)


def test_the_gateway_is_killed_while_it_sends(
    hosts: tuple[Any, Any], networks: tuple[Any, Any], wait_until: Callable[..., None]
) -> None:
    a, b = hosts
    networks[0].set_rate("200mbit")
    large = put_value(a.store, "large", np.arange(10_000_000))  # 80 MB: three seconds
    errors: list[BaseException] = []

    def read() -> None:
        try:
            get_value(large, address=b.address)
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    end = time.monotonic() + 30
    while b.store.status()["unsealed_bytes"] + b.store.status()["leased_bytes"] < 80_000_000:
        assert time.monotonic() < end, "the transfer does not begin"
    a.kill_gateway()
    reader.join(60)
    assert len(errors) == 1
    assert isinstance(errors[0], ObjectLost)
    assert not b.store.exists(large.id)
    networks[0].set_rate("")
    a.start_gateway()
    wait_until(lambda: [place.is_live for place in b.store.locate(large.id)] == [True], "the other host to see it")
    assert get_value(large, address=b.address)[-1] == 9_999_999


def test_a_stream_over_a_lossy_network(hosts: tuple[Any, Any], networks: tuple[Any, Any]) -> None:
    a, b = hosts
    networks[0].lose(2)
    networks[1].lose(2)
    home, remote = [host.store.stream("lossy", capacity=4, writers=2, cluster=True) for host in (a, b)]

    def write(stream: Any, first: int) -> None:
        with stream.writer() as writer:
            for number in range(first, first + 10):
                writer.put(np.full(60_000, number))

    threads = [threading.Thread(target=write, args=each) for each in ((home, 0), (remote, 100))]
    for thread in threads:
        thread.start()
    with remote.reader("model") as reader:
        numbers = [int(value[0]) for value in reader]
    for thread in threads:
        thread.join(60)
    assert [number for number in numbers if number < 100] == list(range(10))
    assert [number for number in numbers if number >= 100] == list(range(100, 110))


@pytest.mark.exhaustive
def test_a_partition_fails_a_stream(hosts: tuple[Any, Any], networks: tuple[Any, Any]) -> None:
    a, b = hosts
    home, remote = [host.store.stream("cut", cluster=True) for host in (a, b)]
    errors: list[BaseException] = []

    def read() -> None:
        try:
            home_reader.get()
        except EntrepotError as error:
            errors.append(error)

    home_reader, reader, writer = home.reader("near"), remote.reader("far"), remote.writer()
    writer.put(1)
    assert home_reader.get(timeout=60) == reader.get(timeout=60) == 1
    networks[1].block_from(networks[0])
    waiting = threading.Thread(target=read)
    waiting.start()
    with pytest.raises(StoreUnavailable, match="host a"):
        reader.get(timeout=120)
    waiting.join(120)
    networks[1].heal()
    with pytest.raises((StoreUnavailable, StreamFailed)):
        writer.close()
    assert [type(error) for error in errors] == [StreamFailed]


def test_without_protection_only_loopback_is_allowed(cluster: Any, networks: tuple[Any, Any]) -> None:
    host = cluster.host("a", "--listen", f"{networks[0].address}:0", network=networks[0], gateway=False)
    host.start_gateway(wait=False)
    assert host.wait_gateway() != 0
    assert "--insecure" in host.log or "insecure" in host.log
    assert AccessDenied.__name__ not in host.log
