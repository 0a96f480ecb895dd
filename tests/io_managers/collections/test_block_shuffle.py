"""Random row orders that read from few members at a time."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, groupby

import entrepot
import pytest
from entrepot_io.collections.block_shuffle import BlockShuffle

COUNTS = [100, 0, 37, 250, 1, 64, 64]


@pytest.mark.parametrize("blocks", [1, 3, 7, 100])
def test_every_row_comes_once_a_pass(blocks: int) -> None:
    order = BlockShuffle(COUNTS, blocks, seed=1)
    assert len(order) == 516
    passes = [list(order) for _ in range(3)]
    assert all(sorted(epoch_rows) == list(range(516)) for epoch_rows in passes)
    assert passes[0] != passes[1] != passes[2]


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_few_members_are_open_and_each_once(blocks: int) -> None:
    ends = list(accumulate([50] * 12))
    order = [bisect_right(ends, row) for row in BlockShuffle([50] * 12, blocks, seed=2)]
    groups = [set(order[at : at + 50 * blocks]) for at in range(0, 600, 50 * blocks)]
    assert [len(group) for group in groups] == [blocks] * (12 // blocks)
    assert set().union(*groups) == set(range(12))
    if blocks > 1:
        assert len(list(groupby(order[: 50 * blocks]))) > 20  # interleaved, not one member after the other


def test_a_seed_gives_the_same_passes() -> None:
    first, second = BlockShuffle(COUNTS, 3, seed=7), BlockShuffle(COUNTS, 3, seed=7)
    passes = [list(first), list(first)]
    assert passes == [list(second), list(second)]
    second.set_epoch(1)
    assert list(second) == passes[1]
    assert list(BlockShuffle(COUNTS, 3)) != list(BlockShuffle(COUNTS, 3))


def test_no_rows_and_wrong_numbers() -> None:
    assert list(BlockShuffle([])) == list(BlockShuffle([0, 0])) == []
    with pytest.raises(entrepot.InvalidArgument, match="blocks=0"):
        BlockShuffle(COUNTS, 0)
