"""What a user does to objects from a view."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import entrepot
from entrepot._client.pins import Pin
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound

MAX_OBJECTS = 1000
_FORMATS = ("entrepot", "parquet", "arrow", "csv", "orc", "npy", "h5")


class Actions:
    """Deletes, pins, evicts and saves objects; holds the pins that it took. For any number of threads.

    Args:
        connect: connects to the store, for each action.
    """

    def __init__(self, connect: Callable[[], entrepot.Store]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._pins: dict[str, Pin] = {}  # guarded by _lock; a pin outlives the connection that took it

    def pinned(self) -> list[str]:
        """The objects that are pinned from here."""
        with self._lock:
            return sorted(self._pins)

    def run(self, action: str, oids: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
        """Do something to objects; what fails for one does not keep it from being done to the others.

        Args:
            action: ``"delete"``, ``"pin"``, ``"unpin"``, ``"evict"`` or ``"save"``.
            oids: the objects.
            options: for ``"save"``: ``url`` and ``format``.

        Returns:
            ``done``: the objects; ``failed``: the message for each other one; ``note``.

        Raises:
            InvalidArgument: there is no such action, or its arguments are wrong.
            StoreUnavailable: the store cannot be reached.
        """
        if not 1 <= len(oids) <= MAX_OBJECTS:
            raise InvalidArgument(f"an action is on 1 to {MAX_OBJECTS} objects, not on {len(oids)}")
        for oid in oids:
            entrepot.ObjectID(oid)  # a malformed one is refused before anything is done
        if action == "unpin":
            return _result([oid for oid in oids if self._unpin(oid)])
        if action == "save":
            return self._save(oids, options)
        each = {"delete": _delete, "pin": self._pin, "evict": _evict}.get(action)
        if each is None:
            raise InvalidArgument(f"there is no action {action!r}: delete, pin, unpin, evict and save are those")
        done: list[str] = []
        failed: dict[str, str] = {}
        with self._connect() as store:
            for oid in oids:
                try:
                    each(store, oid)
                    done.append(oid)
                except EntrepotError as error:
                    failed[oid] = str(error)
        return _result(done, failed)

    def close(self) -> None:
        """Release all pins."""
        with self._lock:
            pins, self._pins = self._pins, {}
        for pin in pins.values():
            pin.unpin()

    def _pin(self, store: entrepot.Store, oid: str) -> None:
        pin = store.pin(oid)
        with self._lock:
            former, self._pins[oid] = self._pins.get(oid), pin
        if former is not None:
            former.unpin()

    def _unpin(self, oid: str) -> bool:
        with self._lock:
            pin = self._pins.pop(oid, None)
        if pin is not None:
            pin.unpin()
        return pin is not None

    def _save(self, oids: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
        url, file_format = options.get("url"), options.get("format", "entrepot")
        if not isinstance(url, str) or not url.strip():
            raise InvalidArgument("a save needs the url of a directory, such as /data/checkpoints/orders")
        if file_format not in _FORMATS:
            raise InvalidArgument(f"the format of a save is one of {', '.join(_FORMATS)}, not {file_format!r}")
        with self._connect() as store:
            report = store.save([entrepot.ObjectID(oid) for oid in oids], url.strip(), format=file_format)
        counts = asdict(report) if is_dataclass(report) and not isinstance(report, type) else {}
        return _result(list(oids)) | {
            "note": f"saved to {url.strip()}",
            "report": {k: str(v) for k, v in counts.items()},
        }


def _delete(store: entrepot.Store, oid: str) -> None:
    if not store.delete(oid):
        raise ObjectNotFound(f"object {oid} is not in the store (any more)")


def _evict(store: entrepot.Store, oid: str) -> None:
    if not store.exists(oid):
        raise ObjectNotFound(f"object {oid} is not in the store (any more)")
    store.evict(oid)


def _result(done: list[str], failed: dict[str, str] | None = None) -> dict[str, Any]:
    return {"done": done, "failed": failed or {}, "note": ""}
