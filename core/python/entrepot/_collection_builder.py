"""Building a collection, by any number of producers in any number of processes.

States of a collection::

    open ──put, append, by any producer──▶ open ──seal──▶ sealed ──delete──▶ (gone)
      └──discard, or the end of the session──▶ (gone)

An open collection consists only of the members sealed so far: objects of the session whose IDs are derived from the
collection's name and their index. So nothing is lost when a producer dies, only the session itself needs cleaning up,
and a rerun task writes the same objects. Sealing adds one more object, the collection.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from entrepot._arguments import NAME_MAX_BYTES, checked_name, seconds
from entrepot._collection import Collection
from entrepot._collection_members import common_traits, delete_all, objects_of, put_contents
from entrepot._collection_tree import (
    MEMBER_CODEC,
    MOST_MEMBERS,
    Card,
    Contents,
    Traits,
    card_of,
    collection_key,
    contents_of,
    member_key,
    member_node,
    pack_index,
)
from entrepot._locality import LocalitySet, packed
from entrepot._tree import inlined_bytes, is_tree_of
from entrepot._values import codecs
from entrepot.codec import Decoder, Encoder, Node, pack_tree, unpack_tree
from entrepot.errors import InvalidArgument, ObjectExists, ObjectNotFound, StoreFull, Timeout
from entrepot.ids import ObjectID
from entrepot.views import views

if TYPE_CHECKING:
    from entrepot._locality import Reading
    from entrepot._store import Store
    from entrepot._store_sets import AnySet

_SHOWN = 10  # maximum number of indexes listed in a message
_SEAL_TRIES = 5  # sealing is retried if members are replaced meanwhile


class CollectionBuilder:
    """One producer's handle on a collection being built. Created by :meth:`Store.collection`. Thread-safe.

    Attributes:
        name: the collection's name.
        id: the ID that the collection will have.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        producer: str | None,
        wanted_set: AnySet | None = None,
        reading: Reading | None = None,
    ) -> None:
        self._store = store
        self._wanted_set = wanted_set
        self._reading = reading
        self._set: int | None = None  # set by whichever thread needs it first; every thread gets the same number
        self.name = checked_name(name)
        self.id = store.derive(collection_key(name))
        # Members record who appended them. Without a given name, the producer is unique and never seen again.
        self._producer = checked_name(producer) if producer is not None else os.urandom(16).hex()
        self._lock = threading.Lock()
        self._cursor = 0  # guarded by _lock; every lower index was taken when append tried it
        self._appended = 0  # guarded by _lock

    # --- members

    def put(self, value: Any, *, index: int, replace: bool = False) -> ObjectID:
        """Store a member at an index. It is visible as an object at once, as a member once the collection is sealed.

        Args:
            value: anything a codec supports.
            index: its position, from 0. A rerun task that puts the same value there again succeeds.
            replace: whether another value at that index may be replaced.

        Raises:
            ObjectExists: the index has another value and ``replace`` is False; or the collection is sealed without this
                member; or it was sealed while the member was being replaced, and has been reopened.
            InvalidArgument: the index is negative or not an integer.
            StoreFull, UnsupportedType, StoreUnavailable: as ``Store.put``.
        """
        index = _checked_index(index)
        oid = self.member_id(index)
        traits, node, encoder = self._encoded(value)
        self._refuse_if_sealed(index, replace)
        try:
            existed = self._put(oid, Card(self.name, index, "", traits), node, encoder, replace)
        except ObjectExists as error:
            raise ObjectExists(
                f"collection {self.name!r} has another value at index {index} already (object {oid}): put it at an "
                "index of its own, or with replace=True in its place"
            ) from error
        if replace and not existed and self.sealed:
            self._take_back(index)
        return oid

    def append(self, value: Any) -> int:
        """Store a member at the first free index; return the index.

        Concurrent producers get different indexes, in order of arrival. A named producer (``producer=``) that is rerun
        finds what it appended before and does not append it twice.

        Raises:
            ObjectExists: the collection is sealed, or an earlier run of this producer appended another value in this
                place.
            StoreFull, UnsupportedType, StoreUnavailable: as ``Store.put``.
        """
        traits, node, encoder = self._encoded(value)
        with self._lock:
            writer = f"{self._producer}#{self._appended}"
            while self._cursor < MOST_MEMBERS:
                index = self._cursor
                done = self._append_at(index, writer, traits, node, encoder)
                self._cursor += 1
                if done:
                    self._appended += 1
                    return index
        raise InvalidArgument(f"a collection has at most {MOST_MEMBERS} members")

    def extend(self, values: Iterable[Any]) -> list[int]:
        """Append several values one after the other; return their indexes."""
        return [self.append(value) for value in values]

    def member_id(self, index: int) -> ObjectID:
        """Return the ID of the member at an index, whether it exists yet or not."""
        return self._store.derive(member_key(self.name, _checked_index(index)))

    def indexes(self) -> list[int]:
        """Return the indexes of the members stored so far, in order."""
        return sorted(self._present())

    # --- the collection

    @property
    def locality_set(self) -> str:
        """Name of the locality set of the members: the collection's own, unless the builder was given another one."""
        if isinstance(self._wanted_set, LocalitySet):
            return self._wanted_set.name
        if self._wanted_set is not None:
            return self._wanted_set
        name = f"collection:{self.name}"
        return name if len(name.encode("utf-8", "surrogatepass")) <= NAME_MAX_BYTES else f"collection:{self.id}"

    @property
    def sealed(self) -> bool:
        """Whether the collection is sealed."""
        return self._store.exists(self.id)

    def seal(self, length: int | None = None, *, timeout: float | None = 0) -> Collection:
        """Seal the members into a collection, which is then visible to everyone under its name.

        Any producer may do this, or any other process. Doing it again with the same members succeeds.

        Args:
            length: required number of members; default: as many as there are.
            timeout: seconds to wait for missing members; 0: do not wait; None: no limit.

        Returns:
            The collection, as returned by ``Store.get``.

        Raises:
            ObjectNotFound: members are missing; the message names their indexes.
            Timeout: they did not arrive in time.
            UnsupportedType: the members' types differ.
            InvalidArgument: a table has other columns than the first one, or a tensor another element type or number of
                axes; there are no members and ``length`` was not given; or ``length`` is negative, or less than the
                number of members.
            ObjectExists: the collection is already sealed with other members, or its name is bound to another object;
                or members keep being replaced.
        """
        wait = seconds(timeout)
        if length is None:
            present = self._present()
            if not present:
                raise InvalidArgument(
                    f"collection {self.name!r} has no members in session {self._store.session_name!r} of scope "
                    f"{self._store.scope!r}: put some, or seal it with length=0"
                )
            length = max(present) + 1
        elif _checked_index(length, "the length of a collection") > MOST_MEMBERS:
            raise InvalidArgument(f"a collection has at most {MOST_MEMBERS} members, but length is {length}")
        elif length < MOST_MEMBERS and self._store.exists(self.member_id(length)):
            raise InvalidArgument(
                f"collection {self.name!r} has a member at index {length}, so its length is not {length}: seal it with "
                "the right length, or discard() it"
            )
        ids = [self.member_id(index) for index in range(length)]
        for _ in range(_SEAL_TRIES):
            traits, sizes, generations = self._gathered(ids, wait)
            existed = self._put_collection(self._contents(ids, traits, sizes))
            if existed or self._unchanged(ids, generations):
                sealed: Collection = self._store.get(self.id)
                return sealed
            self._store.delete(self.id, members=False)
        raise ObjectExists(
            f"collection {self.name!r} was not sealed: members were replaced during each of {_SEAL_TRIES} tries; "
            "seal it when their producers are done"
        )

    def discard(self) -> int:
        """Delete the collection, sealed or not, with all members; return how many there were.

        Members put afterwards start a new collection of the same name.
        """
        found = list(self._present().values())
        self._store.delete(self.id, members=True)
        delete_all(self._store._raw(), [oid.binary for oid in found])
        with self._lock:
            self._cursor = self._appended = 0
        return len(found)

    def __repr__(self) -> str:
        return f"<entrepot.CollectionBuilder {self.name!r} in session {self._store.session_name!r}>"

    # --- internal

    def _encoded(self, value: Any) -> tuple[Traits, Node, Encoder]:
        traits = views().describe(value)
        encoder = Encoder(codecs(), allow_pickle=self._store._allow_pickle)
        return traits, encoder.encode(value), encoder

    def _put(self, oid: ObjectID, card: Card, node: Node, encoder: Encoder, replace: bool) -> bool:
        """Put a member; return whether an identical one already existed."""
        store, tree = self._store, pack_tree(member_node(card, node), encoder.inlined)
        item = (oid.binary, store._session_number, replace, False, "", tree, encoder.buffers, self._set_number(), 0)
        return store._put_item(item)[2]

    def _take_back(self, index: int) -> None:
        """Reopen the collection: it was sealed while a member was replaced, so it is unclear with which value."""
        if self._store.delete(self.id, members=False):
            raise ObjectExists(
                f"collection {self.name!r} was sealed while its member {index} was being replaced, so that was taken "
                "back: seal it again, with what is there now"
            )

    def _set_number(self) -> int:
        """Return the members' locality set; created on the first put."""
        if self._set is None:
            store = self._store
            if self._wanted_set is not None:
                self._set = store._set_number(self._wanted_set)
            else:
                changed, value = packed(None, None, {"reading": self._reading})
                try:
                    self._set = store._raw().define_set(store._session_number, self.locality_set, 0, changed, value)
                except StoreFull:
                    self._set = 0  # too many sets: eviction then knows less, everything else works the same
        return self._set

    def _append_at(self, index: int, writer: str, traits: Traits, node: Node, encoder: Encoder) -> bool:
        """Try to append at this index; return False if another member is there."""
        oid = self.member_id(index)
        holder = self._writer_at(oid)
        if holder is None:
            self._refuse_if_sealed(index)
        elif holder != writer:
            return False
        try:
            self._put(oid, Card(self.name, index, writer, traits), node, encoder, False)
        except ObjectExists as error:
            if holder is None:
                return False  # another producer was faster
            raise ObjectExists(
                f"producer {self._producer!r} of collection {self.name!r} appended another value as its number "
                f"{self._appended} before (index {index}): discard() the collection, or put by index"
            ) from error
        return True

    def _writer_at(self, oid: ObjectID) -> str | None:
        if not self._store.exists(oid):
            return None
        try:
            tree, _, _ = self._store._raw().tree(oid.binary)
        except ObjectNotFound:
            return None  # deleted in the meantime
        return card_of(unpack_tree(tree)).writer

    def _refuse_if_sealed(self, index: int, replace: bool = False) -> None:
        try:
            found = self._store._raw().get(self.id.binary, 0)
        except ObjectNotFound:
            return
        decoder = Decoder(codecs(), lambda number: found.buffer(number, 0), found.buffer_count)
        count = contents_of(unpack_tree(found.tree), decoder).count
        if replace or index >= count:
            raise ObjectExists(
                f"collection {self.name!r} is sealed with {count} members, so nothing can be put at index {index}: "
                "discard() it first, or build a collection of another name"
            )

    def _present(self) -> dict[int, ObjectID]:
        """Find this collection's members among the objects of the session."""
        raw = self._store._raw()
        found: dict[int, ObjectID] = {}
        for oid in objects_of(raw, self._store._session_number):
            try:
                tree, _, _ = raw.tree(oid)
            except ObjectNotFound:
                continue  # deleted in the meantime
            if not is_tree_of(tree, MEMBER_CODEC):
                continue
            card = card_of(unpack_tree(tree))
            if card.collection == self.name and self.member_id(card.index).binary == oid:
                found[card.index] = ObjectID(oid)
        return found

    def _unchanged(self, ids: list[ObjectID], generations: list[int]) -> bool:
        raw = self._store._raw()
        return all(raw.generation_of(oid.binary) == known for oid, known in zip(ids, generations, strict=True))

    def _gathered(self, ids: list[ObjectID], wait: float) -> tuple[list[Traits], list[int], list[int]]:
        raw = self._store._raw()
        traits: list[Traits | None] = [None] * len(ids)
        sizes, generations = [0] * len(ids), [0] * len(ids)

        def look(index: int, timeout: float) -> None:
            if timeout:
                raw.get(ids[index].binary, timeout)
            tree, sizes[index], generations[index] = raw.tree(ids[index].binary)
            sizes[index] += inlined_bytes(tree)
            traits[index] = card_of(unpack_tree(tree)).traits

        missing: list[int] = []
        for index in range(len(ids)):
            try:
                look(index, 0)
            except ObjectNotFound:
                missing.append(index)
        if missing and not wait:
            raise ObjectNotFound(
                self._gap(missing, len(ids)) + ": put them, or seal with a timeout that waits for them"
            )
        end = time.monotonic() + wait
        for at, index in enumerate(missing):
            try:
                look(index, max(end - time.monotonic(), 0.001))
            except (Timeout, ObjectNotFound) as error:
                still = [one for one in missing[at:] if not self._store.exists(ids[one])]
                raise Timeout(
                    self._gap(still or [index], len(ids)) + f" after {wait:g} s: see to their producers, and seal again"
                ) from error
        return [one for one in traits if one is not None], sizes, generations

    def _gap(self, missing: list[int], length: int) -> str:
        shown = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        return (
            f"collection {self.name!r} in session {self._store.session_name!r} of scope {self._store.scope!r} lacks "
            f"{len(missing)} of {length} members, at index {shown}"
        )

    def _contents(self, ids: list[ObjectID], traits: list[Traits], sizes: list[int]) -> Contents:
        common = common_traits(self.name, traits)
        rows = [one.rows for one in traits if one.rows is not None]
        index = pack_index(ids, sizes, rows if common.rows is not None else None)
        store = self._store
        return Contents(self.name, store.scope, store.session_name, len(ids), sum(sizes), common, index)

    def _put_collection(self, contents: Contents) -> bool:
        """Put the collection object; return whether an identical one already existed."""
        store = self._store
        try:
            return put_contents(store, self.id, contents, self.name)
        except ObjectExists as error:
            if not store.exists(self.id):
                raise  # the name is bound to another object
            raise ObjectExists(
                f"collection {self.name!r} is sealed already with other members, or its name is another object's "
                f"({error}): discard() it first, or build a collection of another name"
            ) from error


def _checked_index(value: Any, what: str = "the index of a member") -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST_MEMBERS:
        raise InvalidArgument(f"{what} is a whole number from 0 to {MOST_MEMBERS - 1}, but got {value!r}")
    return value
