"""Decides, from what the directory says, which store has to make copies of an object, and where. Pure functions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from entrepot.origins import Life

from entrepot_cluster.directory.model import Instance, Place


class Duty(Enum):
    """What a store has to do about the copies of an object that it has."""

    NONE = "none"  # another store sees to them, or the original was deleted
    KEEP = "keep"  # it has the original, or what has taken its place
    TAKE_OVER = "take over"  # the original was lost: its copy takes the original's place


@dataclass(frozen=True, slots=True)
class Copies:
    """The stores that have a life of an object.

    Attributes:
        duty: what this store has to do.
        holders: those that are live.
        missing: how many copies are to be made, on hosts that have none.
        unplaced: how many more are wanted, for which there are no hosts.
    """

    duty: Duty
    holders: tuple[Instance, ...]
    missing: int
    unplaced: int


def copies_of(
    life: Life, places: Iterable[Place], instances: Sequence[Instance], own_instance: str, wanted: int
) -> Copies:
    """Compare the copies of a life with how many are wanted.

    Args:
        life: of the object.
        places: of its ID, as the directory has them.
        instances: all of the cluster.
        own_instance: this store, which has a copy.
        wanted: how many stores are to have one.
    """
    of_life = [place for place in places if place.life == life]
    live = [place for place in of_life if place.instance.live]
    holders = tuple(place.instance for place in live)
    hosts = {instance.host for instance in holders}
    free_hosts = {instance.host for instance in instances if instance.live} - hosts
    short = max(0, wanted - len(hosts))
    missing = min(short, len(free_hosts))
    return Copies(_duty(life, of_life, live, instances, own_instance), holders, missing, short - missing)


def _duty(life: Life, of_life: list[Place], live: list[Place], instances: Sequence[Instance], own: str) -> Duty:
    primaries = [place for place in live if _is_primary(place)]
    if primaries:
        # The store where the life began, or else any, as long as all agree.
        first = min(primaries, key=lambda place: (place.instance.id != life.instance, place.instance.id))
        return Duty.KEEP if first.instance.id == own else Duty.NONE
    began_in = next((instance for instance in instances if instance.id == life.instance), None)
    was_lost = any(_is_primary(place) for place in of_life)
    if began_in is not None and began_in.live and not was_lost:
        return Duty.NONE  # deleted there, or not published again yet
    heir = min((place.instance.id for place in live), default="")
    return Duty.TAKE_OVER if heir == own else Duty.NONE


def _is_primary(place: Place) -> bool:
    return place.origin is None or place.is_primary


def targets_for(
    oid: bytes, holders: Iterable[Instance], instances: Iterable[Instance], may_take: Callable[[Instance], bool]
) -> list[Instance]:
    """Return the stores that could get a copy, one of each host that has none, in an order of the object's own.

    Args:
        oid: the object.
        holders: the stores that have it.
        instances: all of the cluster.
        may_take: whether a store is to be asked.
    """
    hosts = {instance.host for instance in holders}
    free = [each for each in instances if each.live and each.addresses and each.host not in hosts and may_take(each)]
    free.sort(key=lambda instance: hashlib.blake2b(oid + instance.id.encode(), digest_size=8).digest())
    by_host: dict[str, Instance] = {}
    for instance in free:
        by_host.setdefault(instance.host, instance)
    return list(by_host.values())
