"""A directory in Kubernetes: DirectoryShards and Leases of one namespace.

Look-ups are answered from a copy that an informer keeps; one small read of the head tells how new the copy has to be
(see :mod:`~entrepot_operator.directory.directory_copy`). Changes replace a shard only if it is as it was read; one that
finds it changed brings the copy up to date and plans again, a bounded number of times. The sequence is the head's
version, which is the API server's revision, plus the head's floor, because revisions are lower than before after a
restore from a backup.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from entrepot.errors import DirectoryUnavailable
from entrepot_cluster.directory.backends.interface import Entry, Lease, LeaseEnded, ServerState, Snapshot
from entrepot_cluster.directory.codec import NUMBER_BYTES, RECORDS, decode_record, number_of
from entrepot_cluster.directory.errors import DirectoryDamaged

from entrepot_operator.directory import leases, shards
from entrepot_operator.directory.directory_copy import DirectoryCopy
from entrepot_operator.directory.leases import HeldLease
from entrepot_operator.directory.requests import Changed, Requests, tries
from entrepot_operator.directory.shard_changes import ShardChange, plan_control, plan_entries
from entrepot_operator.directory.shards import shard_path
from entrepot_operator.directory.subscription import KubernetesSubscription
from entrepot_operator.kubernetes.cluster_credentials import ClusterCredentials

CLOCK_READS = 50
CLOCK_READ_SECONDS = 0.02


class KubernetesBackend:
    """See :class:`~entrepot_cluster.directory.backends.interface.Backend`.

    Args:
        credentials: of the Kubernetes cluster.
        namespace: where the resources are.
        name: the cluster's name.
        timeout: seconds for one request, and for the copy to become as new as a response.
    """

    def __init__(self, credentials: ClusterCredentials, namespace: str, name: str, timeout: float) -> None:
        self._namespace = namespace
        self._name = name
        self._requests = Requests(credentials, timeout)
        self._copy = DirectoryCopy(self._requests, namespace, name, timeout)
        self._view = self._copy.shards
        self._leases = self._copy.leases

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See the interface."""
        self._copy.catch_up()
        return [self._view.get(key) for key in keys]

    def read_prefixes(self, prefixes: Sequence[bytes]) -> list[list[Entry]]:
        """See the interface."""
        self._copy.catch_up()
        return [self._view.with_prefix(prefix) for prefix in prefixes]

    def page(self, prefix: bytes, after: bytes, limit: int) -> list[Entry]:
        """See the interface."""
        self._copy.catch_up()
        return self._view.page(prefix, after, limit)

    def write(self, lease: Lease, puts: Mapping[bytes, bytes], deletes: Iterable[bytes] = ()) -> None:
        """See the interface: each shard is written as a whole.

        The lease is read before each attempt. A gateway that loses it between that and the write may still write: then
        its successor, which has granted a lease since, finds the shard changed, and writes on top; entries of the
        earlier registration do not count once the successor has confirmed its own.
        """
        deletes = list(deletes)

        def plan() -> list[ShardChange]:
            held = self._read_lease(lease.number)
            if held is None or held.token != lease.token or not self._is_valid(held):
                raise LeaseEnded
            return self._plan(puts, deletes)

        self._change(plan, _term(lease.token))

    def delete(self, keys: Sequence[bytes]) -> None:
        """See the interface."""
        self._change(lambda: self._plan({}, keys), None)

    def swap(self, expected: Mapping[bytes, bytes | None], new: Mapping[bytes, bytes | None]) -> bool:
        """See the interface; all keys must be in one shard, as those of the instances are."""
        puts = {key: value for key, value in new.items() if value is not None}
        deletes = [key for key, value in new.items() if value is None]

        def plan() -> list[ShardChange] | None:
            if any(self._view.get(key) != value for key, value in expected.items()):
                return None
            changes = self._plan(puts, deletes)
            if len(changes) > 1 or len({shards.is_entry(key) for key in (*expected, *new)}) > 1:
                raise ValueError(f"a swap of keys in several shards is not atomic: {sorted(new)}")
            return changes

        return self._change(plan, None)

    def grant(self, number: int, seconds: float) -> Lease:
        """See the interface; leases last whole seconds."""
        # The head's version is a term that is later than all before.
        token = f"{self._copy.touch()}-{secrets.token_hex(8)}"
        path = leases.lease_of(self._namespace, self._name, number)
        for _ in tries(self._lease_of(number)):
            resource = self._requests.get(path)
            version = None if resource is None else int(resource["metadata"]["resourceVersion"])
            manifest = leases.lease_manifest(
                self._name, number, token, seconds, self._requests.clock.now(), version=version
            )
            try:
                if resource is None:
                    self._requests.create(leases.lease_of(self._namespace, self._name), manifest)
                else:
                    self._requests.replace(path, manifest)
                break
            except Changed:
                continue
        self._change(lambda: self._repairs(number), None)
        return Lease(number, token)

    def keep(self, lease: Lease, seconds: float) -> bool:
        """See the interface. A lease on shards that something else has damaged ends, so that they are filled again."""
        path = leases.lease_of(self._namespace, self._name, lease.number)
        for _ in tries(self._lease_of(lease.number)):
            held = self._read_lease(lease.number)
            if held is None or held.token != lease.token or not self._is_valid(held):
                return False
            if any(shard.damaged is not None for shard in self._view.shards_of(lease.number)):
                return False
            now = self._requests.clock.now()
            manifest = leases.lease_manifest(self._name, lease.number, lease.token, seconds, now, held.version)
            try:
                self._requests.replace(path, manifest)
            except Changed:
                continue
            return True
        raise AssertionError  # tries() raises

    def release(self, lease: Lease) -> None:
        """See the interface."""
        path = leases.lease_of(self._namespace, self._name, lease.number)
        for _ in tries(self._lease_of(lease.number)):
            held = self._read_lease(lease.number)
            if held is None or held.token != lease.token:
                return
            try:
                self._requests.delete(path, str(held.version))
            except Changed:
                continue
            return

    def holder(self, number: int) -> str | None:
        """See the interface."""
        held = self._read_lease(number)
        return held.token if held is not None and self._is_valid(held) else None

    def next_sequence(self) -> int:
        """See the interface."""
        head = self._copy.read_head()
        return head.floor + head.version

    def raise_sequence(self, to: int) -> None:
        """See the interface."""
        for _ in tries(f"the head of directory {self._name!r}"):
            head = self._copy.read_head()
            if head.floor + head.version > to:
                return
            floor = to + 1 - head.version
            manifest = shards.head_manifest(self._name, secrets.token_hex(8), floor, head.version)
            try:
                self._requests.replace(shard_path(self._namespace, shards.head_name(self._name)), manifest)
            except Changed:
                continue
            return

    def state(self) -> ServerState:
        """See the interface; the identity is that of the head."""
        head = self._copy.read_head()
        return ServerState(head.uid, head.version)

    def now(self) -> float:
        """See the interface."""
        self._copy.read_head()
        return self._requests.clock.now()

    def snapshot(self) -> Snapshot:
        """See the interface."""
        path, selector = leases.lease_of(self._namespace, self._name), shards.selector(self._name)
        resources = self._requests.read_all(path, selector)
        self._copy.catch_up()
        live = {lease.number for lease in self._leases.parsed(resources) if self._is_valid(lease)}
        # Those that have registered since the leases were read would be marked as lost otherwise.
        records = self._view.records()
        for number in (number for number in records.keys() - live if not _is_marked(records[number])):
            if self.holder(number) is not None:
                live.add(number)
        return Snapshot(records, live, cursor=json.dumps({"known": sorted(records), "live": sorted(live)}))

    def subscribe(self, cursor: str) -> KubernetesSubscription:
        """See the interface."""
        numbers = json.loads(cursor)
        return KubernetesSubscription(
            self._view,
            self._leases,
            self._copy.changed,
            self._requests.clock,
            numbers["known"],
            numbers["live"],
            self._copy.catch_up,
            self.holder,
        )

    def tidy(self) -> None:
        """See the interface; removes the leases of instances that have none any more, a day after they ended."""
        records = self._view.records()
        now = self._requests.clock.now()
        for lease in self._leases.parsed(
            self._requests.read_all(leases.lease_of(self._namespace, self._name), shards.selector(self._name))
        ):
            if lease.number not in records and now > lease.renewed + lease.seconds + 86400:
                self.release(Lease(lease.number, lease.token))

    def close(self) -> None:
        """See the interface."""
        self._copy.close()
        self._requests.close()

    # --- changes

    def _plan(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> list[ShardChange]:
        control: dict[bytes, bytes | None] = {}
        entries: dict[int, tuple[dict[bytes, bytes], list[bytes]]] = {}
        for key in deletes:
            if shards.is_entry(key):
                entries.setdefault(number_of(key), ({}, []))[1].append(key[:-NUMBER_BYTES])
            else:
                control[key] = None
        for key, value in puts.items():
            if shards.is_entry(key):
                entries.setdefault(number_of(key), ({}, []))[0][key[:-NUMBER_BYTES]] = value
            else:
                control[key] = value
        changes = []
        for number, (new, gone) in entries.items():
            changes += plan_entries(number, self._view.shards_of(number), new, gone)
        if control:
            change = plan_control(self._view.control(), control)
            changes += [change] if change.is_needed else []
        return changes

    def _repairs(self, number: int) -> list[ShardChange]:
        return plan_entries(number, self._view.shards_of(number), {}, ())

    def _change(self, plan: Callable[[], list[ShardChange] | None], term: int | None) -> bool:
        """Carry out what ``plan`` decides from the copy; False: it decided not to (None)."""
        self._copy.catch_up()
        for _ in tries(f"a shard of directory {self._name!r}"):
            changes = plan()
            if changes is None:
                return False
            if not changes:
                return True
            written: dict[str, int] = {}
            for change in changes:
                name = shards.shard_name(self._name, change.number, change.index)
                try:
                    written[name] = self._carry_out(name, change, term)
                except Changed:
                    # The next plan is made when the copy shows what somebody else has written, and this call.
                    resource = self._requests.get(shard_path(self._namespace, name))
                    written[name] = 0 if resource is None else int(resource["metadata"]["resourceVersion"])
                    self._copy.wait_for(written)
                    break
            else:
                self._copy.touch()
                return True
        raise AssertionError  # tries() raises

    def _carry_out(self, name: str, change: ShardChange, term: int | None) -> int:
        """Write or delete a shard; returns its version, or 0."""
        base = change.base
        path = shard_path(self._namespace, name)
        if not change.entries and change.number is not None:
            if base is not None:
                self._requests.delete(path, str(base.version))
            return 0
        if term is None:
            term = 0 if base is None else base.term
        version = None if base is None else base.version
        manifest = shards.shard_manifest(self._name, change.number, change.index, term, change.entries, version)
        if len(manifest["spec"]["entries"]) > shards.MAX_PACKED_BYTES:
            raise DirectoryUnavailable(
                f"the directory in Kubernetes is full: the DirectoryShard {manifest['metadata']['name']} would take "
                f"{len(manifest['spec']['entries'])} bytes, and may take {shards.MAX_PACKED_BYTES}; use etcd or Redis"
            )
        if base is None:
            written = self._requests.create(shard_path(self._namespace), manifest)
        else:
            written = self._requests.replace(path, manifest)
        return int(written["metadata"]["resourceVersion"])

    def _lease_of(self, number: int) -> str:
        return f"the lease of instance number {number:08x} of directory {self._name!r}"

    def _is_valid(self, lease: HeldLease) -> bool:
        """Whether a lease has not ended; all hosts have to agree.

        Where it ends just now, and the server's clock is not known well enough to tell, more responses narrow it down:
        a date in whole seconds says most when it changes, so this takes a second at most.
        """
        clock = self._requests.clock
        for _ in range(CLOCK_READS):
            if abs(lease.renewed + lease.seconds - clock.now()) > clock.uncertainty():
                break
            time.sleep(CLOCK_READ_SECONDS)
            self._copy.read_head()
        return lease.valid(clock.now())

    def _read_lease(self, number: int) -> HeldLease | None:
        resource = self._requests.get(leases.lease_of(self._namespace, self._name, number))
        return None if resource is None else leases.parse_lease(self._name, resource)


def _is_marked(record: bytes) -> bool:
    """Whether an instance's record says that it is lost, or nothing that can be read."""
    try:
        return not decode_record(RECORDS, record).instance.live
    except DirectoryDamaged:
        return True


def _term(token: str) -> int:
    return int(token.partition("-")[0])
