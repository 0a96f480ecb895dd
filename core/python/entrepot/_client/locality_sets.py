"""Locality sets, hints and consumers: how programs declare the way their objects are used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from entrepot._client.arguments import AnyID, checked_boolean, checked_name, checked_text, to_id
from entrepot._client.locality import (
    LocalitySet,
    Operation,
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
    from entrepot._client.session import Session

LocalitySetOrName = LocalitySet | str


class LocalitySets:
    """Tells eviction how the objects of a session are used; see the methods of ``Store`` of the same names."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def define(
        self, name: str, consumers: int | None, priority: int | None, choices: dict[str, str | None]
    ) -> LocalitySet:
        """Create or change a set; ``choices`` has the attributes that are one of several words."""
        if checked_text("a locality set's name", name) != "":
            checked_name(name)
        changed, value = pack_attributes(consumers, priority, choices)
        self._session.raw().define_set(self._session.number, name, 0, changed, value)
        return next(candidate for candidate in self.all() if candidate.name == name)

    def all(self) -> list[LocalitySet]:
        raw = self._session.raw()
        life = raw.life  # read before asking: if the daemon changes in between, it will refuse the stale handles
        return [locality_set(record, life) for record in json.loads(raw.sets(self._session.number))["sets"]]

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
        if isinstance(target, LocalitySet):
            if keep is not None or locality_set is not None or recompute_seconds is not None:
                raise InvalidArgument(
                    "a locality set accepts priority and operation; keep, locality_set and recompute_seconds are for "
                    "objects"
                )
            changed, value = pack_attributes(None, priority, {"operation": operation})
            self._session.raw().define_set(self._session.number, target.name, self.handle_of(target), changed, value)
            return
        if operation is not None:
            raise InvalidArgument("an operation applies to a set: put the object into one, and hint at the set")
        number = None if locality_set is None else self.handle_of(locality_set)
        new_priority = None if priority is None else checked_priority(priority)
        pinned = None if keep is None else checked_boolean("keep", keep)
        nanoseconds = None if recompute_seconds is None else checked_recompute(recompute_seconds)
        self._session.raw().hint([to_id(target).binary], new_priority, pinned, number, nanoseconds)

    def consumed(self, oid: AnyID, consumer: str) -> int:
        return self._session.raw().consumed([to_id(oid).binary], checked_name(consumer))[0]

    def handle_of(self, target: LocalitySetOrName) -> int:
        """Return the handle of a set in this store.

        Raises:
            ObjectNotFound: the session has no such set.
        """
        if isinstance(target, LocalitySet):
            raw = self._session.raw()
            raw.ensure_connected()  # find out whether the store that issued the handle is still running
            if not target.handle or life_of(target.handle) == raw.life:
                return target.handle
            # The set belonged to a store that is gone: create it again here with the same attributes.
            return raw.define_set(self._session.number, target.name, 0, *pack_existing(target))
        if checked_text("a locality set's name", target) == "":
            return 0
        for candidate in self.all():
            if candidate.name == target:
                return candidate.handle
        raise ObjectNotFound(f"this session has no locality set {target!r}: create it with Store.locality_set()")

    def with_usage(self, item: _core.Item, target: LocalitySetOrName | None, consumers: int | None) -> _core.Item:
        """Return the item with the given set and number of consumers added."""
        if target is None and consumers is None:
            return item
        number = 0 if target is None else self.handle_of(target)
        return (*item[:7], number, 0 if consumers is None else checked_consumers(consumers))
