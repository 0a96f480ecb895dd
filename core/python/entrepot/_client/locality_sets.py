"""Locality sets, hints and consumers: how programs declare the way their objects are used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from entrepot._client.arguments import AnyID, checked_boolean, checked_name, checked_text, to_id
from entrepot._client.locality import (
    Durability,
    Lifetime,
    LocalitySet,
    Operation,
    Policy,
    Reading,
    Writing,
    checked_consumers,
    checked_priority,
    checked_recompute,
    life_of,
    locality_set,
    pack_attributes,
    pack_existing,
)
from entrepot.errors import InvalidArgument, ObjectNotFound

if TYPE_CHECKING:
    from entrepot import _core

LocalitySetOrName = LocalitySet | str


class LocalitySetMethods:
    """Methods of :class:`Store` that tell eviction how objects are used."""

    _session_number: int

    def _raw(self) -> _core.Client:
        raise NotImplementedError

    def locality_set(
        self,
        name: str,
        *,
        durability: Durability | None = None,
        reading: Reading | None = None,
        writing: Writing | None = None,
        lifetime: Lifetime | None = None,
        consumers: int | None = None,
        operation: Operation | None = None,
        policy: Policy | None = None,
        priority: int | None = None,
    ) -> LocalitySet:
        """Create or change a locality set of this session; attributes left at None keep their value.

            features = store.locality_set("features", reading="loop_sequential")
            store.put(table, locality_set=features)

        Args:
            name: its name within this session; ``""`` is the default set, of objects that belong to no other.
            durability, reading, writing, lifetime, consumers, operation, policy, priority: see :class:`LocalitySet`.
                A new set is write-back, read in an inferred pattern, written once, and lives as long as the job.

        Raises:
            InvalidArgument: an invalid value for an attribute.
            StoreFull: the store already has 65,536 sets.
        """
        if checked_text("a locality set's name", name) != "":
            checked_name(name)
        changed, value = pack_attributes(
            consumers,
            priority,
            {
                "durability": durability,
                "reading": reading,
                "writing": writing,
                "lifetime": lifetime,
                "operation": operation,
                "policy": policy,
            },
        )
        self._raw().define_set(self._session_number, name, 0, changed, value)
        return next(candidate for candidate in self.locality_sets() if candidate.name == name)

    def locality_sets(self) -> list[LocalitySet]:
        """Return the locality sets of this session, the default one first."""
        raw = self._raw()
        life = raw.life  # read before asking: if the daemon changes in between, it will refuse the stale handles
        return [locality_set(record, life) for record in json.loads(raw.sets(self._session_number))["sets"]]

    def hint(
        self,
        target: AnyID | LocalitySet,
        *,
        priority: int | None = None,
        operation: Operation | None = None,
        keep: bool | None = None,
        locality_set: LocalitySetOrName | None = None,
        recompute_seconds: float | None = None,
    ) -> None:
        """Change the hints of an object or a locality set; arguments left at None keep their value.

        Args:
            target: an object's ID, or a set.
            priority: -8 to 8; each step makes evicting the object four times as expensive. An object's priority is
                added to its set's.
            operation: sets only: what is being done with the set now: ``"none"``, ``"reading"`` or ``"writing"``.
            keep: objects only: True keeps the object in memory, whoever reads it, until a hint with False.
            locality_set: objects only: the set to which the object belongs from now on; ``""`` is the default set.
            recompute_seconds: objects only: how long it takes to recompute the object, including everything it needs.
                When memory is short, the object is dropped instead of written to disk if that is expected to cost
                less; reading it then raises :class:`~entrepot.errors.ObjectDropped` until it is put again. An object
                that was dropped once is not dropped again. ``math.inf``, the default for every object: it cannot be
                recomputed.

        Raises:
            ObjectNotFound: there is no such object or set.
            InvalidArgument: an invalid value, or a hint that does not apply to this kind of target.
        """
        if isinstance(target, LocalitySet):
            if keep is not None or locality_set is not None or recompute_seconds is not None:
                raise InvalidArgument(
                    "a locality set accepts priority and operation; keep, locality_set and recompute_seconds are for "
                    "objects"
                )
            changed, value = pack_attributes(None, priority, {"operation": operation})
            self._raw().define_set(self._session_number, target.name, self._get_set_handle(target), changed, value)
            return
        if operation is not None:
            raise InvalidArgument("an operation applies to a set: put the object into one, and hint at the set")
        number = None if locality_set is None else self._get_set_handle(locality_set)
        new_priority = None if priority is None else checked_priority(priority)
        pinned = None if keep is None else checked_boolean("keep", keep)
        nanoseconds = None if recompute_seconds is None else checked_recompute(recompute_seconds)
        self._raw().hint([to_id(target).binary], new_priority, pinned, number, nanoseconds)

    def consumed(self, oid: AnyID, consumer: str) -> int:
        """Mark an object as consumed by ``consumer``; idempotent. Return how many consumers are still outstanding.

        After the last one the object is dead: still readable, but evicted first when memory is short, and never
        written to disk. In a session with ``delete_consumed`` it is deleted at once.

        Args:
            oid: an object that was put with ``consumers``, or into a set that defines their number.
            consumer: a key of the consumer, such as its task's name. A rerun must pass the same key, so that it counts
                once.

        Returns:
            The number of consumers still outstanding; 0 also if the object no longer exists.

        Raises:
            InvalidArgument: the object's consumers are not counted, or the key is empty.
        """
        return self._raw().consumed([to_id(oid).binary], checked_name(consumer))[0]

    def _get_set_handle(self, target: LocalitySetOrName) -> int:
        if isinstance(target, LocalitySet):
            raw = self._raw()
            raw.look()  # find out whether the store that issued the handle is still running
            if not target.handle or life_of(target.handle) == raw.life:
                return target.handle
            # The set belonged to a store that is gone: create it again here with the same attributes.
            return raw.define_set(self._session_number, target.name, 0, *pack_existing(target))
        if checked_text("a locality set's name", target) == "":
            return 0
        for candidate in self.locality_sets():
            if candidate.name == target:
                return candidate.handle
        raise ObjectNotFound(f"this session has no locality set {target!r}: create it with Store.locality_set()")

    def _with_usage(self, item: _core.Item, target: LocalitySetOrName | None, consumers: int | None) -> _core.Item:
        """Return the item with the given set and number of consumers added."""
        if target is None and consumers is None:
            return item
        number = 0 if target is None else self._get_set_handle(target)
        return (*item[:7], number, 0 if consumers is None else checked_consumers(consumers))
