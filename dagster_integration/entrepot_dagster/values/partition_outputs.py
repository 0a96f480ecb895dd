"""Outputs that cover several partitions, as a backfill in a single run has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from entrepot.errors import InvalidArgument


def check_partitions(asset: str, partitions: Sequence[str], obj: Any, *, has_policy: bool) -> None:
    """Check that a step has returned a dictionary with each of its partitions.

    Args:
        asset: its key, as text.
        partitions: their keys.
        obj: what the step returned.
        has_policy: whether a policy is in effect.

    Raises:
        InvalidArgument: it has not, or a policy saves checkpoints of single partitions.
    """
    subject = f"this output of {asset} covers {len(partitions)} partitions"
    if not isinstance(obj, Mapping) or set(obj) != set(partitions):
        returned = ", ".join(map(str, obj)) if isinstance(obj, Mapping) else type(obj).__name__
        raise InvalidArgument(
            f"{subject}: return a dictionary with the value of each of {', '.join(sorted(partitions))}, not "
            f"{returned}; or run the backfill with one run per partition"
        )
    if has_policy:
        raise InvalidArgument(
            f"{subject}, and a policy saves checkpoints of single ones: run the backfill with one run per partition, "
            "or set policy=off"
        )
