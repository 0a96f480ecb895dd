"""Memory of process trees, measured for real processes and for fake /proc files."""

from __future__ import annotations

import itertools
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.flights.measure import memory

MIB = 1024 * 1024
# A parent that holds a memfd whose pages are not mapped, and a child with private memory.
_PROGRAM = """
import mmap, os, subprocess, sys
fd = os.memfd_create("held")
os.ftruncate(fd, 24 << 20)
with mmap.mmap(fd, 24 << 20) as mapped:
    for at in range(0, 24 << 20, mmap.PAGESIZE):
        mapped[at] = 1
code = "import time; held = bytearray(b'x') * (32 << 20); print('ready', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
print(child.stdout.readline().decode().strip(), flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


@pytest.fixture
def family() -> Iterator[int]:
    """PID of a process that runs the program above."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"
        yield process.pid
        process.communicate(timeout=30)


def _sample(root: int) -> memory.Sample:
    return memory.sample(root)


def test_tree_is_summed_with_memory_files_that_nobody_maps(family: int) -> None:
    sample = _sample(os.getpid())
    assert sample.processes >= 2
    assert sample.files >= 24 * MIB
    assert sample.pss >= 32 * MIB
    assert sample.total >= 56 * MIB
    # Only descendants count: the child, but neither its parent's memfd nor this process.
    child = _sample(family)
    assert child.processes == 1
    assert child.files == 0
    assert 32 * MIB <= child.total < 56 * MIB


def test_sampler_is_left_out(family: int) -> None:
    with_it = _sample(os.getpid())
    without = memory.sample(os.getpid(), excluded=family)
    assert with_it.processes - without.processes == 2


def test_pages_are_not_counted_twice() -> None:
    unmapped = memory.Sample(0.0, 1, pss=100, shared=30, files=50)
    mapped = memory.Sample(0.0, 1, pss=100, shared=50, files=50)
    other = memory.Sample(0.0, 1, pss=100, shared=60, files=50)
    assert (unmapped.total, mapped.total, other.total) == (120, 100, 100)


def test_memory_file_shared_by_two_counts_once(tmp_path: Path) -> None:
    fd = os.memfd_create("shared")
    try:
        os.ftruncate(fd, MIB)
        with mmap.mmap(fd, MIB) as mapped:
            mapped[:] = b"x" * MIB
            proc = tmp_path
            for pid, parent in ((10, 1), (11, 10), (12, 10)):
                (proc / str(pid) / "fd").mkdir(parents=True)
                (proc / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 1 1")
                (proc / str(pid) / "smaps_rollup").write_text("0 [rollup]\nPss: 8 kB\nPss_Shmem: 2 kB\n")
                (proc / str(pid) / "fd" / "3").symlink_to("/nowhere")
            (proc / "meminfo").write_text("")
            sample = memory.sample(10, proc=proc)
            assert (sample.processes, sample.pss, sample.shared, sample.files) == (2, 16 * 1024, 4 * 1024, 0)
            memory_files = memory.memory_files(os.getpid())
            assert memory_files[os.fstat(fd).st_dev, os.fstat(fd).st_ino] == MIB
    finally:
        os.close(fd)


def test_rollup_reads_the_kernels_text() -> None:
    text = "559ba80a6000-7fff8a140000 ---p 0 00:00 0 [rollup]\nRss: 10 kB\nPss: 7 kB\nPss_Anon: 2 kB\nPss_Shmem: 3 kB\n"
    assert memory.rollup(text) == (7 * 1024, 3 * 1024)


def _wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_sampler_writes_until_terminated(tmp_path: Path, family: int) -> None:
    out = tmp_path / "samples.jsonl"
    command = [sys.executable, "-m", "examples.flights.measure.memory", "--out", str(out), "--interval", "0.02"]
    with subprocess.Popen([*command, str(family)]) as sampler:
        _wait_until(lambda: len(memory.read_samples(out)) >= 3)
        sampler.terminate()
        assert sampler.wait(30) == 0
    samples = memory.read_samples(out)
    assert all(earlier.time < later.time for earlier, later in itertools.pairwise(samples))
    assert samples[-1].total >= 32 * MIB


def test_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    out = tmp_path / "samples.jsonl"
    assert memory.read_samples(out) == []
    out.write_text('{"time": 1.0, "processes": 1, "pss": 5, "shared": 0, "files": 0}\n{"time": 2.0, "proc')
    assert [sample.pss for sample in memory.read_samples(out)] == [5]
