"""Objects that this process has created and not sealed yet.

    created ──seal──▶ sealed          (the store's from then on)
       └──disconnect, last reference to the client gone, fork (in the child)──▶ given up

Other processes cannot see them: of two that create the same ID, the second to seal gets ``PlasmaObjectExists``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entrepot import _core


class Creation:
    """An object that is being written.

    Args:
        owner: the client that may seal it.
        data_size: bytes of data.
        metadata: copied by the seal.

    Attributes:
        data_size, metadata: as given.
        builder, blob: its memory, in which the data is written; None until there is any.
        view: of the blob, which gives out no other one in a forked child, where the seal is to be refused.
        created: when, in seconds since 1970.
    """

    __slots__ = ("_owner", "blob", "builder", "created", "data_size", "metadata", "view")

    def __init__(self, owner: object, data_size: int, metadata: bytes) -> None:
        self._owner = id(owner)  # not a reference: dropping the last one to a client gives up what it creates
        self.data_size = data_size
        self.metadata = metadata
        self.builder: _core.ObjectBuilder | None = None
        self.blob: _core.WritableBlob | None = None
        self.view: memoryview | None = None
        self.created = time.time()

    def is_of(self, client: object) -> bool:
        """Return whether this client may seal it."""
        return self._owner == id(client)


# All clients of a process see what it creates, as all clients of Plasma's store did. By store address and binary ID;
# each access is one atomic operation of the dictionary, so that no lock can be held across a fork.
_creations: dict[tuple[str, bytes], Creation] = {}


def exists(address: str, binary: bytes) -> bool:
    """Return whether this process is creating an object with this ID."""
    return (address, binary) in _creations


def add(address: str, binary: bytes, creation: Creation) -> bool:
    """Add an object; return False if there is one with this ID."""
    return _creations.setdefault((address, binary), creation) is creation


def find(address: str, binary: bytes, owner: object) -> Creation | None:
    """Return the object with this ID; None: this client is not creating it."""
    creation = _creations.get((address, binary))
    return creation if creation is not None and creation.is_of(owner) else None


def remove(address: str, binary: bytes) -> None:
    """Remove an object, which is sealed or given up."""
    _creations.pop((address, binary), None)


def at(address: str) -> Iterator[tuple[bytes, Creation]]:
    """Yield what this process is creating in one store."""
    for (place, binary), creation in list(_creations.items()):
        if place == address:
            yield binary, creation


def give_up(address: str, owner: object) -> None:
    """Give up what a client is creating."""
    for binary, creation in at(address):
        if creation.is_of(owner):
            remove(address, binary)
            if creation.builder is not None:
                creation.builder.give_up()


def entry(creation: Creation) -> dict[str, Any]:
    """Return the entry of ``PlasmaClient.list``."""
    return {
        "data_size": creation.data_size,
        "metadata_size": len(creation.metadata),
        "ref_count": 1,
        "create_time": int(creation.created),
        "construct_duration": -1,
        "state": "created",
    }
