"""The key of a decoded table: location and content of its files, and how they are read.

Each of the three becomes a digest; together they are the entry's name and, derived from it, its ID. The location comes
first, so that what was decoded from former content of the same files can be found and deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entrepot._readers.sources import FileSet, Identity
from entrepot.errors import InvalidArgument
from entrepot.ids import ObjectID

# One session for all scopes, whose tasks then share what they read. Sessions with this prefix are not published to a
# cluster.
SCOPE, SESSION = "entrepot", "entrepot.files"
_VERSION = 1  # to be raised when the same options come to mean another table
_DIGEST_BYTES = 16
_LABEL_BYTES = 120


@dataclass(frozen=True, slots=True)
class Entry:
    """Name of a decoded table in the cache's session.

    Attributes:
        location, identity, options: digests in hex.
        label: the file's name, for people.
    """

    location: str
    identity: str
    options: str
    label: str

    @property
    def name(self) -> str:
        return f"{self.location}/{self.identity}/{self.options} {self.label}"

    @property
    def id(self) -> ObjectID:
        return ObjectID.derive(SCOPE, SESSION, f"{self.location}/{self.identity}/{self.options}")

    @property
    def siblings(self) -> str:
        """Pattern that matches the names of all that was decoded from this location."""
        return f"{self.location}/*"

    def has_content_of(self, name: str) -> bool:
        """Return whether a name that matches ``siblings`` is of the same content."""
        return name.startswith(f"{self.location}/{self.identity}/")


def entry_of(files: FileSet, identity: Identity, options: Mapping[str, Any]) -> Entry:
    """Return the entry of files with this content, read with these options (:func:`canonical` values)."""
    text = json.dumps(canonical(options), sort_keys=True, ensure_ascii=True)
    return Entry(
        _digest(files.location),
        _digest(repr(identity.fields)),
        _digest(f"{_VERSION} {text}"),
        _label_of(files.location),
    )


def canonical(value: Any) -> Any:
    """Return the value as plain data that is equal exactly if the values mean the same to a decoder.

    Raises:
        InvalidArgument: nothing is known about values of this type.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return [type(value).__name__, repr(value)]  # 1, 1.0 and True are equal in Python, but not to a decoder
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, Mapping):
        return ["dict", sorted(([canonical(key), canonical(item)] for key, item in value.items()), key=json.dumps)]
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    plain = _canonical_arrow(value) if type(value).__module__.startswith("pyarrow") else None
    if plain is None:
        raise InvalidArgument(
            f"an option is {value!r} of type {type(value).__module__}.{type(value).__qualname__}, which cannot "
            "identify a cached table: read the file with pyarrow itself, and put the table"
        )
    return plain


def _canonical_arrow(value: Any) -> list[Any] | None:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    if isinstance(value, pa.DataType):
        return ["type", pa.schema([pa.field("", value)]).serialize().to_pybytes().hex()]
    if isinstance(value, pc.Expression):
        # What pickle stores. Its text would not do: it leaves out types, and the middle of long lists of values.
        _, (serialized,) = value.__reduce__()
        return ["expression", hashlib.sha256(serialized).hexdigest()]
    if value is csv.ISO8601:
        return ["ISO8601"]
    if not isinstance(value, (csv.ReadOptions, csv.ParseOptions, csv.ConvertOptions)):
        return None
    if getattr(value, "invalid_row_handler", None) is not None:
        raise InvalidArgument(
            "parse_options has a function as invalid_row_handler, which cannot identify a cached table: read the file "
            "with pyarrow itself, and put the table"
        )
    return [type(value).__qualname__, *([name, canonical(getattr(value, name))] for name in option_names(value))]


def option_names(value: Any) -> Sequence[str]:
    """Return the names of the options in an options object of Arrow, such as ``pyarrow.csv.ParseOptions``."""
    return [name for name in dir(value) if not name.startswith("_") and not callable(getattr(value, name))]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[: 2 * _DIGEST_BYTES]


def _label_of(location: str) -> str:
    name = location.rstrip("/").rpartition("/")[2].partition("\n")[0]
    return name.encode("utf-8", "replace")[:_LABEL_BYTES].decode("utf-8", "ignore")
