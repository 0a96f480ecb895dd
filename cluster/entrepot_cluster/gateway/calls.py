"""Answers the calls that the store's clients make to the gateway (``entrepot._client.gateway_calls``)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgpack
from entrepot import raw_objects
from entrepot._client import gateway_calls
from entrepot.errors import EntrepotError, InvalidArgument, ObjectNotFound, VersionMismatch
from entrepot.ids import ObjectID
from entrepot.origins import Life, copy_of

from entrepot_cluster.gateway.collection_calls import CollectionCalls
from entrepot_cluster.gateway.fetcher import Fetcher, is_unknown, lost_error
from entrepot_cluster.gateway.waiting_fetches import WaitingFetches

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.draining import Draining
    from entrepot_cluster.gateway.migration import Migration
    from entrepot_cluster.gateway.publication import Publication
    from entrepot_cluster.gateway.replication import Replication
    from entrepot_cluster.gateway.streams.stream_calls import StreamCalls

_PREFETCHES_AT_ONCE = 4
_ANSWER_SECONDS = 0.25  # for an answer to reach its client in time

_log = logging.getLogger(__name__)


class Calls:
    """Answers calls. Thread-safe: each call is answered by a thread of its own.

    Args:
        store: a connection to the store, in any session.
        directory: of the cluster.
        fetcher, publication, replication, migration, draining, streams, collections: the gateway's parts.
        leave: ends the gateway; it leaves the cluster.
    """

    def __init__(
        self,
        store: Store,
        directory: DirectoryAccess,
        fetcher: Fetcher,
        publication: Publication,
        replication: Replication,
        migration: Migration,
        draining: Draining,
        streams: StreamCalls,
        collections: CollectionCalls,
        leave: Callable[[], None],
    ) -> None:
        self._store = store
        self._directory = directory
        self._fetcher = fetcher
        self._publication = publication
        self._replication = replication
        self._migration = migration
        self._draining = draining
        self._leave = leave
        self._background = ThreadPoolExecutor(_PREFETCHES_AT_ONCE, thread_name_prefix="prefetch")
        self._waiting = WaitingFetches(fetcher, self._missing)
        self._collections = collections
        self._operations: dict[str, Callable[[Any], Any]] = {
            gateway_calls.FETCH_LIFE: self._fetch_life,
            gateway_calls.FETCH_LIVES: self._fetch_lives,
            gateway_calls.PREFETCH_LIVES: self._prefetch_lives,
            gateway_calls.RESOLVE: self._resolve,
            gateway_calls.LOCATE: self._locate,
            gateway_calls.PREFETCH: self._prefetch,
            gateway_calls.PUBLISH: self._publish,
            gateway_calls.STREAM: streams.answer,
            gateway_calls.REPLICAS: self._replicas,
            gateway_calls.DRAIN: self._drain,
            gateway_calls.LEAVE: self._leave_cluster,
        }
        self._timed_operations: dict[str, Callable[[float, Any], Any]] = {
            gateway_calls.MIGRATE: self._migrate,
            gateway_calls.PUBLISH_REPLICAS: self._publish_replicas,
            **self._collections.operations,
        }

    def close(self) -> None:
        """Start no further fetches."""
        self._waiting.close()
        self._collections.close()
        self._background.shutdown(wait=False, cancel_futures=True)

    def answer(
        self,
        operation: str,
        ids: list[bytes],
        payload: bytes,
        seconds: float,
        later: Callable[[EntrepotError | None], None],
    ) -> bytes | None:
        """Answer one call.

        Args:
            operation, ids, payload: as the client sent them.
            seconds: how long the client waits.
            later: answers with an error, or with nothing, if this returns None.

        Returns:
            the answer; None: it comes later, or never, because the daemon itself answers at the client's timeout.

        Raises:
            EntrepotError: the answer is this error.
        """
        if operation == gateway_calls.FETCH:
            return b"" if self._fetch(ids, seconds, later if payload else None) else None
        perform = self._operations.get(operation)
        if (timed := self._timed_operations.get(operation)) is not None:
            perform = partial(timed, seconds)
        if perform is None:
            raise VersionMismatch(
                f"this store's gateway does not know the operation {operation!r}: it is older than the client; "
                "restart it"
            )
        try:
            request = msgpack.unpackb(payload)
        except (ValueError, msgpack.UnpackException) as error:
            raise InvalidArgument(f"the call {operation!r} to the gateway cannot be read: {error}") from error
        return cast("bytes", msgpack.packb(perform(request)))

    def _fetch(self, ids: list[bytes], seconds: float, later: Callable[[EntrepotError | None], None] | None) -> bool:
        """Fetch what is missing; what nobody has published yet is waited for if there is somebody to answer later."""
        errors = [error for error in self._fetcher.fetch(self._missing(ids)) if error]
        if not errors:
            return True
        final = next((error for error in errors if not is_unknown(error)), None)
        if final is not None or later is None:
            raise final or errors[0]
        self._waiting.add(ids, seconds, later)
        return False

    def _missing(self, ids: Sequence[bytes]) -> list[bytes]:
        """Those of these objects that are not here."""
        here = raw_objects.generations_of(self._store, [ObjectID(oid) for oid in ids])
        return [oid for oid, generation in zip(ids, here, strict=True) if generation is None]

    def _fetch_life(self, request: Any) -> bytes:
        oid, instance, generation = request
        return self._fetcher.fetch_life(oid, Life(instance, generation)).binary

    def _fetch_lives(self, request: Any) -> list[list[str] | None]:
        outcomes = self._fetcher.fetch_lives(_lives(request))
        return [[each.code, each.message] if isinstance(each, EntrepotError) else None for each in outcomes]

    def _prefetch_lives(self, request: Any) -> None:
        self._background.submit(self._fetcher.fetch_lives, _lives(request))

    def _resolve(self, request: Any) -> bytes:
        """Look up a name in the directory, and fetch what it is bound to."""
        scope, session, name = request
        published = self._directory.get().lookup_name(scope, session, name)
        bindings = [each for each in published.entries if each.instance.id != self._store.instance_id]
        if not bindings:
            if published.damage is not None:
                raise published.damage
            raise ObjectNotFound(f"no other store of the cluster has published the name {name!r} in this session")
        newest = bindings[0]
        if not newest.instance.live and not self._has_copy(newest.oid, Life(newest.instance.id, newest.generation)):
            raise lost_error(newest.oid, [newest.instance])
        life = Life(newest.instance.id, newest.generation)
        here = copy_of(self._store, ObjectID(newest.oid), life, (scope, session))
        return (here or self._fetcher.fetch_life(newest.oid, life)).binary

    def _has_copy(self, oid: bytes, life: Life) -> bool:
        published = self._directory.get().places([oid])[0]
        return any(place.life == life and place.instance.live for place in published.entries)

    def _prefetch(self, request: Any) -> None:
        self._background.submit(self._fetcher.fetch, self._missing(request))

    def _locate(self, request: Any) -> list[Any]:
        published = self._directory.get().places([request])[0]
        return [
            [
                place.instance.id,
                place.instance.host,
                place.generation,
                place.nbytes,
                place.instance.live,
                place.instance.lost_since or 0.0,
            ]
            for place in published.raise_damage()
        ]

    def _publish(self, request: Any) -> None:
        self._publication.publish(*([request] if isinstance(request, bytes) else request))

    def _publish_replicas(self, seconds: float, request: Any) -> None:
        end = time.monotonic() + seconds - _ANSWER_SECONDS
        for entry, replicas in self._publication.publish(*request):
            self._replication.wait(entry, replicas, max(0.0, end - time.monotonic()))

    def _replicas(self, _request: Any) -> dict[str, int]:
        return self._replication.status()

    def _migrate(self, seconds: float, request: Any) -> None:
        oid, to = request
        self._migration.migrate(oid, to, seconds - _ANSWER_SECONDS)

    def _drain(self, request: Any) -> list[list[str]]:
        return [list(outcome) for outcome in self._draining.drain(*request)]

    def _leave_cluster(self, _request: Any) -> None:
        threading.Timer(_ANSWER_SECONDS, self._leave).start()  # this call is answered before


def _lives(request: Any) -> list[tuple[bytes, Life]]:
    return [(oid, Life(instance, generation)) for oid, instance, generation in request]


def error_name(error: EntrepotError) -> str:
    """The name of the error's class, or of the nearest one that the daemon knows."""
    return next(name for name in (cls.__name__ for cls in type(error).__mro__) if name in _KNOWN)


_KNOWN = frozenset(
    {
        "EntrepotError",
        "ObjectNotFound",
        "ObjectLost",
        "ObjectDropped",
        "CorruptData",
        "ObjectExists",
        "StoreFull",
        "StoreUnavailable",
        "InstanceLost",
        "Timeout",
        "VersionMismatch",
        "AccessDenied",
        "DirectoryUnavailable",
        "InvalidArgument",
    }
)
