"""Checkpoints: methods of ``Store``, implemented by another package that is found by entry point."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from entrepot._client.arguments import AnyID, to_id
from entrepot.durable import durable_config
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._client.store import Store
    from entrepot.durable import Durable

ENTRY_POINT_GROUP = "entrepot.checkpoints"


class CheckpointMethods:
    """Methods of :class:`Store` for checkpoints and durable sessions."""

    def save(
        self,
        what: Any,
        url: str,
        *,
        format: Literal["entrepot", "parquet"] = "entrepot",
        incremental: bool = True,
        progress: Callable[[Any], None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Write a checkpoint: a durable copy outside the store, which this or another store can load.

            store.save(oid, "s3://bucket/checkpoints/orders")
            store.save(store.session("run-7"), "/data/checkpoints/run-7")

        Data is written first and the manifest last, so a failed save leaves the previous checkpoint intact. Saving the
        same content again writes nothing; repeating a failed save writes only what is still missing.

        Args:
            what: an ObjectID, a list of them, a collection (with its members), or a ``Store``, for its whole session.
            url: the checkpoint's directory: a path, ``file://``, ``s3://``, ``memory://``, or any other fsspec URL. An
                existing checkpoint is replaced when the new one is complete.
            format: ``"entrepot"`` preserves every value exactly; ``"parquet"`` writes tables as files that any tool can
                read.
            incremental: share data with other checkpoints in the parent directory. If False, this directory is
                self-contained and everything is written.
            progress: called with an ``entrepot_checkpoints.Progress`` as the save proceeds, from any thread.
            storage_options: passed to fsspec's driver: credentials, endpoints.

        Returns:
            An ``entrepot_checkpoints.SaveReport``: how many objects and bytes, and how many of them were written.

        Raises:
            ObjectNotFound: an object is not sealed here.
            ObjectLost: an object's bytes are gone.
            UnsupportedType: ``format="parquet"``, and a value is not a table or would not survive a round trip.
            InvalidArgument: unknown scheme, driver not installed, or the path is not a directory.
            AccessDenied: no credentials, or no permission to write there.
            StoreFull: the target is full.
            StoreUnavailable: the target or the daemon cannot be reached.
        """
        return checkpoint_function("save")(
            self,
            what,
            url,
            format=format,
            incremental=incremental,
            progress=progress,
            storage_options=storage_options,
        )

    def load(
        self,
        url: str,
        *,
        session: str | None = None,
        replace: bool = False,
        progress: Callable[[Any], None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> ObjectID | builtins.list[ObjectID]:
        """Load a checkpoint's objects into the store, under the same IDs, types and names.

        Objects already here with the same content are left alone, so repeating a failed load continues it.

        Args:
            url: where it was saved.
            session: session of this scope that receives the objects and names; default: this store's.
            replace: replace objects that have the same ID but other content, and names bound to other objects.
            progress: as for ``save``.
            storage_options: as for ``save``.

        Returns:
            The ID of the object or collection, or the list of IDs, in the order in which they were saved.

        Raises:
            ObjectNotFound: there is no checkpoint.
            CorruptData: the manifest or a chunk is damaged; none of the objects affected is put.
            ObjectLost: a chunk is missing.
            VersionMismatch: it was written by a newer version.
            ObjectExists: an ID holds other content here, or a name is taken, and ``replace`` is False.
            StoreFull: it does not fit.
            InvalidArgument, AccessDenied, StoreUnavailable: as for ``save``.
        """
        load = checkpoint_function("load")
        return cast(
            "ObjectID | builtins.list[ObjectID]",
            load(self, url, session=session, replace=replace, progress=progress, storage_options=storage_options),
        )

    # --- durable sessions (see entrepot.durable); these are the defaults, for sessions that are not durable

    @property
    def durable(self) -> Durable | None:
        """How ``connect(durable=...)`` declared this session; None: not durable."""
        return None

    def make_durable(self, oid: AnyID) -> None:
        """Write one object to this session's durable tier, whatever its name.

        Raises:
            InvalidArgument: the session is not durable.
            ObjectNotFound: the object is not sealed here.
            Anything that ``save`` raises.
        """
        raise InvalidArgument(
            f"object {to_id(oid)} cannot be made durable: this session is not durable; "
            "connect with durable='URL', or use save()"
        )

    def flush_durable(self, timeout: float | None = None) -> None:
        """Wait until this process's pending writes to the durable tier are done; a no-op if there is no such tier.

        Args:
            timeout: in seconds; None: no limit.

        Raises:
            Timeout: it took longer.
            Anything that ``save`` raises, for an object that could not be written.
        """

    def recall(self, oid: AnyID, *, life: tuple[str, int] | None = None) -> bool:
        """Restore an object from the durable tier; return whether it was there.

        Args:
            oid: the object's ID.
            life: required instance and generation; None: whichever version was written last.

        Raises:
            Anything that ``load`` raises.
        """
        return False


@cache
def checkpoint_function(name: str) -> Callable[..., Any]:
    """Return the function that an installed package registered under this name."""
    from importlib import metadata  # takes milliseconds, which a process that saves nothing need not spend

    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            return cast("Callable[..., Any]", entry.load())
    raise InvalidArgument(
        f"no installed package provides {name!r} in the entry-point group {ENTRY_POINT_GROUP!r}: reinstall entrepot"
    )


def apply_durable_config(store: Store) -> Store:
    """Wrap a newly opened store as durable if any process has declared its session so."""
    durable = durable_config(store._client, store._scope, store._session)  # pyright: ignore[reportPrivateUsage]
    if durable is None:
        return store
    from entrepot._checkpoints.durable_store import DurableStore

    return DurableStore.wrap(store, durable, declare=False)
