"""Gathering the members of a collection that is to be sealed: those in this store, and those in others of its cluster.

    sought ──sealed here──▶ gathered
       └──another store has it──▶ gathered, as a description
       └──several stores have it, with the same bytes──▶ gathered; with other bytes──▶ ObjectExists
       └──no store has it──▶ ObjectNotFound, or waited for ──▶ Timeout

Without a gateway, and if all members are here, no other store is asked.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from entrepot._client import collection_calls
from entrepot._collections.member_search import (
    MemberDescription,
    describe_member,
    describe_members,
    lives_digest,
    member_id,
    parse_descriptions,
)
from entrepot._collections.members import common_traits
from entrepot._collections.metadata import Contents, pack_index
from entrepot.errors import EntrepotError, ObjectExists, ObjectNotFound, StoreUnavailable, Timeout
from entrepot.phrases import count_of, session_phrase

if TYPE_CHECKING:
    from entrepot._client.collection_calls import Answer
    from entrepot._collections.store_access import CollectionStore
    from entrepot.ids import ObjectID

_MAX_SHOWN = 10  # maximum number of indexes listed in a message
_MIN_SECONDS = 0.001  # of a timeout: 0 means none
ASK_AGAIN_SECONDS = 0.5  # between questions to other stores about members that are waited for


@dataclass(slots=True)
class GatheredMember:
    """A member, and who has it.

    Attributes:
        id: of the object.
        description: of one of its copies; all are equal.
        generations: by the instance that has it.
    """

    id: ObjectID
    description: MemberDescription
    generations: dict[str, int]


@dataclass(slots=True)
class _Cluster:
    """What is known of the other stores.

    Attributes:
        exists: whether there is a gateway, as far as is known.
        hosts: names of hosts by instance.
        silent: why stores did not answer the last question, by host.
    """

    exists: bool = True
    hosts: dict[str, str] = field(default_factory=dict)
    silent: dict[str, EntrepotError] = field(default_factory=dict)


class MemberGathering:
    """Gathers the members of one collection. For one thread.

    Args:
        store: the session in which it is built.
        name: the collection.
        wait: how long to wait for missing members, in seconds. If this is a positive number, all questions to other
            stores end then, too.
    """

    def __init__(self, store: CollectionStore, name: str, wait: float = 0) -> None:
        self._store = store
        self._name = name
        self._wait_seconds = wait
        self._end = time.monotonic() + wait if 0 < wait < math.inf else None
        self._own = store._raw().instance
        self._cluster = _Cluster(hosts={self._own: store.host})

    def extent(self) -> int:
        """Return one more than the highest index of a member in any other store; 0: there are none.

        Raises:
            StoreUnavailable: a store that is live does not answer, so there may be more members.
            DirectoryUnavailable: it is not known which stores there are.
        """
        store = self._store
        answers = self._asked(
            lambda: collection_calls.extent(
                store._raw(), store.scope, store.session_name, self._name, timeout=self.left()
            )
        )
        highest = max((int(answer.value) for answer in answers), default=0)
        if self._cluster.silent:
            raise StoreUnavailable(
                f"collection {self._name!r} may have members on hosts that do not answer; seal it with its length, or "
                "later" + self._describe_silent()
            )
        return highest

    def left(self, at_least: float = _MIN_SECONDS) -> float:
        """The seconds that are left for a question to other stores; 0: as long as it takes."""
        return 0 if self._end is None else max(at_least, self._end - time.monotonic())

    def gather(self, length: int) -> list[GatheredMember]:
        """Return the members at all indexes below a length.

        Args:
            length: how many there must be.

        Raises:
            ObjectNotFound: some are missing.
            Timeout: they did not arrive in time.
            ObjectExists: two stores have different values at an index.
        """
        store, raw = self._store, self._store._raw()
        gathered: dict[int, GatheredMember] = {}
        for each in describe_members(raw, store.scope, store.session_name, self._name, range(length)):
            self._note(gathered, each, self._own)
        missing = [index for index in range(length) if index not in gathered]
        if missing:
            self._ask(gathered, range(length))
            self._compare(gathered)
            missing = [index for index in missing if index not in gathered]
        if missing and not self._wait_seconds:
            raise ObjectNotFound(
                self._describe_missing(missing, length) + ": put them, or seal with a timeout to wait for them"
            )
        if missing:
            self._wait(gathered, missing, length)
        return [gathered[index] for index in range(length)]

    def _wait(self, gathered: dict[int, GatheredMember], missing: Sequence[int], length: int) -> None:
        raw, end = self._store._raw(), math.inf if self._end is None else self._end
        pending = deque(missing)
        while pending:
            oid, left = self._id(pending[0]), end - time.monotonic()
            step = min(left, ASK_AGAIN_SECONDS) if self._cluster.exists else left
            try:
                raw.get(oid.binary, max(step, 0.001), even_lost=True)  # its producer may be rerunning
                self._note(gathered, describe_member(raw, oid, pending[0]), self._own)
            except (Timeout, ObjectNotFound) as error:
                self._ask(gathered, pending)
                pending = deque(index for index in pending if index not in gathered)
                if pending and time.monotonic() >= end:
                    self._raise_timeout(list(pending), length, error)
            else:
                pending.popleft()
        self._compare(gathered)

    def _raise_timeout(self, pending: list[int], length: int, error: EntrepotError) -> None:
        absent = [index for index in pending if not self._store.exists(self._id(index))]
        raise Timeout(
            self._describe_missing(absent or pending[:1], length)
            + f" after {self._wait_seconds:g} s: check their producers, and seal again"
        ) from error

    def _id(self, index: int) -> ObjectID:
        return member_id(self._store.scope, self._store.session_name, self._name, index)

    def _note(self, gathered: dict[int, GatheredMember], description: MemberDescription, instance: str) -> None:
        member = gathered.get(description.index)
        if member is None:
            member = gathered[description.index] = GatheredMember(self._id(description.index), description, {})
        member.generations[instance] = description.generation

    def _ask(self, gathered: dict[int, GatheredMember], indexes: Sequence[int]) -> None:
        """Ask the other stores which of these members they have."""
        for answer, descriptions in self._descriptions(list(indexes)):
            for each in descriptions:
                self._note(gathered, each, answer.instance)

    def _descriptions(
        self, indexes: list[int], *, checksums: bool = False
    ) -> list[tuple[Answer, list[MemberDescription]]]:
        described: list[tuple[Answer, list[MemberDescription]]] = []
        for begin in range(0, len(indexes), collection_calls.DESCRIBE_INDEXES):
            if not self._cluster.exists:
                break
            part = indexes[begin : begin + collection_calls.DESCRIBE_INDEXES]
            answers = self._asked(partial(self._describe, part, checksums))
            described += [(answer, parse_descriptions(answer.value)) for answer in answers]
        return described

    def _describe(self, part: list[int], checksums: bool) -> list[Answer] | None:
        store = self._store
        return collection_calls.describe(
            store._raw(), store.scope, store.session_name, self._name, part, checksums=checksums, timeout=self.left()
        )

    def _compare(self, gathered: dict[int, GatheredMember]) -> None:
        """Check that members that several stores have are the same: a rerun task may have been on another host."""
        several = [index for index, member in gathered.items() if len(member.generations) > 1]
        if not several:
            return
        raw, scope, session = self._store._raw(), self._store.scope, self._store.session_name
        mine = [index for index in several if self._own in gathered[index].generations]
        first: dict[int, tuple[int | None, str]] = {
            each.index: (each.checksum, self._own)
            for each in describe_members(raw, scope, session, self._name, mine, checksums=True)
        }
        for answer, descriptions in self._descriptions(sorted(several), checksums=True):
            for each in descriptions:
                checksum, instance = first.setdefault(each.index, (each.checksum, answer.instance))
                if checksum != each.checksum:
                    hosts = " and ".join(
                        self._cluster.hosts.get(each_instance, each_instance)
                        for each_instance in (instance, answer.instance)
                    )
                    raise ObjectExists(
                        f"collection {self._name!r} has different values at index {each.index} (object "
                        f"{self._id(each.index)}) on hosts {hosts}: delete one of them there, or discard() the "
                        "collection; members that are appended on several hosts have to be put by index instead"
                    )

    def _asked(self, ask: Callable[[], list[Answer] | None]) -> list[Answer]:
        """The answers of those stores that gave one."""
        try:
            answers = ask()
        except (StoreUnavailable, Timeout) as error:  # of this host's own gateway
            self._cluster.silent = {self._store.host: error}
            return []
        if answers is None:
            self._cluster.exists = False
            return []
        self._cluster.hosts.update((answer.instance, answer.host) for answer in answers)
        self._cluster.silent = {answer.host: answer.error for answer in answers if answer.error is not None}
        return [answer for answer in answers if answer.error is None]

    def _describe_missing(self, missing: list[int], length: int) -> str:
        indexes = ", ".join(map(str, missing[:_MAX_SHOWN])) + (", ..." if len(missing) > _MAX_SHOWN else "")
        store = self._store
        return (
            f"collection {self._name!r} in {session_phrase(store.scope, store.session_name)} lacks {len(missing)} of "
            f"{count_of(length, 'member')}, at index {indexes}{self._describe_silent()}"
        )

    def _describe_silent(self) -> str:
        return "".join(f"; host {host} did not answer ({why})" for host, why in self._cluster.silent.items())


def are_unchanged(store: CollectionStore, members: Sequence[GatheredMember]) -> bool:
    """Whether the members in this store are those that were gathered; the other stores check theirs."""
    raw = store._raw()
    return all(
        raw.generation_of(member.id.binary) == member.generations.get(raw.instance)
        for member in members
        if raw.instance in member.generations
    )


def contents_of(store: CollectionStore, name: str, members: Sequence[GatheredMember]) -> Contents:
    """Describe the collection that these members make.

    Raises:
        UnsupportedType, InvalidArgument: they differ in type or layout.
    """
    descriptions = [member.description for member in members]
    common = common_traits(name, [each.traits for each in descriptions])
    sizes = [each.nbytes for each in descriptions]
    rows = [each.traits.rows for each in descriptions if each.traits.rows is not None]
    index = pack_index([member.id for member in members], sizes, rows if common.rows is not None else None)
    return Contents(name, store.scope, store.session_name, len(members), sum(sizes), common, index)


def spread(
    store: CollectionStore,
    name: str,
    oid: ObjectID,
    digest: bytes,
    members: Sequence[GatheredMember],
    timeout: float,
) -> EntrepotError | None:
    """Give a sealed collection to the stores that have members of it, and have them publish these.

    Returns:
        why one of them did not take it; ObjectNotFound: one of its members was replaced or deleted meanwhile;
        ObjectExists: it has a collection of other members under that name.

    Raises:
        StoreUnavailable, VersionMismatch: there is no gateway any more, or an older one.
        DirectoryUnavailable: what is here could not be published.
        Timeout: not in time; 0: as long as it takes.
    """
    own, lives = store._raw().instance, dict[str, list[tuple[bytes, int]]]()
    for member in members:
        for instance, generation in member.generations.items():
            lives.setdefault(instance, []).append((member.id.binary, generation))
    if not set(lives) - {own}:
        return None
    digests = {instance: lives_digest(of_instance) for instance, of_instance in lives.items()}
    answers = collection_calls.spread(store._raw(), oid.binary, name, digest, digests, timeout=timeout)
    return next((answer.error for answer in answers if answer.error is not None), None)
