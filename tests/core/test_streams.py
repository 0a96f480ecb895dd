"""Streams: what one task writes, another one reads at the same time; nobody's death goes unnoticed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import entrepot
import numpy as np
import pyarrow as pa
import pytest
from entrepot.cli import main
from spawned_programs import read_line, send_line

MIB = 1 << 20


def listed(store: entrepot.Store, name: str = "x") -> dict[str, Any]:
    (stream,) = [entry for entry in store.status()["streams"] if entry["name"] == name]
    return dict(stream)


def write(store: entrepot.Store, values: list[Any], name: str = "x") -> None:
    with store.stream(name).writer() as writer:
        for value in values:
            writer.put(value, timeout=30)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def test_values_arrive_in_order_and_leave_nothing(store: entrepot.Store, threads: ThreadPoolExecutor) -> None:
    stream = store.stream("x", capacity=2)
    assert (stream.name, stream.capacity, stream.writers, stream.keep) == ("x", 2, 1, False)
    values = [1, "two", b"3", np.arange(4), np.ones(MIB), pa.table({"n": [5]}), {"six": [6, np.zeros(100_000)]}]
    written = threads.submit(write, store, values)
    with store.stream("x", create=False).reader("g") as reader:
        received = list(reader)
        with pytest.raises(entrepot.StreamEnded):
            reader.get()
    written.result()
    assert [type(value) for value in received] == [type(value) for value in values]
    assert received[:3] == values[:3]
    assert received[5] == values[5]
    assert received[4].sum() == MIB
    assert stream.ended
    assert store.status()["objects"] == 0
    assert listed(store)["state"] == "ended"


def test_a_writer_waits_for_room(store: entrepot.Store, threads: ThreadPoolExecutor, wait_until: Any) -> None:
    stream = store.stream("x", capacity=2)
    reader, writer = stream.reader("g"), stream.writer()
    for number in range(2):
        writer.put(number)
    with pytest.raises(entrepot.Timeout, match=r"2 chunks of 2 in it; group 'g' has not consumed 2"):
        writer.put("too many", timeout=0)
    with pytest.raises(entrepot.Timeout, match=r"within (19|20) ms"):
        writer.put("too many", timeout=0.02)
    assert store.status()["objects"] == 2, "what was refused is deleted"
    third = threads.submit(writer.put, 2, timeout=60)
    wait_until(lambda: listed(store)["writers_waiting"] == 1, "the writer to wait")
    assert reader.get() == 0
    assert not third.done(), "the chunk is in a hand, and counts until it is consumed"
    reader.ack()
    third.result(timeout=30)
    writer.close()
    assert list(reader) == [1, 2]


def test_each_chunk_goes_to_one_reader_of_each_group(store: entrepot.Store, threads: ThreadPoolExecutor) -> None:
    stream = store.stream("x", capacity=4, writers=3, groups=["a", "b"])

    def read(group: str) -> list[int]:
        with stream.reader(group) as reader:
            return list(reader)

    def produce(first: int) -> None:
        write(store, list(range(first, first + 50)))

    readers = [threads.submit(read, group) for group in ("a", "a", "b")]
    for written in [threads.submit(produce, first) for first in (0, 1000, 2000)]:
        written.result(timeout=60)
    first, second, alone = (future.result(timeout=60) for future in readers)
    expected = sorted([*range(50), *range(1000, 1050), *range(2000, 2050)])
    assert sorted(first + second) == expected
    assert sorted(alone) == expected
    for received in (first, second, alone):
        for start in (0, 1000, 2000):
            own = [number for number in received if start <= number < start + 50]
            assert own == sorted(own), "each writer's chunks in its order"


def test_a_value_made_in_the_store_is_sealed_in_place(store: entrepot.Store) -> None:
    stream = store.stream("x")
    reader = stream.reader("g")
    with stream.writer() as writer, store.allocating(), store.reserve(0) as reservation:
        value = np.full(4 * MIB, 3.0)
        writer.put(value)
        del value
        assert reservation.used >= 32 * MIB
    assert float(reader.get()[-1]) == 3.0


def test_a_value_stays_valid_after_its_chunk_was_deleted(store: entrepot.Store) -> None:
    with store.stream("x").writer() as writer:
        writer.put(np.arange(MIB))
    with store.stream("x").reader("g") as reader:
        value = reader.get()
    assert store.status()["objects"] == 0
    assert value[-1] == MIB - 1
    assert not value.flags.writeable


def test_a_group_that_comes_later(store: entrepot.Store) -> None:
    stream = store.stream("x")
    writer = stream.writer()
    for number in range(3):
        writer.put(number)
    with stream.reader("first") as first:
        assert first.get() == 0, "the first group gets what was written before it came"
    with pytest.raises(entrepot.InvalidArgument, match=r"group 'second' comes too late .* 1 chunk .* late=True"):
        stream.reader("second")
    second = stream.reader("second", late=True)
    assert second.missed == 1
    writer.close()
    assert list(second) == [1, 2]
    assert list(stream.reader("first")) == [1, 2]


def fail_with_a_chunk_in_hand(stream: entrepot.Stream) -> None:
    with stream.reader("g") as reader:
        assert (reader.get(), reader.redelivered) == (1, True)
        raise ZeroDivisionError


def test_what_a_reader_does_not_report_comes_back(store: entrepot.Store) -> None:
    write(store, [1, 2, 3])
    stream = store.stream("x")
    reader = stream.reader("g")
    assert (reader.get(), reader.position, reader.redelivered) == (1, 0, False)
    reader.close()
    reader.close()
    with pytest.raises(entrepot.InvalidArgument, match="was closed"):
        reader.get()
    with pytest.raises(ZeroDivisionError):
        fail_with_a_chunk_in_hand(stream)
    with stream.reader("g") as reader:
        assert (reader.get(), reader.redelivered) == (1, True)
    with stream.reader("g") as reader:
        assert (reader.get(), reader.position, reader.redelivered) == (2, 1, False), "the end of a block reports it"
        for value in reader:
            assert value == 3
            break
    reader = stream.reader("g")
    with pytest.raises(entrepot.StreamEnded):
        reader.get(timeout=0)


READER = """
    reader = store.stream("x").reader("g")
    print(reader.get(), flush=True)
    sys.stdin.readline()
"""


def test_a_dead_readers_chunk_goes_to_its_group(store: entrepot.Store, spawn: Callable[..., Any]) -> None:
    write(store, ["first", "second"])
    dead = spawn(READER)
    assert read_line(dead) == "first"
    with store.stream("x").reader("g") as reader:
        assert reader.get() == "second"
        with pytest.raises(entrepot.Timeout):
            reader.get(timeout=0)  # what the other has in hand may still come
        dead.kill()
        assert reader.get(timeout=30) == "first"
        assert reader.redelivered
        with pytest.raises(entrepot.StreamEnded):
            reader.get(timeout=0)


@pytest.mark.parametrize("ending", ["kill", "exception", "exit", "dropped"])
def test_a_dead_writer_is_an_error_and_never_an_end(
    store: entrepot.Store, spawn: Callable[..., Any], wait_until: Callable[..., None], ending: str
) -> None:
    stream = store.stream("x", writers=2)
    reader = stream.reader("g")
    bad = spawn(
        """
        stream = store.stream("x")
        writer = stream.writer()
        writer.put(1)
        sys.stdin.readline()
        if sys.argv[1] == "exception":
            with writer:
                raise ValueError("bad frame")
        if sys.argv[1] == "dropped":
            del writer
            sys.stdin.readline()
        """,
        ending,
    )
    assert reader.get(timeout=30) == 1
    good = stream.writer()
    if ending == "kill":
        bad.kill()
    else:
        send_line(bad)
    expected = {
        "exception": r"stream 'x' .* failed: a writer .* gave up: ValueError: bad frame",
        "dropped": "gave up: it was dropped without close",
    }.get(ending, "a writer .* (ended without closing it|gave up: it was dropped)")
    with pytest.raises(entrepot.StreamFailed, match=expected):
        reader.get(timeout=30)
    with pytest.raises(entrepot.StreamFailed, match=expected):
        good.put(2)
    with pytest.raises(entrepot.StreamFailed, match=expected):
        good.close()
    for opened in (stream.writer, lambda: stream.reader("g"), lambda: stream.ended):
        with pytest.raises(entrepot.StreamFailed, match=expected):
            opened()
    reader.close()
    wait_until(lambda: store.status()["objects"] == 0, "the end of its chunks")
    assert listed(store)["state"] == "failed"
    write_again = store.stream("x", replace=True)
    write(store, [7])
    assert list(write_again.reader("g")) == [7]


def test_a_wait_can_be_interrupted(store: entrepot.Store, spawn: Callable[..., Any], wait_until: Any) -> None:
    stream = store.stream("x", capacity=1, writers=2)
    interrupted = spawn(
        """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stream = store.stream("x")
        reader, writer = stream.reader("g"), stream.writer()
        for wait in (reader.get, lambda: writer.put(1), lambda: writer.put(2)):
            try:
                wait()
                print("done", flush=True)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        sys.stdin.readline()
        print(reader.get(), flush=True)
        writer.close()
        """
    )
    wait_until(lambda: [g["readers"] for g in listed(store)["groups"]] == [1], "the reader")
    wait_until(lambda: listed(store)["writers_open"] == 1, "the writer")
    wait_until(lambda: store.status()["waiting"] >= 1, "the reader to wait")
    interrupted.send_signal(signal.SIGINT)
    assert read_line(interrupted) == "interrupted"
    assert read_line(interrupted) == "done"
    wait_until(lambda: listed(store)["writers_waiting"] == 1, "the writer to wait")
    interrupted.send_signal(signal.SIGINT)
    assert read_line(interrupted) == "interrupted"
    assert listed(store)["writers_waiting"] == 0, "it gave up its place while it lives"
    assert store.status()["objects"] == 1, "what was not appended is deleted"
    send_line(interrupted)
    assert read_line(interrupted) == "1"
    stream.writer().close()
    assert interrupted.wait(30) == 0


def test_a_forked_child_has_to_open_its_own(store: entrepot.Store) -> None:
    stream = store.stream("x", writers=2)
    reader, writer = stream.reader("g"), stream.writer()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for use in (reader.get, reader.ack, writer.close, lambda: writer.put(1)):
                with pytest.raises(entrepot.InvalidArgument, match="before a fork"):
                    use()
            del writer, use
            with stream.writer() as own:
                own.put("of the child")
            status = 0
        finally:
            os._exit(status)
    assert reader.get(timeout=30) == "of the child"
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    writer.put("of the parent")
    writer.close()
    assert reader.get() == "of the parent"


def test_a_restarted_daemon_has_no_streams_and_says_so(
    store: entrepot.Store, threads: ThreadPoolExecutor, wait_until: Callable[..., None]
) -> None:
    full, empty = store.stream("full", capacity=1), store.stream("empty")
    writer, reader = full.writer(), empty.reader("g")
    in_hand = full.reader("g")
    writer.put(np.arange(MIB))
    value = in_hand.get()
    waiting = [threads.submit(writer.put, 2, timeout=60), threads.submit(reader.get, timeout=60)]
    wait_until(lambda: listed(store, "full")["writers_waiting"] == 1, "the writer to wait")
    wait_until(lambda: store.status()["waiting"] >= 2, "the reader to wait")
    os.kill(store.status()["pid"], signal.SIGKILL)
    for waited in waiting:
        with pytest.raises(entrepot.StreamLost, match="daemon was restarted"):
            waited.result(timeout=60)
    for use in (writer.close, in_hand.ack, full.writer, lambda: full.ended, lambda: in_hand.get(timeout=0)):
        with pytest.raises(entrepot.StreamLost):
            use()
    assert isinstance(entrepot.StreamLost(), entrepot.StreamFailed)
    assert value[-1] == MIB - 1
    assert store.status()["streams"] == []
    assert store.status()["objects"] == 1, "the chunk is an object like others, and ends with its session"
    with pytest.raises(entrepot.ObjectNotFound, match="restart of the daemon"):
        store.stream("full", create=False)
    write(store, [1], "full")
    assert list(store.stream("full").reader("g")) == [1]


def test_a_full_store_waits_for_readers_and_spills_if_it_can(
    new_daemon: Callable[..., Any], threads: ThreadPoolExecutor, socket_folder: Any, tmp_path_factory: Any
) -> None:
    daemon = new_daemon("64MiB")
    with entrepot.connect(daemon.address, scope="tests") as store:
        stream = store.stream("x", capacity=100)
        written = threads.submit(write, store, [np.full(MIB, float(number)) for number in range(12)])  # 96 MiB
        total = 0.0
        with stream.reader("g") as reader:
            for value in reader:
                total += float(value[0])
                del value
        written.result(timeout=60)
        assert total == sum(range(12))
        with pytest.raises(entrepot.StoreFull):
            write_more_than_fits(store)
        assert store.status()["objects"] == 0, "it failed, so its chunks are gone"


def write_more_than_fits(store: entrepot.Store) -> None:
    with store.stream("y", capacity=100).writer() as writer:
        for _ in range(12):
            writer.put(np.ones(MIB), timeout=0.2)


def test_chunks_beyond_memory_are_spilled_and_read_back(new_daemon: Callable[..., Any], socket_folder: Any) -> None:
    daemon = new_daemon("64MiB", f"--spill-path={socket_folder}/spill")
    with entrepot.connect(daemon.address, scope="tests") as store:
        stream = store.stream("x", capacity=100)
        write(store, [np.full(MIB, float(number)) for number in range(12)])  # 96 MiB
        firsts = []
        for value in stream.reader("g"):
            firsts.append(float(value[0]))
            del value
        assert firsts == list(range(12))
        assert store.status()["spill"]["loads"] > 0
        assert store.status()["objects"] == 0


def test_kept_chunks_become_a_collection(store: entrepot.Store) -> None:
    stream = store.stream("rows", keep=True)
    with stream.writer() as writer:
        for number in range(3):
            writer.put(pa.table({"n": [number]}))
        with pytest.raises(entrepot.NotSealed, match="not all closed"):
            stream.seal()
    assert [table["n"][0].as_py() for table in stream.reader("g")] == [0, 1, 2]
    rows = stream.seal()
    assert len(rows) == 3
    assert store.get_by_name("rows").to_arrow()["n"].to_pylist() == [0, 1, 2]
    stream.remove()
    with pytest.raises(entrepot.ObjectExists, match="has members already"):
        store.stream("rows", keep=True)
    with store.stream("rows", keep=True, replace=True).writer() as writer:
        writer.put(pa.table({"n": [7]}))
    assert store.stream("rows").seal().to_arrow()["n"].to_pylist() == [7]


def test_a_kept_chunk_that_found_no_room_leaves_no_gap(store: entrepot.Store) -> None:
    stream = store.stream("rows", keep=True, capacity=1)
    reader, writer = stream.reader("g"), stream.writer()
    writer.put("first")
    with pytest.raises(entrepot.Timeout):
        writer.put("refused", timeout=0)
    assert reader.get() == "first"
    reader.ack()
    writer.put("second")
    writer.close()
    assert list(stream.seal()) == ["first", "second"]


def test_only_kept_chunks_can_be_sealed(store: entrepot.Store) -> None:
    write(store, [1])
    with pytest.raises(entrepot.InvalidArgument, match="without keep=True"):
        store.stream("x").seal()


def test_arguments_are_checked(store: entrepot.Store) -> None:
    for arguments, text in [
        ({"capacity": 0}, "capacity must be at least 1"),
        ({"capacity": -1}, "capacity"),
        ({"capacity": 1 << 17}, "capacity"),
        ({"capacity": 1.5}, "capacity"),
        ({"capacity_bytes": 0}, "capacity_bytes must be at least 1"),
        ({"capacity_bytes": -1}, "the capacity of a stream in bytes"),
        ({"capacity_bytes": "3 apples"}, "a size must be"),
        ({"writers": 0}, "writers must be at least 1"),
        ({"groups": "a"}, r"pass \['a'\]"),
        ({"groups": [""]}, "1 to 255 bytes"),
        ({"groups": [f"g{number}" for number in range(65)]}, "64 groups"),
        ({"keep": 1}, "keep must be True or False"),
        ({"replace": "yes"}, "replace must be"),
    ]:
        with pytest.raises(entrepot.InvalidArgument, match=text):
            store.stream("x", **arguments)  # type: ignore[arg-type]
    for name in ("", "x" * 256, "\ud800", 5):
        with pytest.raises(entrepot.InvalidArgument, match="a name"):
            store.stream(name)  # type: ignore[arg-type]
    assert store.status()["streams"] == []
    stream = store.stream("x", capacity=3)
    with pytest.raises(entrepot.InvalidArgument, match=r"exists with capacity 3, but 4 is given"):
        store.stream("x", capacity=4)
    with (
        stream.writer() as writer,
        pytest.raises(entrepot.InvalidArgument, match=r"expects 1 writer, and 1 was opened"),
    ):
        stream.writer()
    assert writer.closed
    with pytest.raises(entrepot.InvalidArgument, match="was closed"):
        writer.put(1)
    writer.close()
    writer.abort()
    with entrepot.connect(store.address, allow_pickle=False) as strict:
        another = strict.stream("z").writer()
        with pytest.raises(entrepot.UnsupportedType):
            another.put(object())
        another.put("the next one")
        another.close()


def test_its_session_ends_it(store: entrepot.Store) -> None:
    with store.session("run") as run:
        reader = run.stream("x").reader("g")
        writer = run.stream("x").writer()
        writer.put(1)
        store.remove_session("run")
        with pytest.raises(entrepot.StreamFailed, match="session was removed"):
            reader.get()
        with pytest.raises(entrepot.StreamFailed):
            writer.close()


def test_removing_it_fails_whoever_uses_it(store: entrepot.Store, threads: ThreadPoolExecutor, wait_until: Any) -> None:
    stream = store.stream("x")
    reader = stream.reader("g")
    waiting = threads.submit(reader.get, timeout=60)
    wait_until(lambda: store.status()["waiting"] >= 1, "the reader to wait")
    stream.remove()
    with pytest.raises(entrepot.StreamFailed, match="it was removed"):
        waiting.result(timeout=30)
    with pytest.raises(entrepot.StreamLost):
        stream.writer()
    with pytest.raises(entrepot.ObjectNotFound):
        stream.remove()


def test_the_status_shows_streams(store: entrepot.Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--address", store.address]) == 0
    assert "streams" not in capsys.readouterr().out
    stream = store.stream("frames", capacity=5)
    reader, writer = stream.reader("model"), stream.writer()
    writer.put(1)
    assert main(["status", "--address", store.address]) == 0
    output = capsys.readouterr().out
    (line,) = [line for line in output.splitlines() if line.startswith("frames")]
    for text in ("open", "1 of 5", "1 open, 0 of 1 closed", "model 1"):
        assert text in line
    assert not reader.closed


def test_ls_lists_streams(store: entrepot.Store, capsys: pytest.CaptureFixture[str]) -> None:
    def listing(*options: str) -> str:
        assert main(["ls", "--streams", "--address", store.address, *options]) == 0
        return capsys.readouterr().out

    def names(*options: str) -> list[str]:
        return [entry["name"] for entry in json.loads(listing("--json", *options))]

    assert names("--scope", "tests", "--session", "") == []
    stream = store.stream("frames", capacity=1, capacity_bytes="1MiB", groups=["model"])
    failed = store.stream("failed")
    failed.writer().abort("no more\nframes")
    with store.session("run") as run, stream.writer() as writer:
        run.stream("rows")
        writer.put(bytes(100_000))
        here = ("--scope", "tests", "--session", "")
        assert names(*here) == ["failed", "frames"]
        assert names("f*", "--all") == ["failed", "frames"]
        assert names("--scope", "tests") == ["failed", "frames", "rows"]
        assert names("--scope", "tests", "--session", "run") == ["rows"]
        assert names("--scope", "another") == []
        lines = listing("--all").splitlines()
        (line,) = [line for line in lines if line.startswith("frames")]
        for text in ("open", "1 of 1", "97.7 KiB of 1.0 MiB", "1 open, 0 of 1 closed", "model 0"):
            assert text in line
        (note,) = [line for line in lines if "failed: a writer" in line]
        assert r"gave up: no more\nframes" in note
    assert main(["ls", "--streams", "--physical", "--address", store.address]) == 1
    assert "use only one" in capsys.readouterr().err


def test_a_writer_waits_for_room_in_bytes(
    store: entrepot.Store, threads: ThreadPoolExecutor, wait_until: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = store.stream("x", capacity_bytes=3 * MIB)
    assert (stream.capacity, stream.capacity_bytes) == (16, 3 * MIB)
    assert store.stream("x", capacity_bytes="3MiB").capacity_bytes == 3 * MIB
    with pytest.raises(entrepot.InvalidArgument, match="exists with capacity_bytes 3145728, but 1 is given"):
        store.stream("x", capacity_bytes=1)
    reader, writer = stream.reader("g"), stream.writer()
    writer.put(bytes(5 * MIB), timeout=30)  # one is always admitted
    with pytest.raises(entrepot.Timeout, match=r"1 chunk of 16 in it, 5 MiB of 3 MiB"):
        writer.put(bytes(1), timeout=0)
    assert store.status()["objects"] == 1, "what was refused is deleted"
    assert len(reader.get()) == 5 * MIB
    reader.ack()
    writer.put(bytes(2 * MIB), timeout=30)
    writer.put(bytes(MIB), timeout=30)
    waiting = threads.submit(writer.put, "small", timeout=60)
    wait_until(lambda: listed(store)["writers_waiting"] == 1, "the writer to wait")
    assert main(["ls", "--streams", "--all", "--address", store.address]) == 0
    assert "x is full: 1 writer waits; group g has not consumed 2" in capsys.readouterr().out
    assert len(reader.get()) == 2 * MIB
    assert not waiting.done()
    reader.ack()
    waiting.result(timeout=30)
    assert MIB < listed(store)["bytes"] < MIB + 1000, "small values count with their metadata"
    writer.close()
    assert [len(value) for value in reader] == [MIB, 5]
    assert listed(store)["bytes"] == 0
    assert store.stream("y").capacity_bytes is None


def test_threads_may_share_a_writer(store: entrepot.Store, threads: ThreadPoolExecutor) -> None:
    stream = store.stream("x", capacity=3)
    with stream.reader("g") as reader:
        received = threads.submit(list, reader)
        with stream.writer() as writer:
            for written in [threads.submit(writer.put, number) for number in range(100)]:
                written.result(timeout=60)
        assert sorted(received.result(timeout=60)) == list(range(100))
