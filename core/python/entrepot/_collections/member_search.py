"""Finding the members of a collection that is being built, and describing them for those who seal it elsewhere.

A description says everything about a member that sealing needs, so that the member itself stays where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from entrepot import _core
from entrepot._collections.members import object_ids
from entrepot._collections.metadata import (
    DIGEST_BYTES,
    MEMBER_CODEC,
    ValueTraits,
    member_key,
    parse_member_meta,
    parse_traits,
    traits_params,
)
from entrepot._tree import inlined_bytes, is_tree_of
from entrepot.codec import unpack_tree
from entrepot.errors import CorruptData, ObjectNotFound
from entrepot.ids import ObjectID


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a collection that is not sealed yet.

    Attributes:
        index: its position.
        generation: of the object in the store that has it.
        nbytes: size of its payload.
        traits: of its value.
        checksum: CRC-32C of its tree and buffers, if it was asked for.
    """

    index: int
    generation: int
    nbytes: int
    traits: ValueTraits
    checksum: int | None = None


def member_id(scope: str, session: str, name: str, index: int) -> ObjectID:
    """Return the ID of the member of a collection at an index."""
    return ObjectID.derive(scope, session, member_key(name, index))


def find_members(raw: _core.Client, number: int, scope: str, session: str, name: str) -> dict[int, ObjectID]:
    """Find a collection's members among the objects of a session, by index.

    Args:
        raw: the store.
        number: the session's handle.
        scope, session: its names.
        name: the collection's.
    """
    members: dict[int, ObjectID] = {}
    for oid in object_ids(raw, number):
        try:
            tree, _, _ = raw.tree(oid)
        except ObjectNotFound:
            continue  # deleted in the meantime
        if not is_tree_of(tree, MEMBER_CODEC):
            continue
        meta = parse_member_meta(unpack_tree(tree))
        if meta.collection == name and member_id(scope, session, name, meta.index).binary == oid:
            members[meta.index] = ObjectID(oid)
    return members


def describe_member(raw: _core.Client, oid: ObjectID, index: int, *, checksum: bool = False) -> MemberDescription:
    """Describe a member.

    Args:
        raw: the store.
        oid, index: the member.
        checksum: whether to read it, for the checksum.

    Raises:
        ObjectNotFound: it is not sealed in this store.
        ObjectLost: it is to be read, and its bytes are gone.
    """
    if not checksum:
        tree, nbytes, generation = raw.tree(oid.binary)
        crc = None
    else:
        member = raw.get(oid.binary, 0)
        tree, nbytes, generation = member.tree, member.nbytes, member.generation
        crc = _core.crc32c(tree)
        for number in range(member.buffer_count):
            crc = _core.crc32c(member.buffer(number, 0), crc)
    traits = parse_member_meta(unpack_tree(tree)).traits
    return MemberDescription(index, generation, nbytes + inlined_bytes(tree), traits, crc)


def describe_members(
    raw: _core.Client, scope: str, session: str, name: str, indexes: Iterable[int], *, checksums: bool = False
) -> list[MemberDescription]:
    """Describe those of a collection's members that this store has."""
    descriptions = []
    for index in indexes:
        oid = member_id(scope, session, name, index)
        try:
            descriptions.append(describe_member(raw, oid, index, checksum=checksums))
        except ObjectNotFound:
            continue
    return descriptions


def lives_digest(lives: Iterable[tuple[bytes, int]]) -> bytes:
    """Return a digest of members, in the collection's order, and of their generations in one store."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for oid, generation in lives:
        digest.update(oid + generation.to_bytes(8, "little"))
    return digest.digest()


def pack_descriptions(descriptions: Sequence[MemberDescription]) -> list[Any]:
    """Return descriptions as plain values, each schema only once."""
    numbers: dict[ValueTraits, int] = {}
    members = []
    for each in descriptions:
        shared = replace(each.traits, rows=None)
        number = numbers.setdefault(shared, len(numbers))
        members.append([each.index, each.generation, each.nbytes, each.traits.rows, number, each.checksum])
    return [[traits_params(traits) for traits in numbers], members]


def parse_descriptions(packed: Any) -> list[MemberDescription]:
    """Read what :func:`pack_descriptions` returned.

    Raises:
        CorruptData: it is something else.
    """
    try:
        raw_traits, members = packed
        traits = [parse_traits(each) for each in raw_traits]
        return [
            MemberDescription(
                _number(index),
                _number(generation),
                _number(nbytes),
                _with_rows(traits[_number(number)], rows),
                None if checksum is None else _number(checksum),
            )
            for index, generation, nbytes, rows, number, checksum in members
        ]
    except (ValueError, TypeError, IndexError) as error:
        raise CorruptData(f"the description of members that another store has cannot be read: {error}") from error


def _with_rows(traits: ValueTraits, rows: Any) -> ValueTraits:
    return traits if rows is None else replace(traits, rows=_number(rows))


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number of 0 or more")
    return value
