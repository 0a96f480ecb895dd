"""Row orders that are random enough for training, yet read a collection from disk only once per pass.

A completely random order touches a different member with each row. If not all members fit in memory, that reloads a
whole member from disk for a single row, again and again. Instead, the members are shuffled, a fixed number of them is
open at a time, and the rows of those are shuffled together: a shuffle buffer in units of members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
from entrepot.errors import InvalidArgument

DEFAULT_BLOCKS = 8


class Announce(Protocol):
    """Learns which members are about to be read."""

    def __call__(self, members: list[int], /, *, max_members: int) -> None: ...


class BlockShuffle:
    """Row numbers, each once, in a new order at each iteration. A sampler for PyTorch's loaders.

    Args:
        counts: rows of each member.
        blocks: how many members are open at a time; with all members, the order is completely random.
        seed: the same seed gives the same sequence of orders; None: seeded by the system.
        announce: called with the members that are about to be opened, the next first, and their number.

    Raises:
        InvalidArgument: ``blocks`` is less than 1.
    """

    def __init__(
        self,
        counts: Sequence[int],
        blocks: int = DEFAULT_BLOCKS,
        seed: int | None = None,
        announce: Announce | None = None,
    ) -> None:
        if blocks < 1:
            raise InvalidArgument(f"a shuffled order needs 1 or more open members at a time, but got blocks={blocks}")
        self._counts = list(counts)
        self._blocks = blocks
        self._seed = np.random.SeedSequence(seed).entropy
        self._announce = announce
        self._epoch = 0

    def __len__(self) -> int:
        return sum(self._counts)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass, as PyTorch's samplers do; by default, passes are counted."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng([self._epoch, *_seed_words(self._seed)])
        self._epoch += 1
        return self._order(random)

    def _order(self, random: np.random.Generator) -> Iterator[int]:
        starts = [0, *accumulate(self._counts)]
        members = random.permutation(len(self._counts))
        for at in range(0, len(members), self._blocks):
            open_members = members[at : at + self._blocks]
            if self._announce is not None:  # these, and those that will be opened while these are read
                self._announce(members[at : at + 2 * self._blocks].tolist(), max_members=2 * self._blocks)
            rows = np.concatenate(
                [np.arange(starts[member], starts[member] + self._counts[member]) for member in open_members]
            )
            random.shuffle(rows)
            yield from rows.tolist()


def _seed_words(seed: object) -> list[int]:
    number = int(seed)  # type: ignore[call-overload]
    return [number >> shift & 0xFFFFFFFF for shift in range(0, max(number.bit_length(), 1), 32)]
