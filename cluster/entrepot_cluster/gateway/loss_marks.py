"""Marks objects of this store that refer to what only lost instances have, directly or not.

What an object refers to, by itself:

    here ──▶ what it refers to in turn
    not here ──at a live instance──▶ that instance's gateway says what is lost of what it refers to
       ├──at lost instances only──▶ lost
       └──nowhere──▶ lost if it was before; otherwise nobody has published it, and nothing is known

A mark goes when all of that is here or at a live instance again. While the directory is away, marks stay as they are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import msgpack
from entrepot import raw_objects
from entrepot._client.lost_marks import MAX_LISTED, LostDependency, LostMark, mark_id
from entrepot._codecs import inline_bytes
from entrepot.errors import DirectoryUnavailable, EntrepotError, InvalidArgument
from entrepot.ids import ObjectID

from entrepot_cluster.gateway.references import Referred, chosen, references_in

if TYPE_CHECKING:
    from typing import TypeVar

    from entrepot import Store

    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.published import Snapshot
    from entrepot_cluster.gateway.session_stores import SessionStores

    T = TypeVar("T")

INTERVAL_SECONDS = 0.25
RECHECK_SECONDS = 5.0  # while something is lost: copies may have been made, or lost, elsewhere
LOOKUP_IDS = 1000
PEER_SECONDS = 5.0  # for a peer to say what is lost of what it has
LOSSES = "losses"  # what peers are asked

_Key = tuple[bytes, bytes]
_Lost = dict[bytes, LostDependency]

_log = logging.getLogger(__name__)


class LossMarks:
    """Keeps the marks up to date, from a thread of its own. The public methods may be called from any thread.

    Args:
        store: a connection to the store, in any session.
        sessions: connections to the store's sessions.
        directory: of the cluster.
        peers: connections to other gateways.
    """

    def __init__(self, store: Store, sessions: SessionStores, directory: DirectoryAccess, peers: Peers) -> None:
        self._store = store
        self._sessions = sessions
        self._directory = directory
        self._peers = peers
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._listed: Snapshot | None = None  # guarded by _lock
        self._lost_outside: dict[_Key, _Lost] = {}  # what is lost of what is not here; replaced as a whole, under _lock
        # The rest is the thread's
        self._lost_before: _Lost = {}  # what was found to be lost before
        self._marks: dict[bytes, tuple[LostMark, tuple[str, str]]] = {}  # in the store
        self._references: dict[tuple[bytes, int], tuple[Referred, ...]] = {}  # others may look up single entries
        self._objects: dict[bytes, tuple[int, str, str]] | None = None  # of the store, when they were looked at
        self._gone: frozenset[str] = frozenset()  # the instances that were lost then
        self._looked_when = -RECHECK_SECONDS
        self._thread = threading.Thread(target=self._run, name="losses", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; marks stay in the store."""
        self._stopping.set()

    def listed(self, snapshot: Snapshot) -> None:
        """Note what the store has."""
        with self._lock:
            self._listed = snapshot

    def answer(self, objects: Sequence[Any]) -> list[Any]:
        """Say for a peer what is lost of what objects of this store refer to.

        Args:
            objects: ID, and positions as in :class:`Referred`, of each.

        Returns:
            for each what is lost: ID, instance, host and time.
        """
        with self._lock:
            lost_outside = self._lost_outside
        answers: list[Any] = []
        for oid, positions in objects:
            lost: _Lost = {}
            self._collect(Referred(oid, positions), lost_outside, lost, set())
            answers.append([[each.id.binary, each.instance, each.host, each.since] for each in lost.values()])
        return answers

    # --- the thread

    def _run(self) -> None:
        failing = False
        while not self._stopping.wait(INTERVAL_SECONDS):
            try:
                self._update()
                failing = False
            except DirectoryUnavailable:
                continue  # membership reports it
            except EntrepotError as error:
                if not failing:
                    _log.warning("what refers to lost objects could not be marked, which is tried again: %s", error)
                failing = True
            except Exception:
                _log.exception("what refers to lost objects could not be marked, which is tried again")
                failing = True
            if failing:
                self._stopping.wait(RECHECK_SECONDS)

    def _update(self) -> None:
        with self._lock:
            listed = self._listed
        if listed is None:
            return
        gone = frozenset(each.id for each in self._directory.instances() if not self._directory.may_be_live(each))
        if self._objects is None:  # an earlier gateway may have left some
            self._marks = {**listed.marks, **self._marks}
        if not gone and not self._marks and not self._lost_outside:
            return  # as in a cluster without losses
        now = time.monotonic()
        is_same = self._gone == gone and self._objects == listed.objects
        if is_same and now - self._looked_when < RECHECK_SECONDS:
            return
        for mark, _ in self._marks.values():
            self._lost_before.update((each.id.binary, each) for each in mark.lost)
        lost_outside = self._find(listed)
        with self._lock:
            self._lost_outside = lost_outside
        self._lost_before = {oid: each for lost in lost_outside.values() for oid, each in lost.items()}
        self._write(listed, lost_outside)
        self._objects, self._gone, self._looked_when = listed.objects, gone, now

    def _references_of(self, oid: bytes, generation: int) -> tuple[Referred, ...]:
        key = (oid, generation)
        references = self._references.get(key)
        if references is None:
            references = self._references[key] = references_in(self._store, ObjectID(oid))
        return references

    def _find(self, listed: Snapshot) -> dict[_Key, _Lost]:
        """Find out what is lost of all that is referred to and not here."""
        self._references = {
            key: references
            for key, references in self._references.items()
            if key[0] in listed.objects and listed.objects[key[0]][0] == key[1]
        }
        outside: dict[_Key, Referred] = {}
        for oid, (generation, _, _) in listed.objects.items():
            for referred in self._references_of(oid, generation):
                self._reach(referred, outside, set())
        lost_outside: dict[_Key, _Lost] = {}
        asks: dict[str, tuple[Instance, list[Referred]]] = {}
        for batch in _batches(outside.values(), LOOKUP_IDS):
            for referred, published in zip(
                batch, self._directory.get().places([each.oid for each in batch]), strict=True
            ):
                live = [place for place in published.entries if self._directory.may_be_live(place.instance)]
                if live:
                    asks.setdefault(live[0].instance.id, (live[0].instance, []))[1].append(referred)
                elif published.entries:
                    at = published.entries[0].instance
                    lost = LostDependency(ObjectID(referred.oid), at.id, at.host, at.lost_since or 0.0)
                    lost_outside[_key(referred)] = {referred.oid: lost}
                elif referred.oid in self._lost_before and published.damage is None:
                    lost_outside[_key(referred)] = {referred.oid: self._lost_before[referred.oid]}
        for instance, asked in asks.values():
            if instance.id != self._store.instance_id:
                for batch in _batches(asked, LOOKUP_IDS):
                    self._ask(instance, batch, lost_outside)
        return lost_outside

    def _ask(self, instance: Instance, asked: list[Referred], lost_outside: dict[_Key, _Lost]) -> None:
        request = {"ask": LOSSES, "scope": "", "session": "", "name": "", "objects": [list(each) for each in asked]}
        try:
            answers = self._peers.get(instance).collection(request, timeout=PEER_SECONDS)
        except EntrepotError:  # an older gateway, or it does not answer: as it was found last
            answers = [list(map(_fields, self._lost_outside.get(_key(each), {}).values())) for each in asked]
        for referred, answer in zip(asked, answers, strict=True):
            lost: _Lost = {}
            for oid, at, host, since in answer:
                lost[oid] = LostDependency(ObjectID(oid), at, host, since)
            if lost:
                lost_outside[_key(referred)] = lost

    def _reach(self, referred: Referred, outside: dict[_Key, Referred], seen: set[_Key]) -> None:
        """Note what is referred to, directly or not, and not here."""
        left = [referred]
        while left:
            each = left.pop()
            key = _key(each)
            if key in seen:
                continue
            seen.add(key)
            inner = self._inner(each)
            if inner is None:
                outside[key] = each
            else:
                left.extend(inner)

    def _inner(self, referred: Referred) -> Sequence[Referred] | None:
        """What an object that is here refers to; None: it is not here."""
        generation = raw_objects.generation_of(self._store, ObjectID(referred.oid))
        if generation is None:
            return None
        kept = self._references.get((referred.oid, generation))
        references = references_in(self._store, ObjectID(referred.oid)) if kept is None else kept
        return chosen(references, referred.positions)

    def _collect(self, referred: Referred, lost_outside: dict[_Key, _Lost], lost: _Lost, seen: set[_Key]) -> None:
        """Collect what is lost of what is referred to."""
        left = [referred]
        while left:
            each = left.pop()
            key = _key(each)
            if key in seen:
                continue
            seen.add(key)
            inner = self._inner(each)
            if inner is None:
                lost.update(lost_outside.get(key, {}))
            else:
                left.extend(inner)

    # --- in the store

    def _write(self, listed: Snapshot, lost_outside: dict[_Key, _Lost]) -> None:
        """Write the marks that are new, and delete those that do not hold any more."""
        marks: dict[bytes, tuple[LostMark, tuple[str, str]]] = {}
        for oid, (generation, scope, session) in listed.objects.items() if lost_outside else ():
            lost: _Lost = {}
            seen: set[_Key] = set()
            for referred in self._references_of(oid, generation):
                self._collect(referred, lost_outside, lost, seen)
            if lost:
                first = tuple(islice(sorted(lost.values(), key=lambda each: each.id.binary), MAX_LISTED))
                marks[oid] = (LostMark(ObjectID(oid), generation, len(lost), first), (scope, session))
        for oid, (mark, place) in marks.items():
            if self._marks.get(oid) != (mark, place):
                record = raw_objects.SmallObject(mark_id(*place, mark.oid), inline_bytes.tree_of(mark.to_bytes()), ())
                raw_objects.put_small(self._sessions.get(*place), [record], replace=True)
                self._marks[oid] = (mark, place)
        for oid in [oid for oid in self._marks if oid not in marks]:
            mark, place = self._marks[oid]
            raw_objects.discard(self._store, mark_id(*place, mark.oid))
            del self._marks[oid]


def _key(referred: Referred) -> _Key:
    try:
        return referred.oid, cast("bytes", msgpack.packb(referred.positions))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"the positions of a reference to a collection are damaged: {error}") from error


def _fields(lost: LostDependency) -> list[Any]:
    return [lost.id.binary, lost.instance, lost.host, lost.since]


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
