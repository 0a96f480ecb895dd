"""Restores values without rerunning their tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from entrepot import raw_objects
from entrepot.errors import ObjectExists, ObjectLost, ObjectNotFound, StoreUnavailable, VersionMismatch

from entrepot_policy.checkpoints.catalog import Catalog, CatalogEntry, Catalogs
from entrepot_policy.recovery.checkpoint_restore import is_loadable, restore_checkpoint
from entrepot_policy.recovery.incident import Incident
from entrepot_policy.recovery.planning import Survival
from entrepot_policy.rules.model import FailoverRule
from entrepot_policy.rules.targets import Target
from entrepot_policy.state import generations
from entrepot_policy.state.events import EventLog
from entrepot_policy.state.lineage import ObjectRef
from entrepot_policy.state.statistics import Statistics

if TYPE_CHECKING:
    from entrepot import Store


class Restorer:
    """Restores values from checkpoints and the durable tier. Thread-safe.

    Args:
        catalogs: of the targets.
        open_session: a session of the scope by its name.
        statistics: receives the speed of targets.
        log: receives reloads and damage.
    """

    def __init__(
        self, catalogs: Catalogs, open_session: Callable[[str], Store], statistics: Statistics, log: EventLog
    ) -> None:
        self._catalogs = catalogs
        self._open_session = open_session
        self._statistics = statistics
        self._log = log

    def survival(self, ref: ObjectRef, damaged: Collection[str] = ()) -> Survival:
        """Return where an object can be restored from; a checkpoint is only checked for existing in its full length.

        Args:
            ref: the object.
            damaged: URLs of checkpoints to ignore.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        store = self._open_session(ref.session)
        if raw_objects.generation_of(store, ref.id) is not None:
            return "store"
        if store.durable is not None and store.exists(ref.id):
            return "checkpoint"
        candidates, _ = self._catalogs.find(ref.id)
        matching = _matching_entries(store, ref, candidates)
        loadable = (
            entry.url not in damaged and is_loadable(entry, catalog.target.options) for catalog, entry in matching
        )
        return "checkpoint" if any(loadable) else "gone"

    def restore_from_checkpoint(
        self, ref: ObjectRef, incident: Incident, rule: FailoverRule, max_checkpoints: int | None = None
    ) -> bool:
        """Load an object from its newest intact checkpoint; returns whether it then exists.

        Args:
            ref: the object: the lost one, or an input of a task that runs again.
            incident: records what was tried.
            rule: that requests it.
            max_checkpoints: how many checkpoints to try; None: all.

        Raises:
            ObjectLost: another value has taken its place.
            StoreFull, StoreUnavailable, AccessDenied: it cannot be read, or put.
        """
        store = self._open_session(ref.session)
        if _readable(store, ref):
            return True  # another reader was faster
        candidates, errors = self._catalogs.find(ref.id)
        incident.retryable |= any(isinstance(error, StoreUnavailable) for error in errors)
        matching = [pair for pair in _matching_entries(store, ref, candidates) if pair[1].url not in incident.damaged]
        for catalog, entry in matching[:max_checkpoints]:
            if self._load(store, incident, rule, entry, catalog.target):
                return True
        if not matching:
            reason = "; ".join(map(str, errors)) or (
                "only other generations are checkpointed" if candidates else "no checkpoint found"
            )
            incident.record_outcome("reload_checkpoint", f"{ref}: {reason}")
        return False

    def recall(self, ref: ObjectRef) -> bool:
        """Reload any generation of an object from the durable tier; returns whether it had one."""
        store = self._open_session(ref.session)
        return store.durable is not None and store.recall(ref.id)

    def _load(self, store: Store, incident: Incident, rule: FailoverRule, entry: CatalogEntry, target: Target) -> bool:
        started = time.monotonic()
        try:
            restore_checkpoint(store, entry, target.options)
        except ObjectExists as error:
            raise ObjectLost(
                f"{entry.ref} was replaced by a later attempt of the task that wrote it: {error}"
            ) from error
        except (ObjectLost, ObjectNotFound, VersionMismatch) as error:
            incident.damaged.add(entry.url)
            incident.record_outcome("reload_checkpoint", f"{entry.url}: {error}")
            incident.log_event(self._log, "checkpoint_damaged", rule, text=f"{entry.url}: {error}")
            return False
        seconds = time.monotonic() - started
        text = f"{entry.ref} from {entry.url}"
        incident.log_event(self._log, "reloaded", rule, seconds=seconds, nbytes=entry.nbytes, text=text)
        self._statistics.record_checkpoint_load(target.template, entry.nbytes, seconds)
        return True


def _readable(store: Store, ref: ObjectRef) -> bool:
    """Whether the value exists and its bytes are readable: objects damaged on the spill disk are still listed."""
    if not generations.same_value(store, ref):
        return False
    try:
        raw_objects.read(store, ref.id)
    except (ObjectLost, ObjectNotFound):
        return False
    return True


def _matching_entries(
    store: Store, ref: ObjectRef, candidates: list[tuple[Catalog, CatalogEntry]]
) -> list[tuple[Catalog, CatalogEntry]]:
    """Those that hold exactly the value that a reference means."""
    equivalents = generations.equivalent_generations(store, ref) if ref.instance else None
    return [
        (catalog, entry)
        for catalog, entry in candidates
        if entry.scope == store.scope
        and (equivalents is None or (entry.ref.instance, entry.ref.generation) in equivalents)
    ]
