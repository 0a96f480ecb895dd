"""What is known of a collection, or of a part of one, without reading its members."""

from __future__ import annotations

from entrepot._collections.metadata import Contents, ValueTraits, collection_key
from entrepot._collections.positions import Positions
from entrepot.ids import ObjectID


class CollectionDescription:
    """Metadata of a sealed collection, or of a slice or selection of its members. Immutable.

    Args:
        contents: of the whole collection.
        positions: which of its members.
        digest: of the whole, if it is known already.
    """

    def __init__(self, contents: Contents, positions: Positions, digest: bytes | None) -> None:
        self._contents = contents
        self._positions = positions
        self._digest = digest

    @property
    def id(self) -> ObjectID:
        """ID of the collection; a slice or selection has the ID of the whole."""
        contents = self._contents
        return ObjectID.derive(contents.scope, contents.session, collection_key(contents.name))

    @property
    def name(self) -> str:
        """Name of the collection in the session where it was built."""
        return self._contents.name

    @property
    def ids(self) -> list[ObjectID]:
        """The members' IDs, in order."""
        return [self._contents.id_of(position) for position in self._positions]

    @property
    def nbytes(self) -> int:
        """Payload of all members in bytes."""
        if len(self._positions) == self._contents.count:
            return self._contents.nbytes
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Payload of each member in bytes."""
        return [self._contents.bytes_of(position) for position in self._positions]

    @property
    def rows(self) -> int | None:
        """Total number of rows of all tables, or of all tensors; None: the members have no rows."""
        counts = self.row_counts
        return None if counts is None else sum(counts)

    @property
    def row_counts(self) -> list[int] | None:
        """Number of rows of each member; None: they have none."""
        if self._contents.traits.rows is None:
            return None
        return [self._contents.rows_of(position) for position in self._positions]

    @property
    def type(self) -> str:
        """The members' type, such as ``"pyarrow.lib.Table"``; ``""`` if there are none."""
        return self._contents.traits.type

    @property
    def kind(self) -> str:
        """``"table"``, ``"tensor"`` or ``"value"``; determines which of the views below are available."""
        return self._contents.traits.kind

    @property
    def traits(self) -> ValueTraits:
        """Properties shared by all members, for code that reads them as one value."""
        return self._contents.traits

    @property
    def layout(self) -> str:
        """Structure shared by all members besides their type, as text: columns of tables, element type of tensors."""
        return self._contents.traits.layout

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """Shape of one row of a tensor; None: the members are not tensors, or their rows differ in shape."""
        return self._contents.traits.row_shape

    @property
    def digest(self) -> bytes:
        """Digest that identifies the contents; a slice has that of the whole."""
        if self._digest is None:
            self._digest = self._contents.digest()
        return self._digest

    @property
    def positions(self) -> Positions:
        """Positions of these members within the whole collection."""
        return self._positions

    @property
    def count_sealed(self) -> int:
        """Number of members of the whole collection."""
        return self._contents.count
