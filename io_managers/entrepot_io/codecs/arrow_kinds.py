"""Physical layouts of Arrow types."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pyarrow as pa
from entrepot.errors import UnsupportedType
from pyarrow import types


class Kind(Enum):
    """A layout: (name, has a validity buffer, bits of an offset or 0, holds bytes rather than children)."""

    NULL = ("null", False, 0, False)
    FIXED_WIDTH = ("fixed width", True, 0, False)
    BINARY = ("binary", True, 32, True)
    LARGE_BINARY = ("large binary", True, 64, True)
    VIEW = ("view", True, 0, True)
    LIST = ("list", True, 32, False)
    LARGE_LIST = ("large list", True, 64, False)
    LIST_VIEW = ("list view", True, 0, False)
    FIXED_LIST = ("fixed-size list", True, 0, False)
    STRUCT = ("struct", True, 0, False)
    SPARSE_UNION = ("sparse union", False, 0, False)
    DENSE_UNION = ("dense union", False, 0, False)
    DICTIONARY = ("dictionary", True, 0, False)
    RUN_END = ("run-end encoded", False, 0, False)
    EXTENSION = ("extension", False, 0, False)

    def __init__(self, label: str, has_validity: bool, offset_bits: int, is_binary: bool) -> None:
        self.label = label
        self.has_validity = has_validity
        self.offset_bits = offset_bits
        self.is_binary = is_binary

    def child_types(self, type_: Any) -> list[Any]:
        """The types of an array's children, for this layout and type."""
        if self in (Kind.STRUCT, Kind.SPARSE_UNION, Kind.DENSE_UNION):
            return [type_.field(index).type for index in range(type_.num_fields)]
        if types.is_map(type_):
            return [pa.struct([type_.key_field, type_.item_field])]
        if self in (Kind.LIST, Kind.LARGE_LIST, Kind.LIST_VIEW, Kind.FIXED_LIST):
            return [type_.value_type]
        if self is Kind.RUN_END:
            return [type_.run_end_type, type_.value_type]
        return []


def view_bits(type_: Any) -> int:
    """Width in bits of a list view's offsets and sizes."""
    return 64 if types.is_large_list_view(type_) else 32


def _classify(type_: Any) -> Kind:
    if isinstance(type_, pa.BaseExtensionType):
        return Kind.EXTENSION
    tests: list[tuple[Any, Kind]] = [
        (types.is_null, Kind.NULL),
        (types.is_dictionary, Kind.DICTIONARY),
        (types.is_string, Kind.BINARY),
        (types.is_binary, Kind.BINARY),
        (types.is_large_string, Kind.LARGE_BINARY),
        (types.is_large_binary, Kind.LARGE_BINARY),
        (types.is_string_view, Kind.VIEW),
        (types.is_binary_view, Kind.VIEW),
        (types.is_map, Kind.LIST),
        (types.is_list, Kind.LIST),
        (types.is_large_list, Kind.LARGE_LIST),
        (types.is_list_view, Kind.LIST_VIEW),
        (types.is_large_list_view, Kind.LIST_VIEW),
        (types.is_fixed_size_list, Kind.FIXED_LIST),
        (types.is_struct, Kind.STRUCT),
        (types.is_run_end_encoded, Kind.RUN_END),
    ]
    for test, kind in tests:
        if test(type_):
            return kind
    if types.is_union(type_):
        return Kind.SPARSE_UNION if type_.mode == "sparse" else Kind.DENSE_UNION
    try:
        width = type_.bit_width
    except ValueError:
        width = -1
    if width < 0:
        raise UnsupportedType(f"Arrow values of type {type_} have a layout that is not known here: allow pickling")
    return Kind.FIXED_WIDTH


_by_id: dict[int, Kind] = {}  # type id -> layout, where the id alone determines it


def kind_of(type_: Any) -> Kind:
    """The layout of a type.

    Raises:
        UnsupportedType: this version does not know the type.
    """
    kind = _by_id.get(type_.id)
    if kind is None:
        kind = _classify(type_)
        if kind not in (Kind.SPARSE_UNION, Kind.DENSE_UNION):
            _by_id[type_.id] = kind
    return kind
