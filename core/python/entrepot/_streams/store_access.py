"""Interface of the store that a stream needs; :class:`entrepot.Store` implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from entrepot import _core
from entrepot._client.arguments import AnyID
from entrepot.codec import AllowPickle, CopyMode, ObjectStrings
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot._collections.builder import CollectionBuilder


class StreamStore(Protocol):
    """The methods of ``Store`` of the same names; its own modules may call those that begin with an underscore."""

    @property
    def scope(self) -> str: ...
    @property
    def session_name(self) -> str: ...
    @property
    def _session_number(self) -> int: ...
    @property
    def _allow_pickle(self) -> AllowPickle: ...
    @property
    def _object_strings(self) -> ObjectStrings: ...
    def collection(self, name: str) -> CollectionBuilder: ...
    def get(self, oid: AnyID, *, timeout: float | None = 0, copy: CopyMode = "never") -> Any: ...
    def _raw(self) -> _core.Client: ...
    def _item(self, value: Any, oid: ObjectID, fresh: bool, name: str = "", replace: bool = False) -> _core.Item: ...
