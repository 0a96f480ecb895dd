"""What an instance publishes, and the difference between what it has published and what it has."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace

from entrepot._client.lost_marks import LostMark
from entrepot.origins import Origin, Role

from entrepot_cluster.directory.model import NameEntry, PlaceEntry, SessionEntry
from entrepot_cluster.gateway.replica_records import ReplicaRecord

OWN_PREFIX = "entrepot."  # of names that Entrepot gives to its own records
NameKey = tuple[str, str, str]
"""Scope, session and name."""


def place_entry(
    oid: bytes, generation: int, nbytes: int, session: bytes, origin: Origin | None, sequence: int = 0
) -> PlaceEntry:
    """Return what is published of an object here; ``origin``: of what it is a copy."""
    if origin is None:
        return PlaceEntry(oid, generation, nbytes, session, sequence)
    is_primary = origin.role == Role.PRIMARY
    return PlaceEntry(oid, generation, nbytes, session, sequence, origin.lives[0], is_primary)


@dataclass(slots=True)
class Snapshot:
    """What a store has that is to be published.

    Attributes:
        places: by object ID. A sequence of 0 means that the object was not published before.
        names: by scope, session and name.
        sessions: cluster sessions, by scope and name.
        replicas: how many stores are to have an object, if that is more than one, by its ID.
        unpublished: generations of the other objects, by ID.
        objects: generation, scope and session of everything that the store has, by ID.
        marks: what is marked as referring to lost objects, and in which session, by ID.
        kept: of which objects copies were asked for, also of those that are gone.
    """

    places: dict[bytes, PlaceEntry] = field(default_factory=dict)
    names: dict[NameKey, NameEntry] = field(default_factory=dict)
    sessions: dict[tuple[str, str], SessionEntry] = field(default_factory=dict)
    replicas: dict[bytes, int] = field(default_factory=dict)
    unpublished: dict[bytes, int] = field(default_factory=dict)
    objects: dict[bytes, tuple[int, str, str]] = field(default_factory=dict)
    marks: dict[bytes, tuple[LostMark, tuple[str, str]]] = field(default_factory=dict)
    kept: list[ReplicaRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Change:
    """What has to be sent to the directory.

    Attributes:
        places, names, sessions: to publish.
        gone_places, gone_names, gone_sessions: to withdraw.
    """

    places: list[PlaceEntry]
    names: list[NameEntry]
    sessions: list[SessionEntry]
    gone_places: list[bytes]
    gone_names: list[NameKey]
    gone_sessions: list[tuple[str, str]]

    def without(self, keys: Set[bytes | NameKey]) -> Change:
        """The change without some objects and names."""
        return Change(
            [entry for entry in self.places if entry.oid not in keys],
            [entry for entry in self.names if (entry.scope, entry.session, entry.name) not in keys],
            self.sessions,
            [oid for oid in self.gone_places if oid not in keys],
            [key for key in self.gone_names if key not in keys],
            self.gone_sessions,
        )

    def __bool__(self) -> bool:
        return any((self.places, self.names, self.sessions, self.gone_places, self.gone_names, self.gone_sessions))


class Published:
    """What was published, with the sequence numbers that it has in the directory. For one thread."""

    def __init__(self) -> None:
        self._places: dict[bytes, PlaceEntry] = {}
        self._names: dict[NameKey, NameEntry] = {}
        self._sessions: dict[tuple[str, str], SessionEntry] = {}

    @property
    def highest_sequence(self) -> int:
        """The highest sequence number of all entries; 0: there are none."""
        numbers = [entry.sequence for entry in self._places.values()]
        numbers += [entry.sequence for entry in self._names.values()]
        return max(numbers, default=0)

    def sequence_of(self, oid: bytes, generation: int) -> int:
        """The sequence number of an object that was published in this generation; 0: it was not."""
        entry = self._places.get(oid)
        return entry.sequence if entry is not None and entry.generation == generation else 0

    def sequence_of_name(self, key: NameKey, oid: bytes, generation: int) -> int:
        """The sequence number of a name that was published with this binding; 0: it was not."""
        entry = self._names.get(key)
        return entry.sequence if entry is not None and (entry.oid, entry.generation) == (oid, generation) else 0

    def change_to(self, snapshot: Snapshot) -> Change:
        """Compare with what there is now. What is unchanged keeps its sequence number."""
        places = [entry for oid, entry in snapshot.places.items() if not _same_place(self._places.get(oid), entry)]
        names = [entry for key, entry in snapshot.names.items() if not _same_name(self._names.get(key), entry)]
        sessions = [entry for key, entry in snapshot.sessions.items() if self._sessions.get(key) != entry]
        return Change(
            places,
            names,
            sessions,
            [oid for oid in self._places if oid not in snapshot.places],
            [key for key in self._names if key not in snapshot.names],
            [key for key in self._sessions if key not in snapshot.sessions],
        )

    def everything(self) -> Change:
        """What has to be sent to a directory that has nothing."""
        return Change(
            list(self._places.values()), list(self._names.values()), list(self._sessions.values()), [], [], []
        )

    def added(
        self,
        places: Iterable[PlaceEntry],
        names: Iterable[NameEntry],
        sessions: Iterable[SessionEntry],
        sequence: int,
    ) -> None:
        """Note what the directory has taken, with the number that it gave to entries without one."""
        for place in places:
            self._places[place.oid] = place if place.sequence else replace(place, sequence=sequence)
        for name in names:
            key = (name.scope, name.session, name.name)
            self._names[key] = name if name.sequence else replace(name, sequence=sequence)
        for session in sessions:
            self._sessions[session.scope, session.session] = session

    def removed(self, oids: Iterable[bytes], names: Iterable[NameKey], sessions: Iterable[tuple[str, str]]) -> None:
        """Note what was withdrawn."""
        for oid in oids:
            self._places.pop(oid, None)
        for key in names:
            self._names.pop(key, None)
        for session in sessions:
            self._sessions.pop(session, None)


def _same_place(published: PlaceEntry | None, now: PlaceEntry) -> bool:
    return published is not None and _content(published) == _content(now)


def _content(entry: PlaceEntry) -> tuple[object, ...]:
    return (entry.generation, entry.nbytes, entry.session, entry.origin, entry.is_primary)


def _same_name(published: NameEntry | None, now: NameEntry) -> bool:
    return published is not None and (published.oid, published.generation) == (now.oid, now.generation)
