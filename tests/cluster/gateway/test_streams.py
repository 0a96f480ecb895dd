"""Streams whose writers and readers are on several hosts: what they promise while everybody lives."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import entrepot
import numpy as np
import pytest
from entrepot.errors import (
    InvalidArgument,
    NotSealed,
    ObjectNotFound,
    StoreUnavailable,
    StreamEnded,
    StreamFailed,
    Timeout,
)

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]
PATIENCE = 60.0


def in_thread(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Run a function in a thread."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def shared(host: Any, name: str, **arguments: Any) -> Any:
    """Open a stream of the cluster."""
    return host.store.stream(name, cluster=True, **arguments)


def write_all(stream: Any, values: Any) -> None:
    with stream.writer() as writer:
        for value in values:
            writer.put(value)


def put_until_refused(writer: Any) -> None:
    """Put more than can be on its way."""
    for number in range(100):
        writer.put(number, timeout=PATIENCE)


def read_all(reader: Any) -> list[Any]:
    """Read to the end, which has to come."""
    values = []
    while True:
        try:
            values.append(reader.get(timeout=PATIENCE))
        except StreamEnded:
            return values


def state_of(host: Any, name: str) -> dict[str, Any]:
    """A stream as the status of a host's store has it."""
    (state,) = (each for each in host.store.status()["streams"] if each["name"] == name)
    return dict(state)


def relays_of(name: str, *hosts: Any) -> list[str]:
    return [
        each["name"] for host in hosts for each in host.store.status()["streams"] if each["name"].startswith(f"{name}@")
    ]


def test_values_arrive_as_they_were_put(lasting_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = lasting_hosts
    before = [host.store.status()["objects"] for host in (a, b)]
    values: list[Any] = [7, "text", [1, {"a": 2}], np.arange(1000), bytes(300_000), np.arange(500_000.0)]
    home = shared(a, "values", capacity=3)
    remote = shared(b, "values")
    assert (remote.capacity, remote.writers, remote.keep) == (3, 1, False)
    with remote.reader("model") as reader:
        written = in_thread(write_all, home, values)
        for number, value in enumerate(values):
            got = reader.get(timeout=PATIENCE)
            assert type(got) is type(value)
            assert np.array_equal(got, value) if isinstance(value, np.ndarray) else got == value
            assert (reader.position, reader.redelivered) == (number, False)
        with pytest.raises(StreamEnded):
            reader.get(timeout=PATIENCE)
        written.result(PATIENCE)
    assert remote.ended
    wait_until(lambda: not relays_of("values", a, b), "the relays to be removed")
    remote.remove()
    with pytest.raises(ObjectNotFound):
        remote.remove()
    for host, objects in zip((a, b), before, strict=True):
        assert host.store.list("stream:values") == []
        assert host.store.status()["objects"] <= objects


def test_a_writer_on_another_host(lasting_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = lasting_hosts
    home, remote = shared(a, "far"), shared(b, "far")
    written = in_thread(write_all, remote, (np.full(20_000, number) for number in range(40)))
    with home.reader("model") as reader:
        assert [int(value[0]) for value in reader] == list(range(40))
    written.result(PATIENCE)
    wait_until(lambda: not relays_of("far", a, b), "the relays to be removed")


def test_both_ends_far_from_the_stream(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    shared(a, "both", capacity=2)
    remote = shared(b, "both")
    written = in_thread(write_all, remote, ([number, bytes(1000 * number)] for number in range(30)))
    with remote.reader("model") as reader:
        assert [value[0] for value in reader] == list(range(30))
    written.result(PATIENCE)


@pytest.mark.parametrize(("limits", "on_their_way"), [({"capacity": 2}, 2), ({"capacity_bytes": 1_500_000}, 1)])
def test_a_full_stream_makes_far_writers_wait(
    lasting_hosts: Any, limits: dict[str, int], on_their_way: int, wait_until: Callable[..., None]
) -> None:
    a, b = lasting_hosts
    name = f"full {next(iter(limits))}"
    home, remote = shared(a, name, **limits), shared(b, name)
    writer = remote.writer()
    for number in range(2 + on_their_way):  # two are in it, and these wait at the gateway
        writer.put(np.full(80_000, number), timeout=PATIENCE)
    wait_until(lambda: state_of(a, name)["chunks"] == 2, "the stream to be full")
    for _ in range(2):
        with pytest.raises(Timeout):
            writer.put("not put", timeout=0.1)
    assert state_of(a, name)["chunks"] == 2
    with home.reader("model") as reader:
        assert int(reader.get(timeout=PATIENCE)[0]) == 0
        reader.ack()
        writer.put(np.full(80_000, 2 + on_their_way), timeout=PATIENCE)
        closed = in_thread(writer.close)
        assert [int(value[0]) for value in reader] == list(range(1, 3 + on_their_way))
        closed.result(PATIENCE)


def test_each_group_gets_every_chunk_once(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    groups = ["first", "second"]
    shared(a, "groups", capacity=4, writers=4, groups=groups)

    def read(host: Any, group: str) -> list[int]:
        with shared(host, "groups").reader(group) as reader:
            return [value["number"] for value in reader]

    with ThreadPoolExecutor(12) as pool:
        reads = {group: [pool.submit(read, host, group) for host in (a, b) for _ in range(2)] for group in groups}
        writes = [
            pool.submit(write_all, shared(host, "groups"), [{"number": 100 * number + i} for i in range(25)])
            for number, host in enumerate([a, b, b, a])
        ]
        for write in writes:
            write.result(PATIENCE)
        for group in groups:
            parts = [read.result(PATIENCE) for read in reads[group]]
            everything = sorted(number for part in parts for number in part)
            assert everything == [100 * writer + i for writer in range(4) for i in range(25)]
            for part in parts:  # in the order of each writer
                for writer in range(4):
                    of_writer = [number for number in part if number // 100 == writer]
                    assert of_writer == sorted(of_writer)


def test_what_was_not_consumed_goes_back(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    home, remote = shared(a, "back"), shared(b, "back")
    write_all(home, range(5))
    first = remote.reader("model")
    assert [first.get(timeout=PATIENCE), first.get(timeout=PATIENCE)] == [0, 1]
    first.ack()
    assert first.get(timeout=PATIENCE) == 2
    first.close()
    assert first.closed
    with pytest.raises(InvalidArgument, match="closed"):
        first.get()
    with home.reader("model") as second:
        seen = []
        for value in second:
            seen.append((value, second.redelivered))
    assert sorted(value for value, _ in seen) == [2, 3, 4]  # 3 first, if the home heard of the close after a second
    assert dict(seen)[2]


def test_a_get_that_timed_out_goes_on(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    home, remote = shared(a, "patient"), shared(b, "patient")
    with remote.reader("model") as reader, home.writer() as writer:
        for timeout in (0, 0.05):
            with pytest.raises(Timeout):
                reader.get(timeout=timeout)
        writer.put("late")
        assert reader.get(timeout=PATIENCE) == "late"


def test_a_group_that_comes_late(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    home, remote = shared(a, "late"), shared(b, "late")
    write_all(home, range(3))
    with home.reader("first") as first:
        assert [first.get(), first.get()] == [0, 1]
    with pytest.raises(InvalidArgument, match="late"):
        remote.reader("second")
    with remote.reader("second", late=True) as second:
        assert second.missed == 2
        assert list(second) == [2]
    assert not relays_of("late", b) or second.closed


def test_a_writer_that_gives_up_fails_the_stream(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    home, remote = shared(a, "given up", writers=2), shared(b, "given up")
    reader, other, writer = home.reader("model"), remote.reader("other"), remote.writer()
    waits = [in_thread(reader.get), in_thread(other.get)]
    try:
        with writer:
            raise ValueError("no more frames")
    except ValueError:
        pass
    for wait in waits:
        with pytest.raises(StreamFailed, match="no more frames"):
            wait.result(PATIENCE)
    with pytest.raises(StreamFailed, match="no more frames"):
        remote.writer()
    with pytest.raises(StreamFailed, match="no more frames"):
        other.get()


def test_a_stream_that_fails_at_home_fails_far_writers(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    home, remote = shared(a, "removed"), shared(b, "removed")
    writer = remote.writer()
    writer.put("in it", timeout=PATIENCE)
    home.remove()
    with pytest.raises(StreamFailed, match="removed"):
        put_until_refused(writer)
    with pytest.raises(StreamFailed, match="removed"):
        writer.close()


def test_a_dropped_writer_fails_the_stream(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    home, remote = shared(a, "dropped"), shared(b, "dropped")
    reader, writer = home.reader("model"), remote.writer()
    writer.put(1)
    del writer
    with pytest.raises(StreamFailed, match=r"on host b, a writer .* without close"):
        read_all(reader)


def test_chunks_are_kept_and_sealed_from_anywhere(lasting_hosts: Any, wait_until: Callable[..., None]) -> None:
    a, b = lasting_hosts
    home, remote = shared(a, "rows", keep=True, writers=2), shared(b, "rows")
    assert remote.keep
    with home.reader("sum") as reader:
        with remote.writer() as far, home.writer() as near:
            for number in range(4):
                far.put({"row": np.full(100_000, 2 * number)}, timeout=PATIENCE)
                assert int(reader.get(timeout=PATIENCE)["row"][0]) == 2 * number
                near.put({"row": np.full(100, 2 * number + 1)})
                assert int(reader.get(timeout=PATIENCE)["row"][0]) == 2 * number + 1
                with pytest.raises(NotSealed):
                    remote.seal()
        with pytest.raises(StreamEnded):
            reader.get(timeout=PATIENCE)
    sealed = remote.seal()
    assert [int(value["row"][0]) for value in sealed] == list(range(8))
    assert [int(value["row"][-1]) for value in a.store.get_by_name("rows")] == list(range(8))
    with pytest.raises(InvalidArgument, match="keep"):
        shared(b, "unkept").seal()


def test_streams_of_a_cluster_session_are_streams_of_the_cluster(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    with (
        entrepot.connect(a.address, session="run", cluster=True) as near_store,
        entrepot.connect(b.address, session="run", cluster=True) as far_store,
    ):
        written = in_thread(write_all, near_store.stream("s"), range(3))
        with far_store.stream("s").reader("all") as reader:
            assert list(reader) == [0, 1, 2]
        written.result(PATIENCE)
        with far_store.stream("mine", cluster=False).writer() as writer:
            writer.put(1)
        with pytest.raises(ObjectNotFound):
            near_store.stream("mine", create=False)


def test_two_hosts_that_create_a_stream_at_once_agree(lasting_hosts: Any) -> None:
    hosts = lasting_hosts
    with ThreadPoolExecutor(4) as pool:
        for number in range(12):
            name = f"at once {number}"
            begin = threading.Barrier(4)

            def create(host: Any, name: str = name, begin: threading.Barrier = begin) -> Any:
                begin.wait(PATIENCE)
                return shared(host, name, writers=4)

            streams = [opened.result(PATIENCE) for opened in [pool.submit(create, host) for host in hosts * 2]]
            for write in [pool.submit(write_all, stream, [index]) for index, stream in enumerate(streams)]:
                write.result(PATIENCE)
            with streams[0].reader("all") as reader:
                assert sorted(reader.get(timeout=PATIENCE) for _ in range(4)) == [0, 1, 2, 3]
            streams[1].remove()


def test_arguments_are_checked_by_the_home(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    with pytest.raises(ObjectNotFound):
        shared(b, "none", create=False)
    shared(a, "limits", capacity=4, writers=1)
    with pytest.raises(InvalidArgument, match="capacity"):
        shared(b, "limits", capacity=5)
    remote = shared(b, "limits")
    writer = remote.writer()
    with pytest.raises(InvalidArgument, match="writers"):
        remote.writer()
    with pytest.raises(InvalidArgument, match="writers"):
        shared(a, "limits").writer()
    writer.close()
    assert len(relays_of("limits", b)) <= 2  # those of the refused writer are gone
    replaced = shared(b, "limits", replace=True, capacity=7)
    assert shared(a, "limits").capacity == replaced.capacity == 7


def test_relays_are_listed(lasting_hosts: Any) -> None:
    a, b = lasting_hosts
    shared(a, "listed")
    with shared(b, "listed").writer():
        command = [sys.executable, "-m", "entrepot", "ls", "--address", b.address, "--streams", "--json", "listed@*"]
        listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
        assert [each["state"] for each in listed] == ["open", "open"]
        assert all(each["name"].startswith("listed@a#") for each in listed)


def test_a_store_without_a_gateway_says_so(cluster: Any) -> None:
    host = cluster.host("alone", gateway=False)
    with pytest.raises(StoreUnavailable, match="has no gateway"):
        shared(host, "frames")
    assert host.store.stream("frames").capacity == 16
