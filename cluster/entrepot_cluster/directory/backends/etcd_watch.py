"""Follows the instances in etcd by a watch: a stream that a thread reads into a queue."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from entrepot.errors import DirectoryUnavailable, EntrepotError

from entrepot_cluster.directory.backends.etcd_gateway import EtcdGateway, Stream, base64_text, from_base64
from entrepot_cluster.directory.backends.interface import LeaseChange, RecordChange, ServerState
from entrepot_cluster.directory.codec import NUMBER_BYTES, RECORDS, successor

LEASES = b"l"
RESYNC_SECONDS = 60.0  # a new snapshot is taken even if the stream seems well: it may have been cut off silently
CHECK_SECONDS = 5.0  # a silent stream says nothing about the server; see EtcdSubscription.wait
_NUMBER = 1 + NUMBER_BYTES


class EtcdSubscription:
    """See :class:`~entrepot_cluster.directory.backends.interface.Subscription`.

    States: without a stream -> with a stream, and a thread that reads it -> closed.
    All fields belong to the thread that calls ``wait``, except ``_stream`` and ``_closed``: guarded by ``_lock``.

    Args:
        gateway: sends the requests.
        prefix: what all keys of the cluster begin with.
        revision: that of the snapshot.
        check: a request that shows whether etcd responds.
    """

    def __init__(self, gateway: EtcdGateway, prefix: bytes, revision: int, check: Callable[[], ServerState]) -> None:
        self._gateway = gateway
        self._prefix = prefix
        self._revision = revision
        self._check = check
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._closed = False
        self._results: queue.SimpleQueue[dict[str, Any] | EntrepotError] = queue.SimpleQueue()
        self._began = self._checked = time.monotonic()

    def wait(self, seconds: float) -> list[RecordChange | LeaseChange] | None:
        """See the interface. Every CHECK_SECONDS of silence, it asks whether etcd still responds."""
        end = time.monotonic() + seconds
        if self._stream is None:
            self._open()
        while True:
            now = time.monotonic()
            if now - self._began > RESYNC_SECONDS:
                return None
            try:
                result = self._results.get(timeout=max(0.0, min(end - now, self._checked + CHECK_SECONDS - now)))
            except queue.Empty:
                if time.monotonic() >= self._checked + CHECK_SECONDS:
                    self._check()
                    self._checked = time.monotonic()
                if time.monotonic() >= end:
                    return []
                continue
            self._checked = time.monotonic()
            if isinstance(result, EntrepotError):
                raise result
            if result.get("canceled"):  # the history from this revision on was compacted, or etcd lost its leader
                return None
            if events := list(self._events(result)):
                return events

    def close(self) -> None:
        """See the interface."""
        with self._lock:
            self._closed = True
            stream = self._stream
        if stream is not None:
            stream.close()

    def _open(self) -> None:
        # The records and leases, and the kinds of keys between them, of which there are none.
        create = {
            "key": base64_text(self._prefix + RECORDS),
            "range_end": base64_text(self._prefix + successor(LEASES)),
            "start_revision": str(self._revision + 1),
        }
        stream = self._gateway.stream("watch", {"create_request": create})
        with self._lock:
            if self._closed:
                stream.close()
                raise DirectoryUnavailable("the directory was closed by close(): open it again")
            self._stream = stream
        self._began = self._checked = time.monotonic()
        threading.Thread(target=_read, args=(stream, self._results), name="entrepot-etcd-watch", daemon=True).start()

    def _events(self, result: dict[str, Any]) -> Iterator[RecordChange | LeaseChange]:
        skip = len(self._prefix)
        for event in result.get("events", ()):
            kv = event["kv"]
            key = from_base64(kv["key"])[skip:]
            removed = event.get("type") == "DELETE"
            if len(key) != _NUMBER:
                continue
            number = int.from_bytes(key[1:], "big")
            if key.startswith(RECORDS):
                yield RecordChange(number, None if removed else from_base64(kv.get("value", "")))
            elif key.startswith(LEASES):
                yield LeaseChange(number, not removed)


def _read(stream: Stream, results: queue.SimpleQueue[dict[str, Any] | EntrepotError]) -> None:
    try:
        for line in stream.lines():
            if "result" not in line:
                raise DirectoryUnavailable(f"etcd ended a watch: {str(line.get('error'))[:200]}")
            results.put(line["result"])
        raise DirectoryUnavailable("etcd ended a watch")
    except EntrepotError as error:
        results.put(error)
    except Exception as error:  # a stream that is not etcd's; `wait` raises it
        results.put(DirectoryUnavailable(f"a watch of etcd cannot be read: {type(error).__name__}: {error}"))
