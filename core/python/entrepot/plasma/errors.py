"""The errors of pyarrow's module ``plasma``, with their former base classes; each is also one of Entrepot's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.errors import ObjectExists, ObjectNotFound, StoreFull, UnsupportedType

if TYPE_CHECKING:

    class _ArrowException(Exception): ...

    class _ArrowSerializationError(_ArrowException): ...

else:
    try:
        from pyarrow.lib import ArrowException as _ArrowException
        from pyarrow.lib import ArrowSerializationError as _ArrowSerializationError
    except ImportError:  # without pyarrow, nobody can expect its errors
        _ArrowException = _ArrowSerializationError = Exception


class PlasmaObjectExists(ObjectExists, _ArrowException):
    """An object with this ID is in the store, or is being created by this process."""


class PlasmaObjectNotFound(ObjectNotFound, _ArrowException):
    """No object with this ID is in the store, or is being created by this client."""


class PlasmaStoreFull(StoreFull, _ArrowException):
    """The object does not fit into the store, or exceeds the client's quota."""


class PlasmaSerializationError(UnsupportedType, _ArrowSerializationError):
    """A value cannot be pickled, or an object's data is not a value that ``put`` of this module wrote."""
