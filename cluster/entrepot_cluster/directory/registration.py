"""An instance's part in the directory: its lease, and what it publishes."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from entrepot_cluster.directory.backends.interface import Backend, Lease, LeaseEnded, ServerState
from entrepot_cluster.directory.codec import (
    NUMBER_BYTES,
    Record,
    decode_record,
    encode_name,
    encode_place,
    encode_record,
    encode_session,
    name_prefix,
    number_key,
    place_prefix,
    record_key,
    session_prefix,
    with_number,
)
from entrepot_cluster.directory.errors import DirectoryDamaged, InstanceForgotten, InstanceSuperseded
from entrepot_cluster.directory.model import (
    Instance,
    NameEntry,
    PlaceEntry,
    SessionEntry,
    session_reference,
)


@dataclass(frozen=True)
class _Granted:
    """What a registration consists of at the server.

    Attributes:
        lease: on the instance's number.
        epoch: stands in all entries that are published under this registration.
        was_known: the directory had the instance already, and what it had published.
    """

    lease: Lease
    epoch: int
    was_known: bool


class Registration:
    """An instance that is registered; created by ``Directory.register``. For any number of threads.

    It ends with :meth:`depart`, or when its lease ends or another gateway registers the instance: then all methods
    raise InstanceForgotten or InstanceSuperseded.

    Attributes:
        instance: as it was registered.
        was_known: the directory had this instance already, with what it had published. Those entries count until
            :meth:`confirm`.
    """

    def __init__(
        self, backend: Backend, instance: Instance, granted: _Granted, seconds: float, changed: Callable[[], None]
    ) -> None:
        self.instance = instance
        self.was_known = granted.was_known
        self._backend = backend
        self._lease = granted.lease
        self._epoch = granted.epoch
        self._seconds = seconds
        self._changed = changed
        self._lock = threading.Lock()
        self._state: ServerState | None = None  # guarded by _lock

    @property
    def lease_seconds(self) -> float:
        """How long the lease lasts after each :meth:`renew`; renew three times as often."""
        return self._seconds

    def renew(self) -> None:
        """Extend the lease.

        Raises:
            InstanceForgotten: the lease has ended, or the directory may lack what was published: register again, and
                publish everything again.
            InstanceSuperseded: another gateway has registered this instance.
            DirectoryUnavailable: the directory cannot be reached; the lease may have been extended.
        """
        if not self._backend.keep(self._lease, self._seconds):
            self._gone()
        self._check_state()

    def publish(
        self,
        places: Iterable[PlaceEntry] = (),
        names: Iterable[NameEntry] = (),
        sessions: Iterable[SessionEntry] = (),
    ) -> int:
        """Publish objects, names and sessions that this instance has; what it has published before is replaced.

        If it raises, a part may have been published; publishing the same again is harmless.

        Returns:
            The sequence number of the entries that were given with 0; 0 if there are none. Publish them with this
            number if the directory has to be filled again.

        Raises:
            InvalidArgument: an ID, a name or a number is invalid; nothing was published.
            InstanceForgotten, InstanceSuperseded, DirectoryUnavailable: as for :meth:`renew`.
        """
        places, names = list(places), list(names)
        sequence = 0
        if any(entry.sequence == 0 for entry in places) or any(entry.sequence == 0 for entry in names):
            sequence = self._backend.next_sequence()
        number, epoch = self._lease.number, self._epoch
        puts = {
            with_number(place_prefix(entry.oid), number): encode_place(entry, epoch, entry.sequence or sequence)
            for entry in places
        }
        for entry in names:
            key = with_number(name_prefix(entry.scope, entry.session, entry.name), number)
            puts[key] = encode_name(entry, epoch, entry.sequence or sequence)
        for shared in sessions:
            key = with_number(session_prefix(session_reference(shared.scope, shared.session)), number)
            puts[key] = encode_session(shared, epoch)
        self._write(puts, [])
        return sequence

    def withdraw(
        self,
        oids: Iterable[bytes] = (),
        names: Iterable[tuple[str, str, str]] = (),
        sessions: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Remove what this instance has published; entries that do not exist are ignored.

        Args:
            oids: IDs of objects, 20 bytes each.
            names: scope, session and name of each.
            sessions: scope and name of each.

        Raises:
            InvalidArgument, InstanceForgotten, InstanceSuperseded, DirectoryUnavailable: as for :meth:`publish`.
        """
        prefixes = [place_prefix(oid) for oid in oids]
        prefixes += [name_prefix(*name) for name in names]
        prefixes += [session_prefix(session_reference(*session)) for session in sessions]
        self._write({}, [with_number(prefix, self._lease.number) for prefix in prefixes])

    def confirm(self) -> None:
        """Declare that all objects of the instance have been published since it was registered.

        What was published under earlier registrations no longer counts from now on, and ``Directory.sweep`` removes it.

        Raises:
            InstanceForgotten, InstanceSuperseded, DirectoryUnavailable: as for :meth:`renew`.
        """
        key = record_key(self._lease.number)
        while True:
            raw = self._backend.read([key])[0]
            if raw is None or self._backend.holder(self._lease.number) != self._lease.token:
                self._gone()
            record = decode_record(key, raw)
            if record.epoch != self._epoch:
                self._gone()
            if record.confirmed == self._epoch:
                return
            if self._backend.swap({key: raw}, {key: encode_record(replace(record, confirmed=self._epoch))}):
                self._changed()
                return

    def depart(self) -> None:
        """Leave the cluster: the instance is removed, not lost, and its entries no longer count.

        They are removed by ``Directory.sweep``; withdraw them before to have their space back at once.

        Raises:
            InstanceForgotten, InstanceSuperseded, DirectoryUnavailable: as for :meth:`renew`.
        """
        self._write({}, [record_key(self._lease.number), number_key(self.instance.id)])
        self._changed()
        self._backend.release(self._lease)

    def _write(self, puts: dict[bytes, bytes], deletes: Sequence[bytes]) -> None:
        try:
            self._backend.write(self._lease, puts, deletes)
        except LeaseEnded:
            self._gone()

    def _check_state(self) -> None:
        state = self._backend.state()
        with self._lock:
            before = self._state
            if before is None or (state.identity == before.identity and state.position >= before.position):
                self._state = state
                return
        raise InstanceForgotten(
            f"the directory was restarted without its data or restored from a backup, and may lack what instance "
            f"{self.instance.id} published: register it again, and publish everything again"
        )

    def _gone(self) -> NoReturn:
        holder = self._backend.holder(self._lease.number)
        if holder is not None and holder != self._lease.token:
            raise InstanceSuperseded(
                f"another gateway has registered instance {self.instance.id} of host {self.instance.host}: only one "
                "gateway may run beside a store"
            )
        raise InstanceForgotten(
            f"the directory does not have the registration of instance {self.instance.id} (any more): its lease of "
            f"{self._seconds:g} s ended, or the directory was emptied; register it again, and publish everything again"
        )


def register(
    backend: Backend, instance: Instance, seconds: float, highest_sequence: int, changed: Callable[[], None]
) -> Registration:
    """Register an instance; see ``Directory.register``. ``changed`` is called after each change of its record."""
    backend.raise_sequence(highest_sequence)
    while True:
        granted = _try_to_register(backend, instance, seconds)
        if granted is not None:
            changed()
            registration = Registration(backend, instance, granted, seconds, changed)
            registration.renew()  # remembers the server's state
            return registration


def _try_to_register(backend: Backend, instance: Instance, seconds: float) -> _Granted | None:
    """Register an instance; None if it was removed, or registered by somebody else, at the same time."""
    id_key = number_key(instance.id)
    number_bytes = backend.read([id_key])[0]
    if number_bytes is None or len(number_bytes) != NUMBER_BYTES:
        chosen = secrets.token_bytes(NUMBER_BYTES)
        if not backend.swap({id_key: number_bytes, record_key(_number(chosen)): None}, {id_key: chosen}):
            return None
        number_bytes = chosen
    key = record_key(_number(number_bytes))
    # The lease first: a record without one would be marked as lost.
    lease = backend.grant(_number(number_bytes), seconds)
    raw = backend.read([key])[0]
    try:
        old = None if raw is None else decode_record(key, raw)
    except DirectoryDamaged:
        # The epochs of its entries are unknown: begin anew under another number.
        backend.swap({id_key: number_bytes, key: raw}, {id_key: None, key: None})
        backend.release(lease)
        return None
    record = Record(instance, epoch=1, confirmed=0)
    if old is not None:
        record = Record(instance, old.epoch + 1, old.confirmed)
    if not backend.swap({id_key: number_bytes, key: raw}, {key: encode_record(record)}):
        backend.release(lease)
        return None
    return _Granted(lease, record.epoch, was_known=old is not None)


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")
