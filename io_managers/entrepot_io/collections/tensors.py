"""Collections of tensors: NumPy arrays, or PyTorch tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from entrepot import Collection


def check(collection: Collection, *, rows: bool) -> None:
    """Reject a collection that does not hold tensors.

    Args:
        collection: any.
        rows: whether the members must have rows, all of one shape.

    Raises:
        InvalidArgument: the members are not tensors, or lack such rows.
    """
    if collection.kind != "tensor":
        what = collection.type or "nothing"
        raise InvalidArgument(
            f"collection {collection.name!r} holds {what}, not tensors: only NumPy arrays and PyTorch tensors can be "
            "read as one"
        )
    if rows and collection.row_shape is None:
        raise InvalidArgument(
            f"the tensors of collection {collection.name!r} have no rows, or rows of different shapes: read it member "
            "by member"
        )


def batches(collection: Collection, rows: int) -> Iterator[Any]:
    """Tensors of ``rows`` rows each; the last one may be smaller."""
    check(collection, rows=True)
    return _equal_batches(collection, rows)


def _equal_batches(collection: Collection, rows: int) -> Iterator[Any]:
    pending: list[Any] = []
    pending_rows = 0
    for member in collection:
        at, length = 0, int(member.shape[0])
        while pending_rows + length - at >= rows:
            pending.append(member[at : at + rows - pending_rows])
            at += rows - pending_rows
            complete, pending, pending_rows = pending, [], 0
            yield _concatenate(complete)
        if at < length:
            pending.append(member[at:])
            pending_rows += length - at
        del member
    if pending:
        yield _concatenate(pending)


def _concatenate(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if type(parts[0]).__module__.partition(".")[0] == "torch":
        import torch  # pyright: ignore[reportMissingImports]

        return torch.cat(parts)
    import numpy as np

    return np.concatenate(parts)
