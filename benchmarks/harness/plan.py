"""Amount of measurement: sizes, counts and rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Plan:
    """The size of a run.

    Attributes:
        rounds: turns of every system in the group of small values; the others have ``large_rounds``.
        small_count: puts and gets of 1 KiB in a turn; a twentieth of that for 1 MiB.
        many_count: small objects stored at once; ``many_bytes`` each, in batches of ``many_batch``.
        many_seconds: after which a slow system stops putting or getting many.
        large_bytes: of the array and the table.
        large_puts: warm puts in a turn; ``large_reads``: reads by one process in a turn.
        together_clients: producers that put at once, ``together_bytes`` each.
        scale_objects: the most objects in the directory; ``scale_clients``; ``scale_bytes``: the largest value.
        scale_puts: puts of random sizes for the fragmentation plot.
        beyond_bytes: capacity of the stores that hold less than is put; ``beyond_rounds``, ``beyond_passes``: repeats;
            ``disk_rounds``: of spilling compared with direct I/O, which are short.
        beyond_seconds: how long small gets are timed under load.
        beyond_resident: payload, and ``beyond_objects`` small objects, in the store whose daemon is killed.
    """

    rounds: int = 5
    large_rounds: int = 3
    small_count: int = 1000
    many_count: int = 100_000
    many_bytes: int = 1000
    many_batch: int = 1000
    many_seconds: float = 6.0
    large_bytes: int = GIB
    large_puts: int = 4
    large_reads: int = 2
    together_clients: int = 4
    together_bytes: int = 256 * MIB
    scale_objects: int = 10_000_000
    scale_clients: int = 256
    scale_bytes: int = 16 * GIB
    scale_puts: int = 86_400
    beyond_bytes: int = GIB
    beyond_rounds: int = 5
    disk_rounds: int = 15
    beyond_passes: int = 5
    beyond_seconds: float = 10.0
    beyond_resident: int = 10 * GIB
    beyond_objects: int = 100_000

    def fitted(self, memory: int) -> Plan:
        """Reduce sizes to fit a machine with ``memory`` bytes: a store, its clients and their own copies at once."""
        large = self.large_bytes
        while large * 6 > memory and large > MIB:
            large //= 2
        together = min(self.together_bytes, large)
        return replace(
            self,
            large_bytes=large,
            together_bytes=together,
            scale_objects=self.scale_objects if memory >= 16 * GIB else min(self.scale_objects, 1_000_000),
            # It fits in a store of twice the size, and its producer holds it too, twice while making it.
            scale_bytes=min(self.scale_bytes, memory // 6),
            beyond_bytes=min(self.beyond_bytes, _power_of_two(memory // 8)),
            beyond_resident=min(self.beyond_resident, memory // 2 // (64 * MIB) * (64 * MIB)),
        )


def _power_of_two(most: int) -> int:
    return 1 << (max(most, 1).bit_length() - 1)


FULL = Plan()
# Takes minutes instead of a quarter of an hour; the figures are noisier.
SHORT = Plan(
    rounds=3,
    large_rounds=2,
    small_count=500,
    many_count=20_000,
    many_seconds=3.0,
    large_bytes=256 * MIB,
    large_puts=3,
    large_reads=2,
    together_bytes=64 * MIB,
    scale_objects=100_000,
    scale_clients=64,
    scale_bytes=256 * MIB,
    scale_puts=10_000,
    beyond_bytes=256 * MIB,
    beyond_rounds=3,
    disk_rounds=3,
    beyond_passes=4,
    beyond_seconds=4.0,
    beyond_resident=GIB,
)
# For tests: everything runs, but the figures are meaningless.
TINY = Plan(
    rounds=2,
    large_rounds=1,
    small_count=40,
    many_count=400,
    many_batch=100,
    large_bytes=4 * MIB,
    large_puts=2,
    large_reads=2,
    together_clients=2,
    together_bytes=4 * MIB,
    scale_objects=1000,
    scale_clients=4,
    scale_bytes=4 * MIB,
    scale_puts=300,
    beyond_bytes=64 * MIB,
    beyond_rounds=1,
    disk_rounds=1,
    beyond_passes=2,
    beyond_seconds=0.4,
    beyond_resident=64 * MIB,
    beyond_objects=1000,
)


def size_name(nbytes: int) -> str:
    """``1 GiB``, ``1 KiB``, ``1000 bytes``."""
    for unit, scale in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if nbytes >= scale and nbytes % scale == 0:
            return f"{nbytes // scale} {unit}"
    return f"{nbytes} bytes"
