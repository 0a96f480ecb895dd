"""Ray Data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import ray
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from entrepot_frames.interchange.access import StoreAccess, is_table, member_views

if TYPE_CHECKING:
    from entrepot import Collection

TENSOR_COLUMN = "data"  # what Ray calls the only column of a data set of tensors


def put(data: Any, name: str, access: StoreAccess) -> int:
    """Store each block, on the node where it is; return how many there are."""
    store_block = ray.remote(_put)
    blocks = [block for block in data.to_arrow_refs() if block is not None]
    ray.get([store_block.remote(block, access, name, index) for index, block in enumerate(blocks)])
    return len(blocks)


def read(collection: Collection) -> Any:
    """A data set of one block for each member."""
    return ray.data.read_datasource(_CollectionSource(collection))


class _CollectionSource(Datasource):
    """What Ray reads: as many tasks as it asks for, each of consecutive members."""

    def __init__(self, collection: Collection) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._collection = collection

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all members."""
        return self._collection.nbytes

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        """Tasks that read all members."""
        count = len(self._collection)
        tasks = max(1, min(parallelism, count))
        bounds = [count * task // tasks for task in range(tasks + 1)]
        as_block = _table_of if is_table(self._collection) else _tensor_block_of
        return [_read_task(self._collection[begin:end], as_block) for begin, end in pairwise(bounds)]


def _read_task(members: Collection, as_block: Callable[[Any], Any]) -> ReadTask:
    metadata = BlockMetadata(num_rows=members.rows, size_bytes=members.nbytes, input_files=None, exec_stats=None)
    return ReadTask(partial(_blocks, member_views(members), as_block), metadata)


def _blocks(views: Iterable[Collection], as_block: Callable[[Any], Any]) -> Iterator[Any]:
    for view in views:
        yield as_block(view[0])


def _table_of(value: Any) -> Any:
    import pyarrow as pa

    return pa.table(value)


def _tensor_block_of(value: Any) -> Any:
    from ray.data.block import BlockAccessor

    return BlockAccessor.batch_to_arrow_block({TENSOR_COLUMN: value})


def _put(block: Any, access: StoreAccess, name: str, index: int) -> None:
    access.put_member(block, name, index)
