"""Memory of the store for one object that is being built.

States::

    open ──seal──▶ ended: sealed, or refused by the daemon
      └──give_up, or the last reference dropped──▶ ended

A seal that fails for lack of memory leaves it open. In a forked child, the parent's memory cannot be used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from entrepot._client.arguments import MAX_REQUEST_BYTES
from entrepot._codecs.encoding import codec_registry
from entrepot.codec import Decoder, Encoder, pack_tree, unpack_tree
from entrepot.errors import InvalidArgument, NotSealed

if TYPE_CHECKING:
    from entrepot import _core
    from entrepot._client.info import PutResult

Seal = Callable[["_core.ObjectBuilder", Any], "PutResult"]
"""Seals a value, whose buffers may lie in the memory of the builder, under the ID and name that it knows."""


class ObjectMemory:
    """Memory that one object's parts are put into before it is sealed. Thread-safe.

    Args:
        client: returns the client, or raises ``StoreUnavailable``.
        seal: see :data:`Seal`.
        wait_seconds: how long each call waits for memory.
    """

    def __init__(self, client: Callable[[], _core.Client], seal: Seal, wait_seconds: float) -> None:
        self._client = client
        self._seal = seal
        self._wait_seconds = wait_seconds
        self._builder = client().builder()
        self._pid = os.getpid()

    @property
    def open(self) -> bool:
        """Whether parts can be added."""
        return self._builder.open

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that created it."""
        return os.getpid() != self._pid

    def check_usable(self) -> None:
        """Check that parts can be added, without waiting for anything.

        Raises:
            NotSealed: this process is a fork of the one that created it.
            InvalidArgument: it is sealed or given up.
        """
        if self.is_inherited:
            raise NotSealed(
                "the parent process was building this object when this process was forked: only the parent can "
                "continue; create a new builder here"
            )
        if not self._builder.open:
            raise InvalidArgument("this object is already sealed or dropped: create a new builder")

    def store(self, value: Any) -> Any:
        """Return an equal value whose buffers are in the store: copies, or bytes of sealed objects that it shares.

        Raises:
            StoreFull: not enough memory; nothing was added.
            UnsupportedType: no codec supports the value without pickle.
        """
        encoder = Encoder(codec_registry(), allow_pickle=False)
        tree = pack_tree(encoder.encode(value), encoder.inlined)
        sources = encoder.buffers
        copies = self._client().store(self._builder, sources, self._wait_seconds)
        stored = [source if copy is None else copy for source, copy in zip(sources, copies, strict=True)]
        return Decoder(codec_registry(), stored.__getitem__, len(stored), allow_pickle=False).decode(unpack_tree(tree))

    def allocate(self, nbytes: int) -> _core.WritableBlob:
        """Return memory to write until the seal, which makes it read-only.

        Raises:
            StoreFull: not enough memory.
        """
        return self._client().allocate(self._builder, min(nbytes, MAX_REQUEST_BYTES), self._wait_seconds)

    def seal(self, value: Any) -> PutResult:
        """Seal the value, as the object.

        Raises:
            StoreFull: not enough memory; it is still open.
            ObjectExists: its ID or name is taken; it has ended.
        """
        return self._seal(self._builder, value)

    def give_up(self) -> None:
        """Return the memory, unless it was sealed. Idempotent."""
        self._builder.give_up()
