"""Checkpoints, as methods of a store. What does the work is another package, found by entry point."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from entrepot._arguments import AnyID, to_id
from entrepot.durable import declared
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._store import Store
    from entrepot.durable import Durable

ENTRY_POINT_GROUP = "entrepot.checkpoints"


class CheckpointMethods:
    """Part of :class:`Store`."""

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
        """Write a checkpoint: a durable copy outside the store, which this store or another one can load.

            store.save(oid, "s3://bucket/checkpoints/orders")
            store.save(store.session("run-7"), "/data/checkpoints/run-7")

        The bytes are written first and the manifest last: whatever breaks a save leaves what was there before. Saving
        the same again writes nothing; after a broken save, what is there already is not written again.

        Args:
            what: an ObjectID, a list of them, a collection (with its members), or a ``Store``, for its whole session.
            url: the checkpoint's folder: a path, ``file://``, ``s3://``, ``memory://``, or what else fsspec knows. A
                checkpoint that is there gives way when the new one is whole.
            format: ``"entrepot"`` keeps every value exactly as it is; ``"parquet"`` writes tables as files that
                anything reads.
            incremental: whether bytes that other checkpoints in the folder above have are shared with them. If not,
                the folder holds everything itself, and everything is written.
            progress: called with an ``entrepot_io.checkpoints.Progress`` as it goes on, from any thread.
            storage_options: for fsspec's driver: credentials, endpoints.

        Returns:
            An ``entrepot_io.checkpoints.SaveReport``: how many objects and bytes, and how many were written.

        Raises:
            ObjectNotFound: an object is not sealed here.
            ObjectLost: its bytes are gone.
            UnsupportedType: ``format="parquet"`` and a value that is no table, or would not come back as it is.
            InvalidArgument: an unknown scheme, a driver that is not installed, a path that is no folder.
            AccessDenied: no credentials, or no right to write there.
            StoreFull: the target is full.
            StoreUnavailable: the target, or the daemon, cannot be reached.
        """
        return service("save")(
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
        """Put back what a checkpoint holds, under the same IDs, types and names.

        Objects that are here with the same content are left as they are, so a broken load is taken up where it was.

        Args:
            url: where it was saved.
            session: session of this scope that the objects and names belong to; default: this store's.
            replace: whether objects of the same IDs with other content, and names that mean others, give way.
            progress: as for ``save``.
            storage_options: as for ``save``.

        Returns:
            The ID of the object or collection, or the list of IDs, in the order in which they were saved.

        Raises:
            ObjectNotFound: there is no checkpoint.
            CorruptData: the manifest or a chunk is damaged; nothing of the objects concerned is put.
            ObjectLost: a chunk is not there.
            VersionMismatch: a newer version wrote it.
            ObjectExists: an ID holds other content here, or a name is taken, and ``replace`` is False.
            StoreFull: it does not fit.
            InvalidArgument, AccessDenied, StoreUnavailable: as for ``save``.
        """
        load = service("load")
        return cast(
            "ObjectID | builtins.list[ObjectID]",
            load(self, url, session=session, replace=replace, progress=progress, storage_options=storage_options),
        )

    # --- durable sessions: see entrepot.durable; these are those of a session that is not

    @property
    def durable(self) -> Durable | None:
        """What this session was declared to be by ``connect(durable=...)``; None: not durable."""
        return None

    def make_durable(self, oid: AnyID) -> None:
        """Write one object to the durable tier of this session, whatever its name.

        Raises:
            InvalidArgument: the session is not durable.
            ObjectNotFound: the object is not sealed here.
            And what ``save`` raises.
        """
        raise InvalidArgument(
            f"object {to_id(oid)} cannot be made durable: this session was not declared so; "
            "connect with durable='URL', or use save()"
        )

    def flush_durable(self, timeout: float | None = None) -> None:
        """Wait until all that this process put off is written to the durable tier; nothing if there is none.

        Args:
            timeout: in seconds; None: as long as it takes.

        Raises:
            Timeout: it took longer.
            And what ``save`` raises, for an object that could not be written.
        """

    def recall(self, oid: AnyID, *, life: tuple[str, int] | None = None) -> bool:
        """Put an object back from the durable tier, and say whether it was there.

        Args:
            oid: its ID.
            life: instance and generation that it must have been; None: whichever was written last.

        Raises:
            What ``load`` raises.
        """
        return False


@cache
def service(name: str) -> Callable[..., Any]:
    """A function that an installed package registered under this name."""
    from importlib import metadata  # takes milliseconds, which a process that saves nothing need not spend

    for entry in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            return cast("Callable[..., Any]", entry.load())
    raise InvalidArgument(
        f"no installed package offers {name!r} in the entry-point group {ENTRY_POINT_GROUP!r}: reinstall entrepot"
    )


def as_declared(store: Store) -> Store:
    """A store that was just opened, as what some process declared its session to be."""
    durable = declared(store._client, store._scope, store._session)  # pyright: ignore[reportPrivateUsage]
    if durable is None:
        return store
    from entrepot._durable_store import DurableStore

    return DurableStore.over(store, durable, declare=False)


def flushes(store: Store) -> Iterator[tuple[str, Callable[[], int]]]:
    """Of every durable session in the store, whatever its scope: its name, and what flushes it."""
    from entrepot._connect import connect

    client = store._client  # pyright: ignore[reportPrivateUsage]
    for one in json.loads(client.raw.sessions())["sessions"]:
        scope, session = one["scope"], one["session"]
        durable = declared(client, scope, session)
        if durable is not None:

            def flush(scope: str = scope, session: str = session, durable: Durable = durable) -> int:
                with connect(store.address, scope=scope, session=session, durable=durable) as opened:
                    return cast("int", service("flush")(opened))

            yield f"session {session!r} of scope {scope!r} at {durable.url}", flush
