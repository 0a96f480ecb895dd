"""``entrepot cluster --lost``: the published objects that were in stores that are lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot_cluster.directory.directory import Directory
    from entrepot_cluster.directory.model import Instance, Place

PAGE = 10_000


@dataclass(frozen=True, slots=True)
class LostObject:
    """An object of a lost store.

    Attributes:
        oid: its ID, 20 bytes.
        instance: the store.
        nbytes: size of its payload.
        copies: hosts that are live and have a copy of the same life; empty: it is lost.
    """

    oid: bytes
    instance: Instance
    nbytes: int
    copies: tuple[str, ...]


def lost_objects(directory: Directory) -> Iterator[LostObject]:
    """Yield what the directory remembers of lost stores, in the order of the objects' IDs.

    Raises:
        DirectoryUnavailable: the directory cannot be asked.
        DirectoryDamaged: an entry cannot be decoded.
    """
    for oid, group in groupby(_places(directory), key=attrgetter("oid")):
        places = list(group)
        for place in places:
            if not place.instance.live:
                same = (other for other in places if other.instance.live and other.life == place.life)
                hosts = sorted({other.instance.host for other in same})
                yield LostObject(oid, place.instance, place.nbytes, tuple(hosts))


def _places(directory: Directory) -> Iterator[Place]:
    after = b""
    while True:
        page = directory.list_objects(after=after, limit=PAGE)
        for damage in page.damage:
            raise damage
        yield from page.entries
        if page.next is None:
            return
        after = page.next
