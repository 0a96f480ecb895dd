"""Orders of rows that are random enough to learn from, and read a collection from disk once a pass.

Rows in a wholly random order touch another member with each row. Where the members do not all fit in memory that brings
a whole member back from disk for one row, again and again. Here the members are shuffled, so many of them at a time are
open, and the rows of those are shuffled together: what a shuffle buffer does for a stream, in units of members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
from entrepot.errors import InvalidArgument

BLOCKS = 8


class BlockShuffle:
    """Numbers of rows, each once, in a new order each time that it is iterated. A sampler for PyTorch's loaders.

    Args:
        counts: rows of each member.
        blocks: how many members are open at a time; all of them: a wholly random order.
        seed: the same seed gives the same orders, pass for pass; None: from the system.

    Raises:
        InvalidArgument: ``blocks`` is less than 1.
    """

    def __init__(self, counts: Sequence[int], blocks: int = BLOCKS, seed: int | None = None) -> None:
        if blocks < 1:
            raise InvalidArgument(f"a shuffled order has 1 or more members open at a time, but got blocks={blocks}")
        self._counts = list(counts)
        self._blocks = blocks
        self._seed = np.random.SeedSequence(seed).entropy
        self._epoch = 0

    def __len__(self) -> int:
        return sum(self._counts)

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass the one of this number, as samplers of PyTorch do; else passes count up by themselves."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng([self._epoch, *_words(self._seed)])
        self._epoch += 1
        return self._order(random)

    def _order(self, random: np.random.Generator) -> Iterator[int]:
        starts = [0, *accumulate(self._counts)]
        members = random.permutation(len(self._counts))
        for at in range(0, len(members), self._blocks):
            opened = members[at : at + self._blocks]
            rows = np.concatenate([np.arange(starts[one], starts[one] + self._counts[one]) for one in opened])
            random.shuffle(rows)
            yield from rows.tolist()


def _words(seed: object) -> list[int]:
    number = int(seed)  # type: ignore[call-overload]
    return [number >> shift & 0xFFFFFFFF for shift in range(0, max(number.bit_length(), 1), 32)]
