"""The directory of a cluster: which instances there are, and where published objects are."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TypeVar

from entrepot.errors import InvalidArgument, VersionMismatch

from entrepot_cluster.directory.backends.interface import Backend, Entry
from entrepot_cluster.directory.codec import (
    META,
    PLACES,
    decode_json,
    decode_name,
    decode_place,
    decode_session,
    encode_json,
    instance_bytes,
    name_prefix,
    name_start,
    names_prefix,
    number_of,
    place_prefix,
    session_prefix,
)
from entrepot_cluster.directory.errors import ClusterMismatch, DirectoryDamaged
from entrepot_cluster.directory.instances import InstanceTable
from entrepot_cluster.directory.model import (
    Found,
    Instance,
    NameBinding,
    Page,
    Place,
    SessionPlace,
)
from entrepot_cluster.directory.registration import Registration, register
from entrepot_cluster.directory.sweep import Sweep
from entrepot_cluster.directory.watch import InstanceWatch

FORMAT = 1  # of all keys and values; newer ones are refused
LEASE_SECONDS = 10.0
LOST_SECONDS = 86400.0
VIEW_SECONDS = 1.0
PAGE = 1000
MAX_PAGE = 10_000
_GLOB_CHARACTERS = "*?["
T = TypeVar("T")
# By number: the instance, and the first epoch whose entries count.
_Numbers = dict[int, tuple[Instance, int]]
_Build = Callable[[Entry, _Numbers], T | None]


class Directory:
    """The directory of one cluster, as one gateway uses it; created by ``open_directory``. For any number of threads.

    All methods that ask the server raise DirectoryUnavailable if it cannot be reached, does not respond within the
    timeout, or cannot do what is asked now, and AccessDenied if it refuses. They can be called again afterwards.

    Args:
        backend: the server.
        name: the cluster's name.
        timeout: seconds for one round trip.
        lost_seconds: how long a lost instance is remembered.
    """

    def __init__(self, backend: Backend, name: str, timeout: float, lost_seconds: float = LOST_SECONDS) -> None:
        self._backend = backend
        self._name = name
        self._table = InstanceTable(backend, VIEW_SECONDS, timeout)
        self._sweep = Sweep(backend, self._table, lost_seconds)
        self._lock = threading.Lock()
        self._watches: list[InstanceWatch] = []  # guarded by _lock
        self._claim()

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    def register(
        self,
        instance_id: str,
        host: str,
        addresses: Sequence[str],
        *,
        protocol: int,
        started_at: float,
        lease_seconds: float = LEASE_SECONDS,
        highest_sequence: int = 0,
    ) -> Registration:
        """Register an instance, or register it again; an earlier registration of it ends.

        Args:
            instance_id: the store's instance, 32 hexadecimal digits.
            host: name of its host.
            addresses: where its gateway listens, each ``"host:port"``.
            protocol: version of the gateway's protocol.
            started_at: when the gateway started, in seconds since 1970.
            lease_seconds: how long after the last ``renew`` the instance counts as lost; at least 1, with etcd at
                least 2 (see docs/cluster.md).
            highest_sequence: the highest sequence number with which the instance is going to publish entries again.
                New ones get higher numbers, even if the directory was emptied.

        Raises:
            InvalidArgument: an argument is invalid.
            ClusterMismatch, VersionMismatch, DirectoryDamaged: as for ``open_directory``.
        """
        if not lease_seconds >= 1:
            raise InvalidArgument(f"a lease must last at least 1 s, but got {lease_seconds!r}")
        identity = instance_bytes(instance_id).hex()
        self._claim()
        instance = Instance(identity, host, tuple(addresses), protocol, started_at)
        return register(self._backend, instance, lease_seconds, highest_sequence, self._table.invalidate)

    def instances(self, *, fresh: bool = False) -> list[Instance]:
        """Return all instances: those that are live, and those that were lost and are remembered.

        What others did in the last second may be missing, unless ``fresh``.
        """
        if fresh:
            self._table.refresh()
        self._table.ensure_fresh()
        return sorted(self._table.instances().values(), key=lambda instance: (instance.host, instance.id))

    def damaged_instances(self) -> list[DirectoryDamaged]:
        """An error for each record of an instance that cannot be decoded; ``instances`` leaves them out."""
        self._table.ensure_fresh()
        return self._table.damage()

    def watch(self) -> InstanceWatch:
        """Return a new watch of the instances; it has to be closed."""
        watch = InstanceWatch(self._backend, self._table)
        with self._lock:
            self._watches = [*(watch_before for watch_before in self._watches if not watch_before.closed), watch]
        return watch

    def places(self, oids: Sequence[bytes]) -> list[Found[Place]]:
        """Where objects are; in one round trip for up to 128 of them.

        Args:
            oids: their IDs, 20 bytes each.

        Returns:
            For each ID, its places, newest publication first. Those at lost instances are among them.

        Raises:
            InvalidArgument: an ID does not have 20 bytes.
        """
        looked_up = self._look_up([place_prefix(oid) for oid in oids], _place)
        return [Found(_newest_first(places), damage) for places, damage in looked_up]

    def lookup_name(self, scope: str, session: str, name: str) -> Found[NameBinding]:
        """What a name is bound to, at each instance that has published it; newest publication first.

        Raises:
            InvalidArgument: the name is empty or longer than 255 bytes.
        """
        bindings, damage = self._look_up([name_prefix(scope, session, name)], _binding)[0]
        return Found(_newest_first(bindings), damage)

    def sessions(self, reference: bytes) -> Found[SessionPlace]:
        """The instances that have objects of a session, given by its ``session_reference``."""
        sessions, damage = self._look_up([session_prefix(reference)], _session)[0]
        sessions.sort(key=lambda place: (not place.instance.live, place.instance.id))
        return Found(sessions, damage)

    def list_names(
        self, scope: str, session: str, pattern: str = "*", *, after: bytes = b"", limit: int = PAGE
    ) -> Page[NameBinding]:
        """List a session's names and what they are bound to, one entry for each instance that has published a name.

        Args:
            pattern: a glob that the names have to match: ``*``, ``?``, ``[...]``.
            after: ``next`` of the page before; default: from the beginning.
            limit: how many entries to look at, 1 to 10,000; the page has fewer if some do not match.
        """
        literal = pattern[: min((pattern.find(c) for c in _GLOB_CHARACTERS if c in pattern), default=len(pattern))]
        page = self._page(names_prefix(scope, session) + name_start(literal), after, limit, _binding)
        return replace(page, entries=[binding for binding in page.entries if fnmatchcase(binding.name, pattern)])

    def list_objects(self, *, after: bytes = b"", limit: int = PAGE) -> Page[Place]:
        """List the places of all objects, in the order of the objects' IDs; arguments as for :meth:`list_names`."""
        return self._page(PLACES, after, limit, _place)

    def sweep(self, limit: int = PAGE) -> bool:
        """Remove a little of what no longer counts; call it every minute or so, on any number of hosts.

        Removed are instances that were lost more than ``lost_seconds`` ago, entries of instances that are not known,
        and entries from before an instance's last ``confirm``. With etcd, the history is compacted.

        Args:
            limit: how many entries to look at, 1 to 10,000; the next call continues there.

        Returns:
            Whether this call reached the end of the directory; the next one begins anew.
        """
        return self._sweep.step(_checked_limit(limit))

    def close(self) -> None:
        """Close the connections; registrations end with their leases, watches at once."""
        with self._lock:
            watches, self._watches = self._watches, []
        for watch in watches:
            watch.close()
        self._backend.close()

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _claim(self) -> None:
        """Make sure that the directory is this cluster's; if it is empty, it becomes that."""
        while True:
            raw = self._backend.read([META])[0]
            if raw is not None:
                break
            fields = {"name": self._name, "format": FORMAT, "id": secrets.token_hex(16)}
            self._backend.swap({META: None}, {META: encode_json(fields)})
        fields = decode_json(META, raw)
        format_found, name = fields.get("format"), fields.get("name")
        if not isinstance(format_found, int) or not isinstance(name, str):
            raise DirectoryDamaged(
                f"the directory's description of itself is damaged: {json.dumps(fields)[:200]}; if nothing else uses "
                "it, delete all of it"
            )
        if name != self._name:
            raise ClusterMismatch(
                f"this is the directory of cluster {name!r}, not of {self._name!r}: correct the URL, or delete the "
                "directory if it was copied from there"
            )
        if format_found > FORMAT:
            raise VersionMismatch(
                f"the directory of cluster {name!r} has format {format_found}, and this version of Entrepot reads "
                f"formats up to {FORMAT}: upgrade it, or give the cluster another name"
            )

    def _page(self, prefix: bytes, after: bytes, limit: int, build: _Build[T]) -> Page[T]:
        since = time.monotonic()
        raw = self._backend.page(prefix, after, _checked_limit(limit))
        numbers = self._table.resolve((number_of(entry.key) for entry in raw), since)
        entries, damage = [], []
        for entry in raw:
            try:
                built = build(entry, numbers)
            except DirectoryDamaged as error:
                damage.append(error)
                continue
            if built is not None:
                entries.append(built)
        return Page(entries, raw[-1].key if len(raw) == limit else None, damage)

    def _look_up(self, prefixes: Sequence[bytes], build: _Build[T]) -> list[tuple[list[T], DirectoryDamaged | None]]:
        if not prefixes:
            return []
        since = time.monotonic()
        groups = self._backend.read_prefixes(prefixes)
        numbers = self._table.resolve((number_of(entry.key) for entries in groups for entry in entries), since)
        results: list[tuple[list[T], DirectoryDamaged | None]] = []
        for entries in groups:
            built: list[T] = []
            damage: DirectoryDamaged | None = None
            for entry in entries:
                try:
                    decoded = build(entry, numbers)
                except DirectoryDamaged as error:
                    damage = damage or error
                    continue
                if decoded is not None:
                    built.append(decoded)
            results.append((built, damage))
        return results


def _place(raw: Entry, numbers: _Numbers) -> Place | None:
    entry, epoch = decode_place(raw.key, raw.value)
    instance = _counting(raw, epoch, numbers)
    if instance is None:
        return None
    return Place(
        entry.oid,
        instance,
        entry.generation,
        entry.nbytes,
        entry.session,
        entry.sequence,
        entry.origin,
        entry.is_primary,
    )


def _binding(raw: Entry, numbers: _Numbers) -> NameBinding | None:
    entry, epoch = decode_name(raw.key, raw.value)
    instance = _counting(raw, epoch, numbers)
    if instance is None:
        return None
    return NameBinding(entry.name, entry.oid, instance, entry.generation, entry.sequence)


def _session(raw: Entry, numbers: _Numbers) -> SessionPlace | None:
    entry, epoch = decode_session(raw.key, raw.value)
    instance = _counting(raw, epoch, numbers)
    return None if instance is None else SessionPlace(entry.scope, entry.session, instance, entry.replicas)


def _counting(raw: Entry, epoch: int, numbers: _Numbers) -> Instance | None:
    """The instance of an entry; None if the entry does not count, because the instance has left or restarted."""
    instance, first_epoch = numbers.get(number_of(raw.key), (None, 0))
    return instance if epoch >= first_epoch else None


_Dated = TypeVar("_Dated", Place, NameBinding)


def _newest_first(entries: list[_Dated]) -> list[_Dated]:
    if len(entries) < 2:
        return entries
    return sorted(entries, key=lambda entry: (-entry.sequence, not entry.instance.live, entry.instance.id))


def _checked_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidArgument(f"a limit must be 1 to {MAX_PAGE}, but got {limit}")
    return limit
