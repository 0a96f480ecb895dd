"""Interface of a durable tier."""

from __future__ import annotations

from typing import Any, Protocol

from entrepot.ids import ObjectID


class DurableBackend(Protocol):
    """Storage for objects outside the store; implemented by ``entrepot_checkpoints.durable_tier``.

    ``store`` is always the :class:`entrepot.Store` on whose behalf it is called; naming the class would be a circle.
    """

    def check(self) -> None:
        """Raise if it is a local folder that cannot be written. Others are not tried: an fsspec driver that was used
        may not work in processes that are forked later."""

    def save(self, store: Any, oid: ObjectID) -> None:
        """Write an object; return once it is there."""

    def save_later(self, store: Any, oid: ObjectID) -> None:
        """Write an object in the background."""

    def flush(self, timeout: float | None) -> None:
        """Wait until all pending writes are done; raise the error of one that failed."""

    def contains(self, oid: ObjectID) -> bool:
        """Return whether the object is there."""
        ...

    def recall(self, store: Any, oid: ObjectID, life: tuple[str, int] | None) -> bool:
        """Restore it to the store; return whether it was there. A given life (instance, generation) must match."""
        ...

    def delete(self, oid: ObjectID) -> bool:
        """Remove it; return whether it was there."""
        ...

    def bind(self, store: Any, name: str, oid: ObjectID) -> None:
        """Record what a name is bound to."""

    def unbind(self, store: Any, name: str) -> bool:
        """Remove a name; return whether it was there."""
        ...

    def lookup(self, store: Any, name: str) -> ObjectID | None:
        """Return the ID that a name is bound to in the tier; None: it has no such name."""
        ...
