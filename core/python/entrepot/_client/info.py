"""Results of puts, and metadata of objects and sessions."""

from dataclasses import dataclass, field
from typing import Any

from entrepot._client.lost_marks import LostDependency, LostMark
from entrepot._core import new_frozen
from entrepot.html_tables import html_table
from entrepot.ids import ObjectID
from entrepot.phrases import age, human_bytes, session_phrase

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Metadata of one object, as the daemon sees it.

    Attributes:
        id: its ID.
        generation: which version of that ID this is.
        type: codec that wrote it, such as ``"numpy.ndarray"``.
        nbytes: its size in bytes: its buffers, and the small values stored inline in its metadata.
        record_bytes: bytes of its metadata (and inline payload) in control memory.
        state: ``"sealed"`` (in memory) or ``"spilled"`` (on disk; a get reloads it); other states belong to objects
            that are being removed.
        scope, session: where it belongs.
        names: names bound to it in that session.
        created: when it was sealed, in seconds since 1970.
        pins: number of processes reading it now.
        pinned_by: those processes.
        collection: for a collection: its ``name``, number of ``members``, their ``nbytes``, ``rows`` and ``type``.
        member_of: for a member: its collection's ``name`` and its ``index``.
        blobs: its ranges of shared memory, with the number of objects that share each, its owner (the object that was
            sealed first among them), how many of its bytes this object uses, and whether a copy is on disk.
        inline_bytes: bytes of its buffers that are stored in its record.
        own_bytes: bytes that this object adds to the store: those of its blobs that no older object refers to, and
            ``inline_bytes``. Over all objects, each stored byte is counted once. 0 in lists, like the next three.
        shared_bytes: the part of ``own_bytes`` that other objects refer to, too, and which therefore outlives it.
        referenced_bytes: bytes of its buffers that lie in older objects (docs/resharing.md).
        parents: those objects, each with its ``id`` (None: not determined, because the blobs have too many references),
            the ``nbytes`` that this object uses of it, and the ``kept_bytes`` that stay in the store because of it.
        lost: objects that it refers to, such as members of a collection, and that only lost hosts of the cluster have
            (docs/cluster.md): the first 16 of them.
        lost_count: how many these are in all.
        why: why it is where it is; empty in lists.
        locality_set: the set that it belongs to; ``""`` is the session's default one.
        priority: its own priority, -8 to 8, in addition to its set's.
        kept: a user asked to keep it in memory (``hint(oid, keep=True)``).
        consumers: number of consumers expected when it was put; 0: not counted.
        consumers_left: number of consumers that have not finished with it.
        dead: all consumers have finished; it is evicted first, without being written.
        recompute_seconds: time to recompute it, as declared by its writer; None: it cannot be recomputed, and so is
            never dropped.
        made_again: it was dropped once and recomputed, so it is not dropped a second time.
        eviction: the terms of its eviction rank (docs/eviction.md); empty in lists.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> info = store.info(store.put(b"eight by"))
    >>> info.type, info.nbytes
    ('python.bytes', 8)
    """

    id: ObjectID
    generation: int
    type: str
    nbytes: int
    record_bytes: int
    state: str
    scope: str
    session: str
    names: list[str]
    created: float
    pins: int = 0
    pinned_by: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    blobs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    collection: dict[str, Any] | None = None
    member_of: dict[str, Any] | None = None
    why: str = ""
    locality_set: str = ""
    priority: int = 0
    kept: bool = False
    consumers: int = 0
    consumers_left: int = 0
    dead: bool = False
    recompute_seconds: float | None = None
    made_again: bool = False
    eviction: dict[str, Any] = field(default_factory=dict[str, Any])
    inline_bytes: int = 0
    own_bytes: int = 0
    shared_bytes: int = 0
    referenced_bytes: int = 0
    parents: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    lost: tuple[LostDependency, ...] = ()
    lost_count: int = 0

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        shared = f"{human_bytes(self.own_bytes)} of its own, {human_bytes(self.referenced_bytes)} of older objects"
        rows = [
            ("ID", str(self.id)),
            ("names", ", ".join(self.names) or "(none)"),
            ("type", self.type),
            ("bytes", f"{human_bytes(self.nbytes)}: {shared}" if self.why else human_bytes(self.nbytes)),
            ("state", f"{self.state}{', kept in memory' if self.kept else ''}"),
            ("session", session_phrase(self.scope, self.session)),
            ("age", age(self.created)),
            ("pinned by", ", ".join(f"{holder['label']} ({holder['pid']})" for holder in self.pinned_by) or "(nobody)"),
        ]
        return html_table("Object", [*rows, ("why", self.why)] if self.why else rows)


@dataclass(frozen=True, slots=True)
class PutResult:
    """Result of a put.

    Attributes:
        id: the object's ID.
        generation: which version of that ID this value is; each value under the same ID has its own.
        nbytes: its size in bytes, as in :class:`ObjectInfo`.
        existed: identical content was already sealed under this ID, so nothing was written.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> oid = store.derive("a key of one's own")
    >>> store.put_versioned(7, id=oid).existed, store.put_versioned(7, id=oid).existed
    (False, True)
    """

    id: ObjectID
    generation: int
    nbytes: int
    existed: bool


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Metadata of one session.

    Attributes:
        scope, session: its name; the session ``""`` is the scope's own.
        ttl_seconds: time to live after the last use; 0: unlimited.
        idle_seconds: time since the last use.
        objects: number of objects in it.
        nbytes: their payload in bytes, without small values stored inline in metadata.
        limit_bytes, limit_objects: its limits; 0: none.
        deletes_consumed: objects are deleted as soon as their last consumer has finished.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> run = store.session("run-8", ttl=60)
    >>> next(info.ttl_seconds for info in store.sessions() if info.session == "run-8")
    60
    """

    scope: str
    session: str
    ttl_seconds: int
    idle_seconds: float
    objects: int
    nbytes: int
    limit_bytes: int
    limit_objects: int
    deletes_consumed: bool


# Pickled values name their class by its public path, which does not change. (Annotations are not postponed here: as
# strings, they would be evaluated in the module of that path.)
ObjectInfo.__module__ = PutResult.__module__ = SessionInfo.__module__ = "entrepot"


def object_info(
    raw: dict[str, Any],
    oid: ObjectID,
    type_name: str,
    collection: dict[str, Any] | None = None,
    member_of: dict[str, Any] | None = None,
    mark: LostMark | None = None,
) -> ObjectInfo:
    """Build an ``ObjectInfo`` from the daemon's JSON and what was read from the object's tree."""
    blobs: list[dict[str, Any]] = raw.get("blobs", [])
    inline_bytes = raw.get("inline_bytes", 0)
    own_bytes, shared_bytes, referenced_bytes = inline_bytes, 0, 0
    parents: list[dict[str, Any]] = []
    if blobs:  # not in lists, which may be long
        own, others = split_by_owner(raw["id"], blobs)
        parents = parents_of(others)
        own_bytes += sum(blob["length"] for blob in own)
        shared_bytes = sum(blob["length"] for blob in own if blob["refs"] > 1)
        referenced_bytes = sum(parent["nbytes"] for parent in parents)
    return new_frozen(
        ObjectInfo,
        id=oid,
        generation=raw["generation"],
        type=type_name,
        nbytes=raw["nbytes"],
        record_bytes=raw["record_bytes"],
        state=raw["state"],
        scope=raw["scope"],
        session=raw["session"],
        names=raw["names"],
        created=raw["sealed_unix_ns"] / NANOSECONDS,
        pins=raw.get("pins", 0),
        pinned_by=raw.get("pinned_by", []),
        blobs=blobs,
        collection=collection,
        member_of=member_of,
        why=raw.get("why", ""),
        locality_set=raw["locality_set"],
        priority=raw["priority"],
        kept=raw["user_pinned"],
        consumers=raw["consumers"],
        consumers_left=raw["consumers_left"],
        dead=raw["dead"],
        recompute_seconds=raw["recompute_seconds"],
        made_again=raw["made_again"],
        eviction=raw.get("eviction", {}),
        inline_bytes=inline_bytes,
        own_bytes=own_bytes,
        shared_bytes=shared_bytes,
        referenced_bytes=referenced_bytes,
        parents=parents,
        lost=() if mark is None else mark.lost,
        lost_count=0 if mark is None else mark.count,
    )


def split_by_owner(oid: str, blobs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the blobs that the object itself owns, and those that older objects own."""
    own: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for blob in blobs:
        # A blob with one reference is the object's own even if the daemon did not determine its owner.
        (own if blob["owner"] == oid or blob["refs"] == 1 else others).append(blob)
    return own, others


def parents_of(blobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the owners of blobs that other objects own, in order of appearance, with the bytes used and kept."""
    parents: dict[str | None, dict[str, Any]] = {}
    for blob in blobs:
        parent = parents.setdefault(blob["owner"], {"id": blob["owner"], "nbytes": 0, "kept_bytes": 0})
        parent["nbytes"] += blob["used"]
        parent["kept_bytes"] += blob["length"]
    return list(parents.values())


def session_info(raw: dict[str, Any]) -> SessionInfo:
    """Build a ``SessionInfo`` from the daemon's JSON."""
    return SessionInfo(**{name: raw[name] for name in SessionInfo.__slots__})
