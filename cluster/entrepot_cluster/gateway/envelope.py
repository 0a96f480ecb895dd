"""What travels with an object beside its bytes: its tree, the session it belongs to, and its lives.

The transport carries it where it has the object's tree, which it does not interpret.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgpack
from entrepot.errors import CorruptData
from entrepot.origins import Life

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Envelope:
    """An object without its bytes and ID.

    Attributes:
        scope, session: where it belongs.
        names: bound to it there, in its session.
        lives: those that it is a copy of, and its life at the sender.
        tree: its packed tree.
    """

    scope: str
    session: str
    names: tuple[str, ...]
    lives: tuple[Life, ...]
    tree: bytes

    def pack(self) -> bytes:
        """Serialize it."""
        lives = [list(life) for life in self.lives]
        fields = [_FORMAT, self.scope, self.session, list(self.names), lives, self.tree]
        return cast("bytes", msgpack.packb(fields))

    @classmethod
    def unpack(cls, data: bytes) -> Envelope:
        """Read what :meth:`pack` wrote.

        Raises:
            CorruptData: it is something else.
        """
        try:
            version, scope, session, names, lives, tree = msgpack.unpackb(data)
            if version != _FORMAT or not isinstance(scope, str) or not isinstance(session, str):
                raise ValueError(f"version {version!r}")
            if not isinstance(tree, bytes):
                raise TypeError("no tree")
            origins = tuple(Life(str(instance), int(generation)) for instance, generation in lives)
            return cls(scope, session, tuple(map(str, names)), origins, tree)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptData(f"an object arrived with a description that cannot be read: {error}") from error
