"""Locality sets: groups of objects that are used in the same way, and the attributes that describe it."""

import math
import operator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, cast, get_args

from entrepot.errors import InvalidArgument

Durability = Literal["write_back", "write_through"]
Reading = Literal["unknown", "once", "sequential", "loop_sequential", "random"]
Writing = Literal["once", "append", "random"]
Lifetime = Literal["job", "consumers", "forever"]
Operation = Literal["none", "reading", "writing"]
Policy = Literal["data_aware", "lru", "mru"]

PRIORITIES = range(-8, 9)
MAX_CONSUMERS = (1 << 32) - 1
NOT_RECOMPUTABLE_NS = (1 << 64) - 1  # recompute cost in a request: cannot be recomputed

# Name, values in wire order, bit in a request's change mask, shift of the value within the packed attributes.
_CHOICES: tuple[tuple[str, tuple[str, ...], int, int], ...] = (
    ("durability", get_args(Durability), 1, 0),
    ("reading", get_args(Reading), 2, 4),
    ("writing", get_args(Writing), 4, 8),
    ("lifetime", get_args(Lifetime), 8, 12),
    ("operation", get_args(Operation), 16, 16),
    ("policy", get_args(Policy), 32, 20),
)
_LIFETIME_BIT, _PRIORITY_BIT = 8, 64


@dataclass(frozen=True, slots=True)
class LocalitySet:
    """A locality set of a session, as of when the daemon was asked.

    Attributes:
        name: its name; ``""`` is the session's default set, of all objects that belong to no other.
        handle: identifies the set in requests to the store that returned it; 0 if the default set has no attributes of
            its own.
        durability: ``"write_back"``: copies are written when memory is short; ``"write_through"``: as soon as possible.
        reading: how it is read: ``"once"``, ``"sequential"`` (in the order of the puts), ``"loop_sequential"``
            (sequentially, repeatedly), ``"random"``; ``"unknown"``: inferred from the reads.
        reading_now: the pattern currently assumed, whether declared or inferred.
        writing: ``"once"``, ``"append"``, or ``"random"`` (its objects are soon replaced).
        lifetime: ``"job"``: as long as the session; ``"consumers"``: until ``consumers`` consumers have finished with
            each object; ``"forever"``.
        consumers: number of consumers per object if the lifetime is ``"consumers"``, else 0.
        operation: what is being done with it now: ``"none"``, ``"reading"``, ``"writing"``.
        policy: ``"data_aware"``, or ``"lru"`` or ``"mru"`` within the set.
        priority: -8 to 8; each step makes evicting its objects four times as expensive.
        objects, nbytes: number and size of the objects in it.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> features = store.locality_set("features", reading="loop_sequential")
    >>> oid = store.put(bytes(100_000), locality_set=features)
    >>> features.reading
    'loop_sequential'
    """

    name: str
    handle: int
    durability: Durability
    reading: Reading
    reading_now: Reading
    writing: Writing
    lifetime: Lifetime
    consumers: int
    operation: Operation
    policy: Policy
    priority: int
    objects: int
    nbytes: int


LocalitySet.__module__ = "entrepot"  # as in entrepot._client.info


def locality_set(raw: dict[str, Any], life: int) -> LocalitySet:
    """Build a ``LocalitySet`` from the JSON of the daemon of that life."""
    result = LocalitySet(**{name: raw[name] for name in LocalitySet.__slots__})
    return replace(result, handle=make_handle(life, result.handle)) if life else result


def make_handle(life: int, number: int) -> int:
    """Combine a number issued by the daemon of that life into a handle, so that later lives do not mistake it."""
    return life << 32 | number if number else 0


def life_of(handle: int) -> int:
    """Return the life in which a handle was issued."""
    return handle >> 32


def pack_existing(existing: LocalitySet) -> tuple[int, int]:
    """Pack the attributes of a set from another store, as :func:`pack_attributes` does, to create it again."""
    choices = {name: getattr(existing, name) for name, _, _, _ in _CHOICES}
    return pack_attributes(existing.consumers or None, existing.priority, choices)


def pack_attributes(consumers: int | None, priority: int | None, choices: dict[str, str | None]) -> tuple[int, int]:
    """Pack a change request: a bit mask of the given attributes, and their values in one number.

    Raises:
        InvalidArgument: an invalid value for an attribute.
    """
    lifetime = choices.get("lifetime")
    lifetime_given = isinstance(lifetime, str)
    if consumers is not None and (lifetime is None or lifetime_given):
        if lifetime not in (None, "consumers"):
            raise InvalidArgument(f"a lifetime of {lifetime!r} has no number of consumers: omit consumers")
        choices = {**choices, "lifetime": "consumers"}
    elif lifetime_given and lifetime == "consumers":
        raise InvalidArgument('a lifetime of "consumers" needs the number of consumers: pass consumers=n')
    changed = value = 0
    for name, values, bit, shift in _CHOICES:
        chosen = choices.get(name)
        if chosen is None:
            continue
        if not isinstance(cast(object, chosen), str) or chosen not in values:
            raise InvalidArgument(f"{name} must be one of {', '.join(map(repr, values))}, but got {chosen!r}")
        changed |= bit
        value |= values.index(chosen) << shift
    if changed & _LIFETIME_BIT:
        value |= checked_consumers(consumers or 0, 0 if consumers is None else 1) << 32
    if priority is not None:
        changed |= _PRIORITY_BIT
        value |= (checked_priority(priority) & 0xFF) << 24
    return changed, value


def checked_priority(priority: int) -> int:
    try:
        number = operator.index(priority)
    except TypeError:
        number = PRIORITIES.stop
    if number not in PRIORITIES:
        raise InvalidArgument(f"a priority must be an integer from -8 to 8, but got {priority!r}")
    return number


def checked_recompute(seconds: float) -> int:
    if not isinstance(cast(object, seconds), (int, float, Real)) or not seconds >= 0:
        raise InvalidArgument(
            "recompute_seconds must be a number of seconds, 0 or more (math.inf: it cannot be recomputed), "
            f"but got {seconds!r}"
        )
    if seconds == math.inf:
        return NOT_RECOMPUTABLE_NS
    return NOT_RECOMPUTABLE_NS - 1 if seconds >= NOT_RECOMPUTABLE_NS / 1e9 else round(float(seconds) * 1e9)


def checked_consumers(consumers: int, minimum: int = 1) -> int:
    try:
        number = operator.index(consumers)
    except TypeError:
        number = -1
    if not minimum <= number <= MAX_CONSUMERS:
        raise InvalidArgument(
            f"a number of consumers must be an integer from 1 to {MAX_CONSUMERS:,}, but got {consumers!r}"
        )
    return number
