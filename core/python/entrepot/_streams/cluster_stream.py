"""Streams of a cluster: one stream on all hosts, which lives in one of their stores, its home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot._client.arguments import checked_boolean, checked_name
from entrepot._streams.cluster_ends import ClusterReader, ClusterWriter
from entrepot._streams.relays import Home, ask
from entrepot._streams.stream import Stream, StreamArguments
from entrepot.errors import InvalidArgument

if TYPE_CHECKING:
    from entrepot._collections.collection import Collection
    from entrepot._streams.reader import StreamReader
    from entrepot._streams.store_access import StreamStore
    from entrepot._streams.writer import StreamWriter


def open_cluster_stream(store: StreamStore, name: str, arguments: StreamArguments) -> Stream:
    """Open the cluster's stream of this name, here or where its home is; see ``Store.stream``.

    Raises:
        StoreUnavailable: this store has no gateway, or it or the home's does not answer.
        InstanceLost: the home is lost.
        DirectoryUnavailable: nobody knows where its home is.
        EntrepotError: as for ``Stream``.
    """
    request = {"do": "open", "name": checked_name(name), **arguments.checked()}
    while (answer := ask(store, request))["here"]:
        stream = HomeStream(store, name, arguments)
        if store._raw().generation_of(answer["record"]) is not None:  # it was not removed meanwhile
            return stream
    return ClusterStream(store, Home(*answer["home"]))


class HomeStream(Stream):
    """A stream of the cluster whose home is this store: an ordinary stream, which other hosts reach too."""

    __slots__ = ()

    def remove(self) -> None:
        """As :meth:`Stream.remove`; another store may be the home of the next stream of this name."""
        ask(self._store, {"do": "forget", "name": self.name})
        super().remove()


class ClusterStream(Stream):
    """A stream whose home is another store. States as of :class:`Stream`."""

    __slots__ = ("_home",)

    def __init__(self, store: StreamStore, home: Home) -> None:
        self._store = store
        self._home = home
        self._number = home.stream
        self.name = home.name
        self.capacity = home.capacity
        self.capacity_bytes = home.capacity_bytes or None
        self.writers = home.writers
        self.keep = home.keep

    def writer(self) -> StreamWriter:
        """As :meth:`Stream.writer`."""
        return ClusterWriter(self._store, self._home)

    def reader(self, group: str = "readers", *, late: bool = False) -> StreamReader:
        """As :meth:`Stream.reader`."""
        return ClusterReader(self._store, self._home, checked_name(group), checked_boolean("late", late))

    @property
    def ended(self) -> bool:
        """As :attr:`Stream.ended`."""
        return bool(self._ask("state")["ended"])

    def seal(self) -> Collection:
        """As :meth:`Stream.seal`: the collection is in the home's store, and its members are fetched as they are read.

        Raises:
            StoreUnavailable, InstanceLost: the home cannot be reached.
            InvalidArgument, NotSealed, StreamFailed, StreamLost and others: as :meth:`Stream.seal`.
        """
        if not self.keep:
            raise InvalidArgument(
                f"stream {self.name!r} was created without keep=True, so its chunks are deleted as they are consumed"
            )
        self._ask("seal")
        sealed: Collection = self._store.get_by_name(self.name, timeout=30)
        return sealed

    def remove(self) -> None:
        """As :meth:`Stream.remove`."""
        self._ask("remove")

    def _ask(self, what: str) -> dict[str, Any]:
        home = self._home
        return ask(self._store, {"do": what, "home": home.instance, "stream": home.stream, "name": home.name})
