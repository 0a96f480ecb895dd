"""Collections of tensors as PyTorch datasets.

PyTorch has no read-only tensors, and writing to the store's shared memory would kill the process. So a row is a copy,
and a member is a private copy-on-write mapping, of which the kernel copies the pages that are written. A batch of rows
of one member is copied once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch.utils.data import Dataset  # pyright: ignore[reportMissingImports]

from entrepot_io.collections.block_shuffle import DEFAULT_BLOCKS, BlockShuffle
from entrepot_io.collections.fetch_ahead import FetchAhead

if TYPE_CHECKING:
    from entrepot import Collection


class MemberDataset(Dataset):  # type: ignore[misc]
    """Dataset with one item for each member.

    Args:
        collection: of tensors.
        transform: called with each item; None: no transformation.
    """

    def __init__(self, collection: Collection, transform: Callable[[Any], Any] | None) -> None:
        self._collection = collection
        self._transform = transform
        self._ahead = FetchAhead(collection)

    def __len__(self) -> int:
        return len(self._collection)

    def __getitem__(self, index: int) -> Any:
        self._ahead.reading(index)
        item = torch.as_tensor(self._collection.get(index, copy="on_write"))
        return item if self._transform is None else self._transform(item)


class RowDataset(Dataset):  # type: ignore[misc]
    """Dataset with one item for each row of all members. Caches the last read member; for shuffled orders, several.

    Args:
        collection: of tensors whose rows have one shape.
        transform: called with each item; None: no transformation.
    """

    def __init__(self, collection: Collection, transform: Callable[[Any], Any] | None) -> None:
        self._collection = collection
        self._transform = transform
        self._ends = list(accumulate(collection.row_counts or []))
        self._member_cache: OrderedDict[int, Any] = OrderedDict()  # members by number, least recently used first
        self._max_cached_members = 1
        self._ahead: FetchAhead | None = FetchAhead(collection)  # None: the sampler knows the order, and does it

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def shuffled(self, blocks: int = DEFAULT_BLOCKS, seed: int | None = None) -> BlockShuffle:
        """A sampler for a loader of this dataset whose random order reads each member once per pass.

            DataLoader(data, sampler=data.shuffled(blocks=8), batch_size=64)

        Args:
            blocks: how many members, in random order, have their rows shuffled together. Each worker holds this many,
                and they cannot be evicted meanwhile, so choose it according to the store's capacity. Those of the next
                ones that are on other hosts are fetched meanwhile.
            seed: the same seed gives the same sequence of orders; None: seeded by the system.

        Raises:
            InvalidArgument: ``blocks`` is less than 1.
        """
        order = BlockShuffle(self._collection.row_counts or [], blocks, seed, self._collection.fetch_ahead)
        self._max_cached_members = blocks
        self._ahead = None
        return order

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indexes: Sequence[int]) -> list[Any]:
        """The items of a batch, for PyTorch's loader: each member is read once."""
        rows_by_member: dict[int, list[tuple[int, int]]] = {}
        for position, index in enumerate(indexes):
            member, row = self._locate(index)
            rows_by_member.setdefault(member, []).append((position, row))
        items: list[Any] = [None] * len(indexes)
        for member, requested_rows in rows_by_member.items():
            value = self._member(member)
            rows = value[[row for _, row in requested_rows]]  # one copy for all rows
            copied = rows if isinstance(rows, torch.Tensor) else torch.from_numpy(np.asarray(rows))
            for (position, _), item in zip(requested_rows, copied, strict=True):
                items[position] = item if self._transform is None else self._transform(item)
        return items

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_member_cache": OrderedDict()}

    def _locate(self, index: int) -> tuple[int, int]:
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"index {index} is out of range: the data set has {length} rows")
        index %= length
        member = bisect_right(self._ends, index)
        return member, index - (self._ends[member - 1] if member else 0)

    def _member(self, number: int) -> Any:
        if number in self._member_cache:
            self._member_cache.move_to_end(number)
        else:
            while len(self._member_cache) >= self._max_cached_members:  # release before get
                self._member_cache.popitem(last=False)
            if self._ahead is not None:
                self._ahead.reading(number)
            self._member_cache[number] = self._collection.get(number)
        return self._member_cache[number]
