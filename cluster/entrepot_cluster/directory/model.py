"""What the directory holds, as its users see it: instances, places, names, sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from entrepot.origins import Life as Life

from entrepot_cluster.directory.errors import DirectoryDamaged

T = TypeVar("T")
SESSION_BYTES = 8
NO_SESSION = bytes(SESSION_BYTES)


def session_reference(scope: str, session: str) -> bytes:
    """Return the 8 bytes that stand for a session in the directory: a hash of scope and session.

    >>> session_reference("default", "run-1").hex()
    'a05123b3b4451b4a'
    """
    digest = hashlib.blake2b(digest_size=SESSION_BYTES, person=b"entrepot-sess-v1")
    for part in (scope, session):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Instance:
    """A store of the cluster: one life of it.

    Attributes:
        id: 32 hexadecimal digits, the store's instance.
        host: name of its host.
        addresses: where its gateway listens, each ``"host:port"``.
        protocol: version of the gateway's protocol.
        started_at: when its gateway started, in seconds since 1970 by the clock of its host.
        lost_since: None while its lease is valid; otherwise when the end of the lease was noticed, in seconds since
            1970 by the directory's clock.
    """

    id: str
    host: str
    addresses: tuple[str, ...]
    protocol: int
    started_at: float
    lost_since: float | None = None

    @property
    def live(self) -> bool:
        """Whether its lease is valid."""
        return self.lost_since is None


class InstanceChange(NamedTuple):
    """A change of one instance.

    Attributes:
        kind: ``"joined"``: it is live, and was unknown or lost; ``"changed"``: it registered again, perhaps with
            other addresses; ``"lost"``: its lease ended; ``"departed"``: it left in an orderly way, or was pruned.
        instance: the instance after the change; for ``"departed"``, before it.
    """

    kind: Literal["joined", "changed", "lost", "departed"]
    instance: Instance


@dataclass(frozen=True, slots=True)
class PlaceEntry:
    """An object to publish.

    Attributes:
        oid: its ID, 20 bytes.
        generation: its generation in the publishing store, 0 to 2^64 - 1.
        nbytes: size of its payload.
        session: :func:`session_reference` of its session. Default: none.
        sequence: its order among all publications of the cluster; 0: that of the present publication. A copy, and an
            object that is published again, have the number of the first publication, so that they do not count as
            newer.
        origin: for a copy of another instance's object, the life that it is a copy of. Default: made here.
        is_primary: a copy that has taken the original's place: it was moved here, or the original's store was lost.
    """

    oid: bytes
    generation: int
    nbytes: int
    session: bytes = NO_SESSION
    sequence: int = 0
    origin: Life | None = None
    is_primary: bool = False


@dataclass(frozen=True, slots=True)
class NameEntry:
    """A name to publish: within a session of a scope, bound to a generation of an object (``oid``, 20 bytes).

    ``sequence`` is as for :class:`PlaceEntry`.
    """

    scope: str
    session: str
    name: str
    oid: bytes
    generation: int
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A session to publish: the publishing instance has objects of it, of which ``replicas`` copies are wanted."""

    scope: str
    session: str
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Place:
    """An instance that has an object, or had it when it was lost (``instance.lost_since``).

    The other attributes are as in :class:`PlaceEntry`; ``sequence`` is never 0.
    """

    oid: bytes
    instance: Instance
    generation: int
    nbytes: int
    session: bytes
    sequence: int
    origin: Life | None
    is_primary: bool = False

    @property
    def life(self) -> Life:
        """The life of the object that is here: places with the same life have the same bytes."""
        return self.origin or Life(self.instance.id, self.generation)


@dataclass(frozen=True, slots=True)
class NameBinding:
    """What a name is bound to at one instance; the attributes are as in :class:`NameEntry`."""

    name: str
    oid: bytes
    instance: Instance
    generation: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """An instance that has objects of a session; the other attributes are as in :class:`SessionEntry`."""

    scope: str
    session: str
    instance: Instance
    replicas: int


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """What a look-up found.

    Attributes:
        entries: newest publication first; with the same publication, live instances first. Empty: nothing is known.
        damage: None; or why entries under this key could not be decoded. They are not among ``entries``.
    """

    entries: list[T]
    damage: DirectoryDamaged | None = None

    def raise_damage(self) -> list[T]:
        """Return the entries.

        Raises:
            DirectoryDamaged: some could not be decoded.
        """
        if self.damage is not None:
            raise self.damage
        return self.entries


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a listing.

    Attributes:
        entries: in the order of their keys.
        next: pass it as ``after`` to get the next page; None: this was the last.
        damage: an error for each entry that could not be decoded.
    """

    entries: list[T]
    next: bytes | None
    damage: Sequence[DirectoryDamaged] = ()
