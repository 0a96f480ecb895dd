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
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from entrepot._client import collection_calls
from entrepot._client.arguments import NAME_MAX_BYTES, checked_name, timeout_seconds
from entrepot._client.locality import LocalitySet, pack_attributes
from entrepot._codecs.encoding import codec_registry
from entrepot._collections.collection import Collection
from entrepot._collections.deletion import refuse_silent
from entrepot._collections.member_search import find_members
from entrepot._collections.members import delete_all, put_contents
from entrepot._collections.metadata import (
    MAX_MEMBERS,
    Contents,
    MemberMeta,
    ValueTraits,
    collection_key,
    member_key,
    member_node,
    parse_contents,
    parse_member_meta,
)
from entrepot._collections.plugins import collection_plugin
from entrepot._collections.sealing import GatheredMember, MemberGathering, are_unchanged, contents_of, spread
from entrepot.codec import Decoder, Encoder, Node, pack_tree, unpack_tree
from entrepot.errors import (
    DirectoryUnavailable,
    EntrepotError,
    InvalidArgument,
    ObjectExists,
    ObjectNotFound,
    StoreFull,
    StoreUnavailable,
    Timeout,
)
from entrepot.ids import ObjectID
from entrepot.phrases import count_of, session_phrase

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._client.locality import Reading
    from entrepot._client.locality_sets import LocalitySetOrName
    from entrepot._collections.store_access import CollectionStore

_SEAL_ATTEMPTS = 5  # sealing is retried if members are replaced meanwhile
_WITHDRAW_SECONDS = 1.0  # for undoing what other stores did, when the time of the caller is over


class CollectionBuilder:
    """One producer's handle on a collection being built. Created by :meth:`Store.collection`. Thread-safe.

    Attributes:
        name: the collection's name.
        id: the ID that the collection will have.

    >>> import entrepot
    >>> store = entrepot.connect()
    >>> parts = store.collection("parts")
    >>> oids = [parts.put(number**2, index=number) for number in range(3)]  # in one process, or in many
    >>> list(parts.seal(3))
    [0, 1, 4]
    """

    def __init__(
        self,
        store: CollectionStore,
        name: str,
        producer: str | None,
        requested_set: LocalitySetOrName | None = None,
        reading: Reading | None = None,
    ) -> None:
        self._store = store
        self._requested_set = requested_set
        self._reading = reading
        self._set_handle: int | None = None  # set by whichever thread needs it first; every thread gets the same number
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
        traits, node, encoder = self._encode(value)
        self._refuse_if_sealed(index, replace)
        try:
            existed = self._put_member(oid, MemberMeta(self.name, index, "", traits), node, encoder, replace)
        except ObjectExists as error:
            raise ObjectExists(
                f"collection {self.name!r} already has another value at index {index} (object {oid}): put this one "
                "at a different index, or pass replace=True to replace the other"
            ) from error
        if replace and not existed and self.sealed:
            self._reopen(index)
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
        traits, node, encoder = self._encode(value)
        with self._lock:
            writer = f"{self._producer}#{self._appended}"
            while self._cursor < MAX_MEMBERS:
                index = self._cursor
                appended = self._append_at(index, writer, traits, node, encoder)
                self._cursor += 1
                if appended:
                    self._appended += 1
                    return index
        raise InvalidArgument(f"a collection can have at most {MAX_MEMBERS} members")

    def delete_unanswered(self) -> None:
        """Delete the member that the last ``append`` has stored although it failed, if it has.

        A daemon that was stopped carries out what was asked of it when it continues, after its caller gave up. Only for
        a builder without a producer's name: what a named one left behind may be from an earlier run.
        """
        with self._lock:
            if self._cursor == MAX_MEMBERS:
                return
            oid = self.member_id(self._cursor)
            if self._writer_at(oid) == f"{self._producer}#{self._appended}":
                self._store.delete(oid)

    def describe(self, value: Any, oid: ObjectID) -> _core.Item:
        """Return an item of a value with a member's description, for another store, which gives it its index."""
        traits, node, encoder = self._encode(value)
        tree = pack_tree(member_node(MemberMeta(self.name, 0, str(oid), traits), node), encoder.inlined)
        return (oid.binary, self._store._session_number, False, True, "", tree, encoder.buffers)

    def extend(self, values: Iterable[Any]) -> list[int]:
        """Append several values one after the other; return their indexes."""
        return [self.append(value) for value in values]

    def member_id(self, index: int) -> ObjectID:
        """Return the ID of the member at an index, whether it exists yet or not."""
        return self._store.derive(member_key(self.name, _checked_index(index)))

    def indexes(self) -> list[int]:
        """Return the indexes of the members stored so far, in order."""
        return sorted(self._find_members())

    # --- the collection

    @property
    def locality_set(self) -> str:
        """Name of the locality set of the members: the collection's own, unless the builder was given another one."""
        if isinstance(self._requested_set, LocalitySet):
            return self._requested_set.name
        if self._requested_set is not None:
            return self._requested_set
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
            timeout: seconds to wait for missing members; 0: do not wait; None: no limit. A positive number bounds the
                whole call, also if other hosts, the gateway or the cluster's directory do not respond.

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
                or members keep being replaced; or two hosts have different members at an index.
            StoreUnavailable: another host of the cluster does not answer, and ``length`` was not given; or a host that
                has members does not take the collection.
            DirectoryUnavailable: members are on other hosts, or might be, and the cluster's directory is away.
        """
        wait = timeout_seconds(timeout)
        gathering = MemberGathering(self._store, self.name, wait)
        if length is None:
            length = max(max(self._find_members(), default=-1) + 1, gathering.extent())
            if not length:
                raise InvalidArgument(
                    f"collection {self.name!r} has no members in {self._session_phrase()}: put some, or seal it with "
                    "length=0"
                )
        elif _checked_index(length, "the length of a collection") > MAX_MEMBERS:
            raise InvalidArgument(f"a collection can have at most {MAX_MEMBERS} members, but length is {length}")
        elif length < MAX_MEMBERS and self._store.exists(self.member_id(length)):
            raise InvalidArgument(
                f"collection {self.name!r} has a member at index {length}, so its length cannot be {length}: seal it "
                "with the correct length, or discard() it"
            )
        for _ in range(_SEAL_ATTEMPTS):
            members = self._gather_members(gathering, length)
            contents = contents_of(self._store, self.name, members)
            existed = self._put_collection(contents)
            error = self._spread(contents, members, gathering.left())
            if error is None and (existed or are_unchanged(self._store, members)):
                sealed: Collection = self._store.get(self.id)
                return sealed
            if not existed:
                with suppress(StoreUnavailable, DirectoryUnavailable, Timeout):  # sealing again has it right everywhere
                    self._withdraw(contents.digest(), timeout=gathering.left(_WITHDRAW_SECONDS))
            if error is not None and not isinstance(error, ObjectNotFound):
                raise error
        raise ObjectExists(
            f"collection {self.name!r} was not sealed: members were replaced during each of {_SEAL_ATTEMPTS} attempts; "
            "seal it when their producers are done"
        )

    def discard(self) -> int:
        """Delete the collection, sealed or not, with all members, on all hosts; return how many there were.

        Members put afterwards start a new collection of the same name. Other hosts come first: if one of them fails,
        nothing is deleted here, and discarding again deletes the rest.

        Raises:
            StoreUnavailable: a live host, which the message names, or this host's gateway does not answer; the former
                may still have members, those on all other hosts are gone.
            DirectoryUnavailable: it is not known which hosts there are.
        """
        store, member_ids = self._store, list(self._find_members().values())
        answers = collection_calls.discard(store._raw(), store.scope, store.session_name, self.name, members=True)
        refuse_silent(self.name, answers)
        store.delete(self.id, members=True)
        delete_all(store._raw(), [oid.binary for oid in member_ids])
        with self._lock:
            self._cursor = self._appended = 0
        return len(member_ids) + sum(int(answer.value) for answer in answers or ())

    def __repr__(self) -> str:
        return f"<entrepot.CollectionBuilder {self.name!r} in session {self._store.session_name!r}>"

    # --- internal

    def _encode(self, value: Any) -> tuple[ValueTraits, Node, Encoder]:
        traits = collection_plugin().describe(value)
        encoder = Encoder(codec_registry(), allow_pickle=self._store._allow_pickle)
        return traits, encoder.encode(value), encoder

    def _put_member(self, oid: ObjectID, meta: MemberMeta, node: Node, encoder: Encoder, replace: bool) -> bool:
        """Put a member; return whether an identical one already existed."""
        store, tree = self._store, pack_tree(member_node(meta, node), encoder.inlined)
        item = (oid.binary, store._session_number, replace, False, "", tree, encoder.buffers, self._get_set_handle(), 0)
        return store._put_item(item)[2]

    def _reopen(self, index: int) -> None:
        """Reopen the collection: it was sealed while a member was replaced, so it is unclear with which value."""
        sealed = self._store.exists(self.id)
        self._withdraw()
        if sealed:
            raise ObjectExists(
                f"collection {self.name!r} was sealed while its member {index} was being replaced, so it was "
                "reopened: seal it again, with its current members"
            )

    def _get_set_handle(self) -> int:
        """Return the members' locality set; created on the first put."""
        if self._set_handle is None:
            store = self._store
            if self._requested_set is not None:
                self._set_handle = store._get_set_handle(self._requested_set)
            else:
                changed, value = pack_attributes(None, None, {"reading": self._reading})
                try:
                    self._set_handle = store._raw().define_set(
                        store._session_number, self.locality_set, 0, changed, value
                    )
                except StoreFull:
                    self._set_handle = 0  # too many sets: eviction then knows less, everything else works the same
        return self._set_handle

    def _append_at(self, index: int, writer: str, traits: ValueTraits, node: Node, encoder: Encoder) -> bool:
        """Try to append at this index; return False if another member is there."""
        oid = self.member_id(index)
        holder = self._writer_at(oid)
        if holder is None:
            self._refuse_if_sealed(index)
        elif holder != writer:
            return False
        try:
            self._put_member(oid, MemberMeta(self.name, index, writer, traits), node, encoder, False)
        except ObjectExists as error:
            if holder is None:
                return False  # another producer was faster
            raise ObjectExists(
                f"producer {self._producer!r} of collection {self.name!r} has already appended another value as its "
                f"number {self._appended} (index {index}): discard() the collection, or put by index"
            ) from error
        return True

    def _writer_at(self, oid: ObjectID) -> str | None:
        if not self._store.exists(oid):
            return None
        try:
            tree, _, _ = self._store._raw().tree(oid.binary)
        except ObjectNotFound:
            return None  # deleted in the meantime
        return parse_member_meta(unpack_tree(tree)).writer

    def _refuse_if_sealed(self, index: int, replace: bool = False) -> None:
        try:
            pinned_object = self._store._raw().get(self.id.binary, 0)
        except ObjectNotFound:
            return
        decoder = Decoder(codec_registry(), lambda number: pinned_object.buffer(number, 0), pinned_object.buffer_count)
        count = parse_contents(unpack_tree(pinned_object.tree), decoder).count
        if replace or index >= count:
            raise ObjectExists(
                f"collection {self.name!r} is sealed with {count_of(count, 'member')}, so nothing can be put at index "
                f"{index}: discard() it first, or build a collection with another name"
            )

    def _find_members(self) -> dict[int, ObjectID]:
        """Find this collection's members among the objects of the session."""
        store = self._store
        return find_members(store._raw(), store._session_number, store.scope, store.session_name, self.name)

    def _gather_members(self, gathering: MemberGathering, length: int) -> list[GatheredMember]:
        return gathering.gather(length)

    def _spread(self, contents: Contents, members: list[GatheredMember], timeout: float) -> EntrepotError | None:
        """Have the stores that have members take the collection, too; return why one of them did not."""
        try:
            return spread(self._store, self.name, self.id, contents.digest(), members, timeout)
        except EntrepotError as error:
            return error

    def _withdraw(self, digest: bytes | None = None, *, timeout: float = 0) -> None:
        """Delete the collection here, and where it was spread to, but not its members.

        Args:
            digest: elsewhere, delete only one with this digest. Default: any.
            timeout: for the other stores; 0: as long as it takes.

        Raises:
            StoreUnavailable: another store may still have it.
            DirectoryUnavailable, Timeout: it is not known which others have it.
        """
        store = self._store
        store.delete(self.id, members=False)
        answers = collection_calls.discard(
            store._raw(), store.scope, store.session_name, self.name, members=False, digest=digest, timeout=timeout
        )
        refuse_silent(self.name, answers)

    def _session_phrase(self) -> str:
        return session_phrase(self._store.scope, self._store.session_name)

    def _put_collection(self, contents: Contents) -> bool:
        """Put the collection object; return whether an identical one already existed."""
        store = self._store
        try:
            return put_contents(store, self.id, contents, self.name)
        except ObjectExists as error:
            if not store.exists(self.id):
                raise  # the name is bound to another object
            raise ObjectExists(
                f"collection {self.name!r} is already sealed with other members, or its name belongs to another "
                f"object ({error}): discard() it first, or build a collection with another name"
            ) from error


def _checked_index(value: Any, subject: str = "the index of a member") -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_MEMBERS:
        raise InvalidArgument(f"{subject} must be an integer from 0 to {MAX_MEMBERS - 1}, but got {value!r}")
    return value
