"""Ratios of two sides that take turns in short blocks of calls, with the interval in which chance leaves them.

Both sides of a pair of blocks are measured within milliseconds, so what else the machine does falls on both. Calls of
one block depend on each other; blocks hardly do. The interval is therefore that of a bootstrap over pairs of blocks:
pairs are drawn at random, with replacement, as many as there are, and the ratio is computed again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.figures import quantile

Block = Sequence[float]  # seconds of each call

DRAWS = 200
OUTSIDE = 0.025  # at each end of the interval
SEED = 11


@dataclass(frozen=True)
class Ratio:
    """A quantile of the first side over that of the second, and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def quantile_of(blocks: Sequence[Block], share: float) -> float:
    """The quantile of all calls of these blocks."""
    return quantile(sorted(call for block in blocks for call in block), share)


def ratio_of(first: Sequence[Block], second: Sequence[Block], share: float) -> Ratio:
    """The ratio of the quantiles of two sides, whose blocks are pairs.

    Raises:
        ValueError: the sides have different numbers of blocks, or none.
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"blocks come in pairs, but there are {len(first)} and {len(second)}")
    chance = random.Random(SEED)  # noqa: S311: not for secrets
    drawn = []
    for _ in range(DRAWS):
        pairs = [chance.randrange(len(first)) for _ in first]
        drawn.append(quantile_of([first[i] for i in pairs], share) / quantile_of([second[i] for i in pairs], share))
    drawn.sort()
    outside = int(DRAWS * OUTSIDE)
    value = quantile_of(first, share) / quantile_of(second, share)
    return Ratio(value, drawn[outside], drawn[-1 - outside])
