"""Streams between processes of which some are killed at random: nothing is lost, and no failure looks like an end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable

import entrepot
import pytest
from spawned_programs import read_line, send_line

CHUNKS = 150  # of each writer
Spawn = Callable[..., subprocess.Popen[str]]

WRITER = """
    first, count = int(sys.argv[1]), int(sys.argv[2])
    with store.stream("x").writer() as writer:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(first, first + count):
            writer.put({"number": number, "rest": bytes(20_000 * (number % 3))})
    print("done", flush=True)
"""

READER = """
    try:
        with store.stream("x").reader(sys.argv[1]) as reader:
            print("ready", flush=True)
            for value in reader:
                print(value["number"], flush=True)
        print("end", flush=True)
    except entrepot.StreamFailed as error:
        print(type(error).__name__, flush=True)
"""


class Reader:
    """A process that reads for a group; what it prints is collected as the test asks for it."""

    def __init__(self, spawn: Spawn, group: str) -> None:
        self.group = group
        self.process = spawn(READER, group)
        self.lines: list[str] = []
        assert read_line(self.process) == "ready"

    def kill(self) -> None:
        self.process.kill()
        self.rest()

    def rest(self) -> list[str]:
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().split()
        self.process.wait(timeout=60)
        return self.lines

    def follow(self, count: int) -> None:
        for _ in range(count):
            line = read_line(self.process)
            if not line:
                return
            self.lines.append(line)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_readers_lose_nothing_and_repeat_at_most_one_chunk_each(
    store: entrepot.Store, spawn: Spawn, seed: int
) -> None:
    rng = random.Random(seed)
    groups = ["a", "b"]
    store.stream("x", capacity=rng.choice([1, 3, 8]), writers=3, groups=groups)
    writers = [spawn(WRITER, 1000 * number, CHUNKS) for number in range(3)]
    readers = [Reader(spawn, group) for group in groups for _ in range(2)]
    for writer in writers:
        assert read_line(writer) == "ready"
    for writer in writers:
        send_line(writer)
    kills: Counter[str] = Counter()
    everyone = list(readers)
    for _ in range(6):
        victim = rng.choice(readers)
        victim.follow(rng.randrange(1, 15))
        victim.kill()
        if "end" not in victim.lines:
            kills[victim.group] += 1
        readers.remove(victim)
        readers.append(Reader(spawn, victim.group))
        everyone.append(readers[-1])
    for reader in readers:
        assert reader.rest()[-1] == "end"
    for writer in writers:
        assert read_line(writer) == "done"
    expected = {1000 * writer + number for writer in range(3) for number in range(CHUNKS)}
    for group in groups:
        received = [int(line) for reader in everyone if reader.group == group for line in reader.lines if line != "end"]
        assert set(received) == expected
        assert len(received) - len(expected) <= kills[group]
    assert store.status()["objects"] == 0


def test_a_killed_writer_fails_all_readers_wherever_it_was(store: entrepot.Store, spawn: Spawn) -> None:
    for kill_after in (0, 3, 40):
        store.stream("x", capacity=2, writers=2, groups=["a", "b"], replace=True)
        # More than they can write before the kill, however late this process gets to it.
        writers = [spawn(WRITER, 1000 * number, 100_000) for number in range(2)]
        readers = [Reader(spawn, group) for group in ("a", "a", "b")]
        for writer in writers:
            assert read_line(writer) == "ready"
            send_line(writer)
        readers[2].follow(kill_after)
        writers[0].kill()
        for reader in readers:
            assert reader.rest()[-1] == "StreamFailed"
        writers[1].wait(timeout=60)
        assert writers[1].returncode != 0
    assert store.status()["objects"] == 0


def test_nobody_waits_for_a_daemon_that_was_killed(store: entrepot.Store, spawn: Spawn) -> None:
    store.stream("x", capacity=2, writers=1, groups=["a", "b"])
    writer, readers = spawn(WRITER, 0, 100_000), [Reader(spawn, group) for group in ("a", "b")]
    assert read_line(writer) == "ready"
    send_line(writer)
    readers[0].follow(20)
    os.kill(store.status()["pid"], signal.SIGKILL)
    for reader in readers:
        assert reader.rest()[-1] == "StreamLost"
    assert writer.wait(timeout=60) != 0
    assert store.status()["streams"] == []
