"""A directory in etcd: keys below ``entrepot/NAME/``, etcd's own leases and watches.

A valid lease is a key ``l`` and number that is attached to a lease of etcd, which removes it when the lease ends. The
sequence is etcd's revision, which every write increases, plus the value of the key ``f``, because revisions are lower
than before after a restore from a backup.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from entrepot.errors import AccessDenied, DirectoryUnavailable

from entrepot_cluster.directory.backends.etcd_gateway import (
    EtcdAccess,
    EtcdGateway,
    NotFound,
    base64_text,
    from_base64,
)
from entrepot_cluster.directory.backends.etcd_watch import LEASES, EtcdSubscription
from entrepot_cluster.directory.backends.etcd_windows import Windows
from entrepot_cluster.directory.backends.interface import (
    Entry,
    Lease,
    LeaseEnded,
    ServerState,
    Snapshot,
)
from entrepot_cluster.directory.codec import NUMBER_BYTES, RECORDS, successor

OPERATIONS = 128  # etcd's limit for one transaction (--max-txn-ops)
FLOOR = b"f"
COMPACT_SECONDS = 300.0  # history that old watches may still need
_NUMBER = 1 + NUMBER_BYTES


class EtcdBackend:
    """See :class:`~entrepot_cluster.directory.backends.interface.Backend`.

    Args:
        access: how etcd is reached.
        name: the cluster's name.
        timeout: seconds for one request.
        compact: whether :meth:`tidy` compacts etcd's history, which is that of all its users.
    """

    def __init__(self, access: EtcdAccess, name: str, timeout: float, *, compact: bool = True) -> None:
        self._gateway = EtcdGateway(access, timeout)
        self._prefix = f"entrepot/{name}/".encode()
        self._compact = compact
        self._lock = threading.Lock()
        self._compactable: tuple[float, int] | None = None  # time and revision of the last tidy; guarded by _lock

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See the interface."""
        entries_by_key = self._ranges([{"key": self._text(key)} for key in keys])
        return [entries[0].value if entries else None for entries in entries_by_key]

    def read_prefixes(self, prefixes: Sequence[bytes]) -> list[list[Entry]]:
        """See the interface."""
        return self._ranges([self._range(prefix) for prefix in prefixes])

    def page(self, prefix: bytes, after: bytes, limit: int) -> list[Entry]:
        """See the interface."""
        page: list[Entry] = []
        windows = Windows(prefix, after)
        while not windows.exhausted and len(page) < limit:
            left = limit - len(page)
            request = {"key": self._text(windows.begin), "range_end": self._text(windows.end), "limit": str(left)}
            response = self._gateway.call("kv/range", request)
            page += self._entries(response)
            windows.advance(int(response.get("count", 0)), left)
        return page

    def write(self, lease: Lease, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """See the interface."""
        guard = [self._held(lease)]
        for part in _portions([*self._puts(puts), *self._deletes(key for key in deletes if key not in puts)]):
            response = self._gateway.call("kv/txn", {"compare": guard, "success": part})
            if not response.get("succeeded"):
                raise LeaseEnded

    def delete(self, keys: Sequence[bytes]) -> None:
        """See the interface."""
        for part in _portions(list(self._deletes(dict.fromkeys(keys)))):
            self._gateway.call("kv/txn", {"success": part})

    def swap(self, expected: Mapping[bytes, bytes | None], new: Mapping[bytes, bytes | None]) -> bool:
        """See the interface."""
        compare = [self._is(key, value) for key, value in expected.items()]
        puts = self._puts({key: value for key, value in new.items() if value is not None})
        deletes = self._deletes(key for key, value in new.items() if value is None)
        response = self._gateway.call("kv/txn", {"compare": compare, "success": [*puts, *deletes]})
        return bool(response.get("succeeded"))

    def grant(self, number: int, seconds: float) -> Lease:
        """See the interface; etcd's leases last whole seconds, and at least two with its default settings."""
        token = str(self._gateway.call("lease/grant", {"TTL": str(math.ceil(seconds))})["ID"])
        # Attaching the key to another lease detaches it from the earlier one.
        put = {"request_put": {"key": self._text(self._lease_key(number)), "lease": token}}
        self._gateway.call("kv/txn", {"success": [put]})
        return Lease(number, token)

    def keep(self, lease: Lease, seconds: float) -> bool:
        """See the interface; the lease keeps the duration with which it was granted."""
        kept = self._gateway.call("lease/keepalive", {"ID": lease.token}).get("result", {})
        return int(kept.get("TTL", 0)) > 0 and self.holder(lease.number) == lease.token

    def release(self, lease: Lease) -> None:
        """See the interface."""
        with suppress(NotFound):
            self._gateway.call("lease/revoke", {"ID": lease.token})

    def holder(self, number: int) -> str | None:
        """See the interface."""
        response = self._gateway.call("kv/range", {"key": self._text(self._lease_key(number))})
        return next((str(kv.get("lease", "0")) for kv in response.get("kvs", ())), None)

    def next_sequence(self) -> int:
        """See the interface."""
        floor, revision = self._floor()
        return (floor or 0) + revision

    def raise_sequence(self, to: int) -> None:
        """See the interface."""
        while True:
            floor, revision = self._floor()
            if (floor or 0) + revision > to:
                return
            old = None if floor is None else str(floor).encode()
            if self.swap({FLOOR: old}, {FLOOR: str(to + 1 - revision).encode()}):
                return

    def state(self) -> ServerState:
        """See the interface."""
        header = self._gateway.call("kv/range", {"key": self._text(FLOOR)})["header"]
        return ServerState(str(header.get("cluster_id")), int(header["revision"]))

    def now(self) -> float:
        """See the interface."""
        return self._gateway.dated("kv/range", {"key": self._text(FLOOR)})

    def snapshot(self) -> Snapshot:
        """See the interface."""
        requests = [
            {"request_range": self._range(RECORDS)},
            {"request_range": self._range(LEASES) | {"keys_only": True}},
        ]
        response = self._gateway.call("kv/txn", {"success": requests})
        records, leases = (self._entries(part.get("response_range", {})) for part in response["responses"])
        return Snapshot(
            records={_number(entry.key): entry.value for entry in records if len(entry.key) == _NUMBER},
            live={_number(entry.key) for entry in leases if len(entry.key) == _NUMBER},
            cursor=str(response["header"]["revision"]),
        )

    def subscribe(self, cursor: str) -> EtcdSubscription:
        """See the interface."""
        return EtcdSubscription(self._gateway, self._prefix, int(cursor), self.state)

    def tidy(self) -> None:
        """See the interface: compacts the history up to the last call if that was at least COMPACT_SECONDS ago."""
        if not self._compact:
            return
        with self._lock:
            before = self._compactable
            now = time.monotonic()
            if before is not None and now - before[0] < COMPACT_SECONDS:
                return
            self._compactable = (now, self.state().position)
        if before is not None:
            # Another gateway may have compacted further meanwhile, which etcd reports as an error; and a user who may
            # only use these keys may not do it at all: then whoever runs etcd has to.
            with suppress(NotFound, DirectoryUnavailable, AccessDenied):
                self._gateway.call("kv/compaction", {"revision": str(before[1])})

    def close(self) -> None:
        """See the interface."""
        self._gateway.close()

    def _text(self, key: bytes) -> str:
        return base64_text(self._prefix + key)

    def _range(self, prefix: bytes) -> dict[str, Any]:
        return {"key": self._text(prefix), "range_end": self._text(successor(prefix))}

    @staticmethod
    def _lease_key(number: int) -> bytes:
        return LEASES + number.to_bytes(NUMBER_BYTES, "big")

    def _ranges(self, requests: Sequence[dict[str, Any]]) -> list[list[Entry]]:
        if len(requests) == 1:
            return [self._entries(self._gateway.call("kv/range", requests[0]))]
        results: list[list[Entry]] = []
        for part in _portions([{"request_range": request} for request in requests]):
            response = self._gateway.call("kv/txn", {"success": part})
            results += [self._entries(result.get("response_range", {})) for result in response["responses"]]
        return results

    def _entries(self, response: dict[str, Any]) -> list[Entry]:
        skip = len(self._prefix)
        return [
            Entry(from_base64(kv["key"])[skip:], from_base64(kv.get("value", ""))) for kv in response.get("kvs", ())
        ]

    def _puts(self, puts: Mapping[bytes, bytes]) -> Iterator[dict[str, Any]]:
        for key, value in puts.items():
            yield {"request_put": {"key": self._text(key), "value": base64_text(value)}}

    def _deletes(self, keys: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        for key in keys:
            yield {"request_delete_range": {"key": self._text(key)}}

    def _held(self, lease: Lease) -> dict[str, Any]:
        key = self._text(self._lease_key(lease.number))
        return {"key": key, "target": "LEASE", "result": "EQUAL", "lease": lease.token}

    def _is(self, key: bytes, value: bytes | None) -> dict[str, Any]:
        if value is None:
            return {"key": self._text(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        return {"key": self._text(key), "target": "VALUE", "result": "EQUAL", "value": base64_text(value)}

    def _floor(self) -> tuple[int | None, int]:
        """The value of the key ``f``, and etcd's revision."""
        response = self._gateway.call("kv/range", {"key": self._text(FLOOR)})
        entries = self._entries(response)
        try:
            floor = int(entries[0].value) if entries else None
        except ValueError:
            floor = None  # something else has written there: begin again
            self.delete([FLOOR])
        return floor, int(response["header"]["revision"])


def _number(key: bytes) -> int:
    return int.from_bytes(key[1:], "big")


def _portions(operations: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Portions of as many operations as fit in a transaction."""
    remaining = iter(operations)
    while part := list(islice(remaining, OPERATIONS)):
        yield part
