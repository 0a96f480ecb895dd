"""What programs say about how their objects are used: locality sets, hints, consumers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from entrepot._arguments import AnyID, checked_name, switch, text, to_id
from entrepot._locality import (
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
    packed,
    repacked,
)
from entrepot.errors import InvalidArgument, ObjectNotFound

if TYPE_CHECKING:
    from entrepot import _core

AnySet = LocalitySet | str


class SetMethods:
    """The part of :class:`Store` by which eviction learns how objects are used."""

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
        """Make a locality set of this session, or change it; what is None stays as it is.

            features = store.locality_set("features", reading="loop_sequential")
            store.put(table, locality_set=features)

        Args:
            name: its name, in this session; ``""`` is the default set, of objects that belong to no other.
            durability, reading, writing, lifetime, consumers, operation, policy, priority: see :class:`LocalitySet`.
                A new set is written back, read in a way that is inferred, written once, and lives as long as the job.

        Raises:
            InvalidArgument: a value that an attribute does not have.
            StoreFull: the store has 65,536 sets.
        """
        if text("a locality set's name", name) != "":
            checked_name(name)
        changed, value = packed(
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
        return next(one for one in self.locality_sets() if one.name == name)

    def locality_sets(self) -> list[LocalitySet]:
        """The locality sets of this session, its default one first."""
        raw = self._raw()
        life = raw.life  # before the daemon is asked: where it is another by then, then its handles are refused
        return [locality_set(one, life) for one in json.loads(raw.sets(self._session_number))["sets"]]

    def hint(
        self,
        target: AnyID | LocalitySet,
        *,
        priority: int | None = None,
        operation: Operation | None = None,
        keep: bool | None = None,
        locality_set: AnySet | None = None,
        recompute_seconds: float | None = None,
    ) -> None:
        """Say something about an object or a set; what is None stays as it is.

        Args:
            target: an object's ID, or a set.
            priority: -8 to 8; each step makes it four times as dear to move out of memory. An object's own is added to
                its set's.
            operation: of a set: what happens to it now, ``"none"``, ``"reading"`` or ``"writing"``.
            keep: of an object: True, it stays in memory until False is said, whoever reads it.
            locality_set: of an object: the set to which it belongs from now on; ``""``: the default one.
            recompute_seconds: of an object: making it again takes so long, with all that it needs. When memory is short
                it is dropped instead of written to disk if that is expected to cost less, and then reads as
                :class:`~entrepot.errors.ObjectDropped` until it is put again. ``math.inf``: it cannot be made again,
                which holds of whatever nothing was said of. What was dropped once is not dropped a second time.

        Raises:
            ObjectNotFound: there is no such object, or set.
            InvalidArgument: a value of the wrong kind, or one that the target does not have.
        """
        if isinstance(target, LocalitySet):
            if keep is not None or locality_set is not None or recompute_seconds is not None:
                raise InvalidArgument(
                    "a set has a priority and an operation; keep, locality_set and recompute_seconds are of objects"
                )
            changed, value = packed(None, priority, {"operation": operation})
            self._raw().define_set(self._session_number, target.name, self._set_number(target), changed, value)
            return
        if operation is not None:
            raise InvalidArgument("an operation is said of a set: put the object into one, and hint at that")
        number = None if locality_set is None else self._set_number(locality_set)
        wanted = None if priority is None else checked_priority(priority)
        kept = None if keep is None else switch("keep", keep)
        nanoseconds = None if recompute_seconds is None else checked_recompute(recompute_seconds)
        self._raw().hint([to_id(target).binary], wanted, kept, number, nanoseconds)

    def consumed(self, oid: AnyID, consumer: str) -> int:
        """Say that a consumer has had an object, and how many are still to come.

        After the last the object is dead: it stays readable, is the first to go when memory is short, and goes without
        being written. In a session with ``delete_consumed`` it is deleted at once.

        Args:
            oid: an object that was put with ``consumers``, or into a set that says their number.
            consumer: a key of the consumer, such as the name of its task: the same when it is run again, so that it
                counts once.

        Returns:
            How many have not had it; 0 also where the object is not there any more.

        Raises:
            InvalidArgument: nobody counts the object's consumers, or the key is empty.
        """
        return self._raw().consumed([to_id(oid).binary], checked_name(consumer))[0]

    def _set_number(self, wanted: AnySet) -> int:
        if isinstance(wanted, LocalitySet):
            raw = self._raw()
            raw.look()  # whether the store that said it is there still
            if not wanted.handle or life_of(wanted.handle) == raw.life:
                return wanted.handle
            # It was of a store that is gone: here it is made again as it was.
            return raw.define_set(self._session_number, wanted.name, 0, *repacked(wanted))
        if text("a locality set's name", wanted) == "":
            return 0
        for one in self.locality_sets():
            if one.name == wanted:
                return one.handle
        raise ObjectNotFound(f"this session has no locality set {wanted!r}: make it by Store.locality_set()")

    def _used_in(self, item: _core.Item, wanted: AnySet | None, consumers: int | None) -> _core.Item:
        """The item with the set and the number of consumers that were given."""
        if wanted is None and consumers is None:
            return item
        number = 0 if wanted is None else self._set_number(wanted)
        return (*item[:7], number, 0 if consumers is None else checked_consumers(consumers))
