"""Has other stores fetch copies of objects: many small ones in a request, each large one in a request of its own.

An object of which a store is to have a copy:

    small ──one of the threads for small ones──▶ asked for ──▶ copied, or refused
    large ──one of the threads for large ones──▶ asked for ──▶ copied, or refused

Small ones are waited for; large ones take their time, and nothing waits for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from entrepot.errors import EntrepotError, ObjectExists, ObjectNotFound

from entrepot_cluster.gateway.kept_object import BACK_OFF_SECONDS, RECHECK_SECONDS, KeptObject
from entrepot_cluster.transport.endpoints import Wanted

if TYPE_CHECKING:
    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.gateway.peers import Peers

LARGE_BYTES = 1 << 20
SMALL_AT_ONCE = 64  # in one request to a peer
SMALL_BYTES_AT_ONCE = 16 << 20
_REQUESTS_AT_ONCE = 4  # of each kind

_log = logging.getLogger(__name__)


class ReplicaTransfers:
    """Requests to other stores. Thread-safe.

    Args:
        own_instance: this store.
        own_address: where other gateways reach this one.
        peers: connections to other gateways.
        note_holders: records which objects a store is asked to keep, before it is.
    """

    def __init__(
        self,
        own_instance: str,
        own_address: str,
        peers: Peers,
        note_holders: Callable[[Sequence[KeptObject], str], None],
    ) -> None:
        self._own = own_instance
        self._own_address = own_address
        self._peers = peers
        self._note_holders = note_holders
        self._lock = threading.Lock()
        self._refused: dict[str, float] = {}  # until when a store is not asked again, by instance; guarded by _lock
        self._under_way: set[tuple[bytes, int, str]] = set()  # large ones, and where to; guarded by _lock
        self._small = ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="replicas")
        self._large = ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="large-replicas")

    def close(self) -> None:
        """Start no further requests; those under way are not waited for."""
        for pool in (self._small, self._large):
            pool.shutdown(wait=False, cancel_futures=True)

    def start(self, target: Instance, objects: Iterable[KeptObject]) -> list[Future[None]]:
        """Have a store fetch these objects from here; return what to wait for, which is for the small ones only."""
        small: list[KeptObject] = []
        for kept in objects:
            if kept.entry.nbytes <= LARGE_BYTES:
                small.append(kept)
                continue
            with self._lock:
                key = _key(kept, target)
                is_new = key not in self._under_way
                self._under_way.add(key)
            if is_new:
                self._large.submit(self._copy_large, target, kept)
        return [self._small.submit(self._copy, target, part) for part in _requests(small)]

    def is_under_way(self, kept: KeptObject, target: Instance) -> bool:
        """Whether a store is being sent a large object."""
        with self._lock:
            return _key(kept, target) in self._under_way

    def may_ask(self, instance: Instance) -> bool:
        """Whether a store has not refused just now."""
        with self._lock:
            return time.monotonic() >= self._refused.get(instance.id, 0.0)

    def back_off(self, instance: Instance, error: EntrepotError) -> None:
        """Do not ask a store for a while."""
        with self._lock:
            is_news = instance.id not in self._refused
            self._refused[instance.id] = time.monotonic() + BACK_OFF_SECONDS
        if is_news:
            _log.warning("host %s does not take copies at the moment: %s", instance.host, error)

    def _copy_large(self, target: Instance, kept: KeptObject) -> None:
        try:
            self._copy(target, [kept])
        except Exception:
            _log.exception("object %s could not be copied to host %s", kept.entry.oid.hex(), target.host)
        finally:
            with self._lock:
                self._under_way.discard(_key(kept, target))

    def _copy(self, target: Instance, batch: list[KeptObject]) -> None:
        if not self.may_ask(target):  # another request has failed just now
            return
        wanted = [Wanted(kept.entry.oid, kept.entry.generation) for kept in batch]
        try:
            self._note_holders(batch, target.id)
            errors = self._peers.get(target).replicate(wanted, self._own_address, self._own)
        except EntrepotError as failure:
            self.back_off(target, failure)
            return
        for kept, error in zip(batch, errors, strict=True):
            if error is None:
                kept.holders.add(target.id)
                kept.checked_at = -RECHECK_SECONDS  # look again
            elif isinstance(error, ObjectExists):  # something else has this ID there
                kept.refused[target.id] = time.monotonic() + BACK_OFF_SECONDS
            elif not isinstance(error, ObjectNotFound):  # deleted here since
                self.back_off(target, error)


def _key(kept: KeptObject, target: Instance) -> tuple[bytes, int, str]:
    return kept.entry.oid, kept.entry.generation, target.id


def _requests(objects: Iterable[KeptObject]) -> Iterator[list[KeptObject]]:
    part: list[KeptObject] = []
    nbytes = 0
    for kept in objects:
        if part and (len(part) == SMALL_AT_ONCE or nbytes + kept.entry.nbytes > SMALL_BYTES_AT_ONCE):
            yield part
            part, nbytes = [], 0
        part.append(kept)
        nbytes += kept.entry.nbytes
    if part:
        yield part
