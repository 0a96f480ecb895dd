"""Deletes the records of where copies come from, once the copies are gone or were replaced.

noted as stale ──still stale in the next listing, and not written again──▶ deleted
      └──anything else──▶ kept
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import EntrepotError, VersionMismatch

if TYPE_CHECKING:
    from entrepot import ObjectID, Store
    from entrepot.origins import Origin

_log = logging.getLogger(__name__)


class StaleRecords:
    """Finds and deletes them, from one listing of the store to the next. For one thread.

    A record is written a moment after its copy is sealed, so that one that is stale now may be about to be replaced:
    only the generation that was already stale in the listing before is deleted.

    Args:
        store: a connection to the store, in any session.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._before: set[tuple[ObjectID, int]] = set()  # stale in the listing before: records and their generations
        self._now: set[tuple[ObjectID, int]] = set()  # in this one

    def note(self, record: ObjectID, copy: ObjectID, origin: Origin) -> None:
        """Note a record that is in the listing, and what it says about which object."""
        generation = raw_objects.generation_of(self._store, record)
        if generation is not None and raw_objects.generation_of(self._store, copy) != origin.generation:
            self._now.add((record, generation))

    def delete(self) -> None:
        """Delete what was stale in the listing before, too. Call this at the end of each listing."""
        ready, self._before, self._now = self._now & self._before, self._now, set()
        try:
            with suppress(VersionMismatch):  # an old daemon: they stay until their session ends
                for record, generation in ready:
                    raw_objects.discard_generation(self._store, record, generation)
        except EntrepotError as error:
            _log.warning("records of copies that are gone could not be deleted, and are tried again: %s", error)
