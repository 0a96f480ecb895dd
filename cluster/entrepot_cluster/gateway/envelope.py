"""What travels with an object beside its bytes: its tree, the session it belongs to, and its lives.

The transport carries it where it has the object's tree, which it does not interpret.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import msgpack
from entrepot.errors import CorruptData
from entrepot.origins import Life

_FORMAT = 2


class Envelope(NamedTuple):
    """An object without its bytes and ID.

    Attributes:
        scope, session: where it belongs.
        names: bound to it there, in its session.
        lives: those that it is a copy of, and its life at the sender.
        tree: its packed tree.
        ttl_seconds: of its session; 0: without end.
        replicas: how many stores are to have it.
    """

    scope: str
    session: str
    names: tuple[str, ...]
    lives: tuple[Life, ...]
    tree: bytes
    ttl_seconds: int = 0
    replicas: int = 1

    def pack(self) -> bytes:
        """Serialize it."""
        return cast("bytes", msgpack.packb((_FORMAT, *self)))  # tuples are packed as lists

    @classmethod
    def unpack(cls, data: bytes) -> Envelope:
        """Read what :meth:`pack` wrote.

        Raises:
            CorruptData: it is something else.
        """
        try:
            version, *fields = msgpack.unpackb(data)
            if version != _FORMAT:
                raise ValueError(f"version {version!r}; both gateways have to be of the same version")
            scope, session, names, lives, tree, ttl_seconds, replicas = fields
            if not isinstance(scope, str) or not isinstance(session, str):
                raise TypeError("no session")
            if not isinstance(tree, bytes):
                raise TypeError("no tree")
            origins = tuple(Life(str(instance), int(generation)) for instance, generation in lives)
            return cls(scope, session, tuple(map(str, names)), origins, tree, int(ttl_seconds), int(replicas))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptData(f"an object arrived with a description that cannot be read: {error}") from error
