"""Restores values without rerunning their tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from entrepot import parts
from entrepot.errors import ObjectExists, ObjectLost, ObjectNotFound, StoreUnavailable, VersionMismatch

from entrepot_io.policy import lives
from entrepot_io.policy.catalog import Catalog, Catalogs, Entry
from entrepot_io.policy.events import EventLog
from entrepot_io.policy.lineage import ObjectRef
from entrepot_io.policy.model import FailoverRule
from entrepot_io.policy.planning import Survival
from entrepot_io.policy.reloading import is_loadable, reload
from entrepot_io.policy.statistics import Statistics
from entrepot_io.policy.targets import Target
from entrepot_io.policy.trouble import Trouble

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
        """Where an object can be restored from; a checkpoint is only checked for existing in its full length.

        Args:
            ref: the object.
            damaged: URLs of checkpoints to ignore.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        store = self._open_session(ref.session)
        if parts.generation_of(store, ref.id) is not None:
            return "store"
        if store.durable is not None and store.exists(ref.id):
            return "checkpoint"
        found, _ = self._catalogs.find(ref.id)
        fitting = _fitting(store, ref, found)
        good = (entry.url not in damaged and is_loadable(entry, catalog.target.options) for catalog, entry in fitting)
        return "checkpoint" if any(good) else "gone"

    def bring_back(self, ref: ObjectRef, trouble: Trouble, rule: FailoverRule, most: int | None = None) -> bool:
        """Load an object from its newest intact checkpoint; returns whether it then exists.

        Args:
            ref: the object: the lost one, or an input of a task that runs again.
            trouble: records what was tried.
            rule: that requests it.
            most: how many checkpoints to try; None: all.

        Raises:
            ObjectLost: another value has taken its place.
            StoreFull, StoreUnavailable, AccessDenied: it cannot be read, or put.
        """
        store = self._open_session(ref.session)
        if _readable(store, ref):
            return True  # another reader was faster
        found, failed = self._catalogs.find(ref.id)
        trouble.may_pass |= any(isinstance(error, StoreUnavailable) for error in failed)
        fitting = [one for one in _fitting(store, ref, found) if one[1].url not in trouble.damaged]
        for catalog, entry in fitting[:most]:
            if self._load(store, trouble, rule, entry, catalog.target):
                return True
        if not fitting:
            why = "; ".join(map(str, failed)) or ("only of other lives of it" if found else "there is none")
            trouble.note("reload_checkpoint", f"of {ref}: {why}")
        return False

    def recall(self, ref: ObjectRef) -> bool:
        """Reload any generation of an object from the durable tier; returns whether it had one."""
        store = self._open_session(ref.session)
        return store.durable is not None and store.recall(ref.id)

    def _load(self, store: Store, trouble: Trouble, rule: FailoverRule, entry: Entry, target: Target) -> bool:
        begun = time.monotonic()
        try:
            reload(store, entry, target.options)
        except ObjectExists as error:
            raise ObjectLost(
                f"{entry.ref} was replaced by a later attempt of the task that wrote it: {error}"
            ) from error
        except (ObjectLost, ObjectNotFound, VersionMismatch) as error:
            trouble.damaged.add(entry.url)
            trouble.note("reload_checkpoint", f"{entry.url}: {error}")
            trouble.tell(self._log, "checkpoint_damaged", rule, text=f"{entry.url}: {error}")
            return False
        seconds = time.monotonic() - begun
        text = f"{entry.ref} from {entry.url}"
        trouble.tell(self._log, "reloaded", rule, seconds=seconds, nbytes=entry.nbytes, text=text)
        self._statistics.loaded(target.template, entry.nbytes, seconds)
        return True


def _readable(store: Store, ref: ObjectRef) -> bool:
    """Whether the value exists and its bytes are readable: objects damaged on the spill disk are still listed."""
    if not lives.same_value(store, ref):
        return False
    try:
        parts.read(store, ref.id)
    except (ObjectLost, ObjectNotFound):
        return False
    return True


def _fitting(store: Store, ref: ObjectRef, found: list[tuple[Catalog, Entry]]) -> list[tuple[Catalog, Entry]]:
    """Those that hold exactly the value that a reference means."""
    wanted = lives.known_lives(store, ref) if ref.instance else None
    return [
        (catalog, entry)
        for catalog, entry in found
        if entry.scope == store.scope and (wanted is None or (entry.ref.instance, entry.ref.generation) in wanted)
    ]
