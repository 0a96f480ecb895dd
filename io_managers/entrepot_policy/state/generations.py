"""Generations of one value: a reload gives it a new generation, and references to the old one still mean this value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import CorruptData

from entrepot_policy.state import records
from entrepot_policy.state.lineage import ObjectRef

if TYPE_CHECKING:
    from entrepot import Store

PREFIX = "entrepot.life/"
MAX_GENERATIONS = 16

Generation = tuple[str, int]  # instance, generation


def same_value(store: Store, ref: ObjectRef) -> bool:
    """Whether the object now stored under this ID is the value that a reference means, possibly in an earlier
    generation.

    Args:
        store: the session of the object.
        ref: with instance and generation.

    Raises:
        CorruptData, VersionMismatch: the record of generations cannot be read.
        StoreUnavailable: the store cannot be reached.
    """
    generation = raw_objects.generation_of(store, ref.id)
    if generation is None:
        return False
    if not ref.instance or (ref.instance, ref.generation) == (store.instance_id, generation):
        return True
    recorded, earlier = _read(store, ref)
    return recorded == (store.instance_id, generation) and (ref.instance, ref.generation) in earlier


def record_restored(store: Store, ref: ObjectRef, restored_from: list[Generation]) -> None:
    """Record that the object now stored under this ID has the content of earlier generations.

    Args:
        store: the session of the object.
        ref: the object.
        restored_from: its earlier generations.
    """
    generation = raw_objects.generation_of(store, ref.id)
    if generation is None:
        return  # deleted meanwhile
    recorded, earlier = _read(store, ref)
    current = (store.instance_id, generation)
    # An earlier record describes this content only if its own generation is among those reloaded.
    confirmed = [*earlier, recorded] if recorded in restored_from else []
    equivalent = [pair for pair in dict.fromkeys([*confirmed, *restored_from]) if pair[0] and pair != current]
    records.put(
        store,
        PREFIX + str(ref.id),
        {"now": list(current), "was": [list(pair) for pair in equivalent[-MAX_GENERATIONS:]]},
    )


def equivalent_generations(store: Store, ref: ObjectRef) -> list[Generation]:
    """All generations with the same content as the one that a reference means, including itself."""
    recorded, earlier = _read(store, ref)
    own = (ref.instance, ref.generation)
    return [*earlier, recorded] if own in earlier or own == recorded else [own]


def _read(store: Store, ref: ObjectRef) -> tuple[Generation, list[Generation]]:
    record = records.get(store, PREFIX + str(ref.id), session=ref.session)
    if record is None:
        return ("", 0), []
    try:
        instance, generation = record["now"]
        return (str(instance), int(generation)), [(str(pair[0]), int(pair[1])) for pair in record["was"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptData(f"the generation record of object {ref.id} cannot be read: {error}") from error
