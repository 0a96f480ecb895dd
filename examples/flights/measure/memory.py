"""Peak memory of process trees, sampled from ``/proc`` by a separate process.

A sample is the proportional set size (PSS) of all processes below the given one: a page that several of them share
counts once in all. Pages of memory files that no process has mapped are in no PSS, although they use memory; so if the
memory files that the processes have open have more pages than the PSS has shared ones, the difference is added. The
page cache of ordinary files is not counted: the kernel may drop it.

With ``--store``, each sample also has the store's own figures, which tell how much of that memory holds values.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType

INTERVAL_SECONDS = 0.2
PROC = Path("/proc")


@dataclass(frozen=True)
class Sample:
    """Memory at one moment, in bytes.

    Attributes:
        time: seconds since the epoch.
        processes: number of processes.
        pss: total proportional set size.
        shared: the part of it in shared memory.
        files: pages of all memory files that the processes hold open, each file once.
        stored: the store's values.
        leased: memory that the store has lent to processes that make values.
        kept: memory that the store has, but nobody uses (warm memory).
    """

    time: float
    processes: int
    pss: int
    shared: int
    files: int
    stored: int = 0
    leased: int = 0
    kept: int = 0

    @property
    def own(self) -> int:
        """Memory that is not the store's segments: that of the processes, including the store's, themselves."""
        return max(0, self.total - self.stored - self.leased - self.kept)

    @property
    def total(self) -> int:
        """Memory of the process trees: the PSS, plus pages of memory files that no process has mapped."""
        return self.pss + max(0, self.files - self.shared)


def parents(proc: Path = PROC) -> dict[int, int]:
    """The parent of every process."""
    by_pid: dict[int, int] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it ended meanwhile
        # The program's name, in parentheses, may contain spaces and parentheses.
        by_pid[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return by_pid


def tree(roots: Iterable[int], parent_of: dict[int, int]) -> set[int]:
    """The given processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for child, parent in parent_of.items():
        children.setdefault(parent, []).append(child)
    members: set[int] = set()
    pending = [root for root in roots if root in parent_of]
    while pending:
        pid = pending.pop()
        if pid not in members:
            members.add(pid)
            pending.extend(children.get(pid, []))
    return members


def rollup(text: str) -> tuple[int, int]:
    """PSS and its shared-memory part, in bytes, from the text of ``smaps_rollup``."""
    fields: dict[str, int] = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) * 1024
    return fields.get("Pss", 0), fields.get("Pss_Shmem", 0)


def memory_files(pid: int, proc: Path = PROC) -> dict[tuple[int, int], int]:
    """Bytes in pages of the memory files that a process holds open, by device and inode."""
    sizes: dict[tuple[int, int], int] = {}
    try:
        descriptors = os.listdir(proc / str(pid) / "fd")
    except OSError:
        return sizes
    for descriptor in descriptors:
        path = proc / str(pid) / "fd" / descriptor
        try:
            if not os.readlink(path).startswith("/memfd:"):
                continue
            status = os.stat(path)
        except OSError:
            continue
        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sizes


def sample(root: int, excluded: int = 0, proc: Path = PROC) -> Sample:
    """Take one sample of a process's descendants, without the process itself.

    Args:
        root: its ID.
        excluded: a process to exclude with all its descendants, such as the sampler.
        proc: mount point of procfs.
    """
    parent_of = parents(proc)
    pids = tree([root], parent_of) - {root} - (tree([excluded], parent_of) if excluded else set())
    pss = shared = counted = 0
    files: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            process_pss, process_shared = rollup((proc / str(pid) / "smaps_rollup").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue  # it ended meanwhile
        pss += process_pss
        shared += process_shared
        counted += 1
        files.update(memory_files(pid, proc))
    return Sample(time.time(), counted, pss, shared, sum(files.values()))


def with_store(taken: Sample, address: str | None) -> Sample:
    """A sample with the figures of the store at an address; as it is if no store answers there.

    Args:
        taken: the sample.
        address: ``unix:`` and a path; ``None``: there is no store.
    """
    if address is None or not Path(address.removeprefix("unix://")).exists():
        return taken
    import entrepot
    from entrepot.errors import StoreUnavailable, Timeout

    try:
        with entrepot.connect(address, scope="default") as store:
            status = store.status()
    except (StoreUnavailable, Timeout):
        return taken  # it is starting or ending
    payload = status["used_bytes"] - status["record_bytes"]
    leased = status["leased_bytes"]
    kept = max(0, status["budget"]["items"]["segments"] - payload - leased)
    return replace(taken, stored=payload, leased=leased, kept=kept)


def read_samples(file: Path) -> list[Sample]:
    """The samples that a sampler wrote, except an incomplete last line."""
    if not file.exists():
        return []
    whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
    return [Sample(**json.loads(line)) for line in whole.splitlines()]


def main() -> int:
    """The sampler: one line per sample until SIGTERM, or until the process has ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--interval", type=float, default=INTERVAL_SECONDS, help="seconds")
    parser.add_argument("--store", help="address of the store, if there is one at times")
    parser.add_argument("root", type=int, help="PID of the root of the process tree to measure")
    arguments = parser.parse_args()
    stop_requested = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal stop_requested
        stop_requested = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo stops it after the last figures
    with arguments.out.open("a", encoding="utf-8", buffering=1) as out:
        while not stop_requested:
            begin = time.monotonic()
            if not (PROC / str(arguments.root)).exists():
                break
            taken = with_store(sample(arguments.root, excluded=os.getpid()), arguments.store)
            out.write(json.dumps(asdict(taken)) + "\n")
            time.sleep(max(0.01, arguments.interval - (time.monotonic() - begin)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
