"""Which shards a change affects, and what is in them afterwards. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from entrepot_operator.directory.shards import MAX_SHARD_BYTES, Shard


@dataclass
class ShardChange:
    """A shard that has to be written.

    Attributes:
        number: of the instance; None: the control shard.
        index: its place among the instance's shards.
        base: what it replaces; None: it is created.
        entries: what is in it afterwards; none: a shard of an instance is deleted.
    """

    number: int | None
    index: int
    base: Shard | None
    entries: dict[bytes, bytes] = field(repr=False)

    @property
    def is_needed(self) -> bool:
        """Whether anything differs from what is there."""
        return self.base is None or self.base.damaged is not None or self.entries != self.base.entries


def plan_control(control: Shard | None, changes: Mapping[bytes, bytes | None]) -> ShardChange:
    """Plan a change of the control shard; None deletes a key."""
    entries = {} if control is None else dict(control.entries)
    for key, value in changes.items():
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
    return ShardChange(None, 0, control, entries)


def plan_entries(
    number: int, shards: Sequence[Shard], puts: Mapping[bytes, bytes], deletes: Iterable[bytes]
) -> list[ShardChange]:
    """Plan a change of an instance's entries.

    A key stays in its shard; new keys go where there is room, so that a small change writes one small resource. Shards
    that cannot be read are replaced, and shards without entries are deleted.

    Args:
        number: of the instance.
        shards: its shards, by their index.
        puts: values by keys without the number.
        deletes: keys without the number; what is in ``puts`` is not deleted.
    """
    changes = {shard.index: ShardChange(number, shard.index, shard, dict(shard.entries)) for shard in shards}
    holders: dict[bytes, int] = {}
    for shard in sorted(shards, key=lambda shard: (shard.term, shard.index)):
        for key in shard.entries:
            if key in holders:  # what counts is in the shard of the later term
                del changes[holders[key]].entries[key]
            holders[key] = shard.index
    for key in deletes:
        if key in holders and key not in puts:
            del changes[holders.pop(key)].entries[key]
    added = []
    for key, value in puts.items():
        if key in holders:
            changes[holders[key]].entries[key] = value
        else:
            added.append((key, value))
    _add(number, changes, added)
    return [change for _, change in sorted(changes.items()) if change.is_needed]


def _add(number: int, changes: dict[int, ShardChange], added: Sequence[tuple[bytes, bytes]]) -> None:
    """Put new keys where there is room, first into shards that are written anyway."""
    order = iter(sorted(changes.values(), key=lambda change: (not change.is_needed, change.index)))
    current: ShardChange | None = None
    room = 0
    for key, value in added:
        size = len(key) + len(value)
        while current is None or room < size:
            following = next(order, None)
            if following is None:
                index = next(place for place in range(len(changes) + 1) if place not in changes)
                following = changes[index] = ShardChange(number, index, None, {})
                current, room = following, max(size, MAX_SHARD_BYTES)
                break
            used = sum(len(key) + len(value) for key, value in following.entries.items())
            current, room = following, MAX_SHARD_BYTES - used
        current.entries[key] = value
        room -= size
