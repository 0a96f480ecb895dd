"""Generations of one value: a reload gives it a new generation, and references to the old one still mean this value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot import parts
from entrepot.errors import CorruptData

from entrepot_io.policy import records
from entrepot_io.policy.lineage import ObjectRef

if TYPE_CHECKING:
    from entrepot import Store

PREFIX = "entrepot.life/"
KEPT = 16

Life = tuple[str, int]  # instance, generation


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
    generation = parts.generation_of(store, ref.id)
    if generation is None:
        return False
    if not ref.instance or (ref.instance, ref.generation) == (store.instance_id, generation):
        return True
    now, lives = _read(store, ref)
    return now == (store.instance_id, generation) and (ref.instance, ref.generation) in lives


def reloaded(store: Store, ref: ObjectRef, was: list[Life]) -> None:
    """Record that the object now stored under this ID has the content of earlier generations.

    Args:
        store: the session of the object.
        ref: the object.
        was: its earlier generations.
    """
    generation = parts.generation_of(store, ref.id)
    if generation is None:
        return  # deleted meanwhile
    now, lives = _read(store, ref)
    current = (store.instance_id, generation)
    # An earlier record describes this content only if its own generation is among those reloaded.
    known = [*lives, now] if now in was else []
    every = [one for one in dict.fromkeys([*known, *was]) if one[0] and one != current]
    records.put(store, PREFIX + str(ref.id), {"now": list(current), "was": [list(one) for one in every[-KEPT:]]})


def known_lives(store: Store, ref: ObjectRef) -> list[Life]:
    """All generations with the same content as the one that a reference means, including itself."""
    now, lives = _read(store, ref)
    mine = (ref.instance, ref.generation)
    return [*lives, now] if mine in lives or mine == now else [mine]


def _read(store: Store, ref: ObjectRef) -> tuple[Life, list[Life]]:
    said = records.get(store, PREFIX + str(ref.id), session=ref.session)
    if said is None:
        return ("", 0), []
    try:
        instance, generation = said["now"]
        return (str(instance), int(generation)), [(str(one[0]), int(one[1])) for one in said["was"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptData(f"the record of the lives of object {ref.id} cannot be read: {error}") from error
