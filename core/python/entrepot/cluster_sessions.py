"""Cluster sessions: what is put in them is published, so that the other stores of the cluster find it by its ID."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import msgpack

from entrepot.errors import CorruptData
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._client.shared_client import SharedClient

DECLARATION_KEY = "entrepot.cluster"
MAX_REPLICAS = 100


@dataclass(frozen=True, slots=True)
class ClusterSession:
    """Declaration of a cluster session.

    Attributes:
        replicas: on how many hosts each object is to be, its own included, as far as there are so many.
    """

    replicas: int = 1

    def to_bytes(self) -> bytes:
        """Serialize the declaration for storage in the session."""
        return cast("bytes", msgpack.packb([self.replicas]))


def cluster_session(client: SharedClient, scope: str, session: str) -> ClusterSession | None:
    """Return a session's declaration, whichever process made it. Reads shared memory only, never asks the daemon.

    Raises:
        CorruptData: the declaration cannot be read.
    """
    data = client.raw.get_small(ObjectID.derive(scope, session, DECLARATION_KEY).binary)
    if data is None:
        return None
    try:
        return ClusterSession(int(msgpack.unpackb(data)[0]))
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise CorruptData(f"the declaration of a cluster session cannot be read: {error}") from error
