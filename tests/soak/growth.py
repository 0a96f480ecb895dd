"""Memory held over time by a process that makes values in the store, and a check that it does not grow."""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """What a process and its store hold at a time when all values are dropped and all objects deleted.

    Attributes:
        seconds: since the work began.
        waited: whether the process waited for the return of leases and of deleted objects' memory before it.
        values: allocations in the store.
        leased_bytes: as the store counts them.
        used_bytes: as the store counts them.
        mappings: lines of /proc/self/maps, without those of the store's segments.
        descriptors: open file descriptors, without those of the store's segments.
        segments: segments of the store of which the process has a mapping or a descriptor.
        most_mappings: the most mappings of any one segment.
        most_descriptors: the most descriptors of any one segment.
        private_bytes: resident memory that is the process's own: the kernel's "anonymous", with copy-on-write pages,
            without those of the store and of files.
    """

    seconds: float
    waited: bool
    values: int
    leased_bytes: int
    used_bytes: int
    mappings: int
    descriptors: int
    segments: int
    most_mappings: int
    most_descriptors: int
    private_bytes: int


# By how much each may exceed its greatest value of the warm-up phase. The allocators of the C library and of Arrow keep
# freed memory in the arenas of their threads, most of it after the store had refused memory.
BOUNDS = {
    "mappings": 40,
    "descriptors": 6,
    "private_bytes": 96 * MIB,
}
# What each may never exceed. A process keeps a read-only mapping and descriptor of each segment that it has read from,
# until its number is used again, and has another pair where it has a lease. When memory is short, a store makes many
# small segments.
LIMITS = {
    "segments": 256,  # of 2 MiB, the smallest size, in a store of 512 MiB
    "most_mappings": 3,  # a mapping with protected pages at its end counts twice
    "most_descriptors": 2,
    "leased_bytes": 384 * MIB,  # half of the store for values, and idle leases
}
WARM_UP_SECONDS = 60.0
LEAST_SAMPLES = 12
_SEGMENT = re.compile(r"memfd:entrepot-segment-(\d+)")


def memory_of_this_process() -> dict[str, int]:
    """Mappings, descriptors and private bytes of this process, as named in :class:`Sample`."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    targets: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
    mapped = Counter(match[1] for line in maps if (match := _SEGMENT.search(line)))
    opened = Counter(match[1] for target in targets if (match := _SEGMENT.search(target)))
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    (kilobytes,) = [int(line.split()[1]) for line in rollup if line.startswith("Anonymous:")]
    return {
        "mappings": len(maps) - mapped.total(),
        "descriptors": len(targets) - opened.total(),
        "segments": len(mapped | opened),
        "most_mappings": max(mapped.values(), default=0),
        "most_descriptors": max(opened.values(), default=0),
        "private_bytes": kilobytes * 1024,
    }


def describe_growth(samples: Sequence[Sample]) -> list[str]:
    """Say what grew beyond its bound after the warm-up phase, and what was not returned. Empty: nothing did.

    The warm-up phase is the first minute, but at most half of the samples.
    """
    if len(samples) < LEAST_SAMPLES:
        return [f"{len(samples)} samples tell nothing, at least {LEAST_SAMPLES} are needed"]
    first = sum(sample.seconds <= WARM_UP_SECONDS for sample in samples)
    count = min(max(first, LEAST_SAMPLES // 2), len(samples) // 2)
    warm, later = samples[:count], samples[count:]
    broken: list[str] = []
    for name, bound in BOUNDS.items():
        before = max(getattr(sample, name) for sample in warm)
        worst = max(later, key=lambda sample: int(getattr(sample, name)))
        if getattr(worst, name) > before + bound:
            broken.append(
                f"{name} grew from {before} to {getattr(worst, name)} after {worst.seconds:.0f} s; {bound} are allowed"
            )
    for name, limit in LIMITS.items():
        worst = max(samples, key=lambda sample: int(getattr(sample, name)))
        if getattr(worst, name) > limit:
            broken.append(f"{name} was {getattr(worst, name)} after {worst.seconds:.0f} s; {limit} are allowed")
    for sample in samples:
        names = ("values", "leased_bytes", "used_bytes") if sample.waited else ("values",)
        kept = {name: getattr(sample, name) for name in names if getattr(sample, name)}
        if kept:
            broken.append(f"not returned after {sample.seconds:.0f} s: {kept}")
    if not samples[-1].waited:
        broken.append("the last sample did not wait for the return of everything")
    return broken
