"""Physical layouts of Arrow types."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pyarrow as pa
from entrepot.errors import UnsupportedType
from pyarrow import types


class PhysicalLayout(Enum):
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
        if self in (PhysicalLayout.STRUCT, PhysicalLayout.SPARSE_UNION, PhysicalLayout.DENSE_UNION):
            return [type_.field(index).type for index in range(type_.num_fields)]
        if types.is_map(type_):
            return [pa.struct([type_.key_field, type_.item_field])]
        if self in (
            PhysicalLayout.LIST,
            PhysicalLayout.LARGE_LIST,
            PhysicalLayout.LIST_VIEW,
            PhysicalLayout.FIXED_LIST,
        ):
            return [type_.value_type]
        if self is PhysicalLayout.RUN_END:
            return [type_.run_end_type, type_.value_type]
        return []


def view_bits(type_: Any) -> int:
    """Width in bits of a list view's offsets and sizes."""
    return 64 if types.is_large_list_view(type_) else 32


def _classify(type_: Any) -> PhysicalLayout:
    if isinstance(type_, pa.BaseExtensionType):
        return PhysicalLayout.EXTENSION
    tests: list[tuple[Any, PhysicalLayout]] = [
        (types.is_null, PhysicalLayout.NULL),
        (types.is_dictionary, PhysicalLayout.DICTIONARY),
        (types.is_string, PhysicalLayout.BINARY),
        (types.is_binary, PhysicalLayout.BINARY),
        (types.is_large_string, PhysicalLayout.LARGE_BINARY),
        (types.is_large_binary, PhysicalLayout.LARGE_BINARY),
        (types.is_string_view, PhysicalLayout.VIEW),
        (types.is_binary_view, PhysicalLayout.VIEW),
        (types.is_map, PhysicalLayout.LIST),
        (types.is_list, PhysicalLayout.LIST),
        (types.is_large_list, PhysicalLayout.LARGE_LIST),
        (types.is_list_view, PhysicalLayout.LIST_VIEW),
        (types.is_large_list_view, PhysicalLayout.LIST_VIEW),
        (types.is_fixed_size_list, PhysicalLayout.FIXED_LIST),
        (types.is_struct, PhysicalLayout.STRUCT),
        (types.is_run_end_encoded, PhysicalLayout.RUN_END),
    ]
    for test, layout in tests:
        if test(type_):
            return layout
    if types.is_union(type_):
        return PhysicalLayout.SPARSE_UNION if type_.mode == "sparse" else PhysicalLayout.DENSE_UNION
    try:
        width = type_.bit_width
    except ValueError:
        width = -1
    if width < 0:
        raise UnsupportedType(f"Arrow values of type {type_} have an unsupported layout: allow pickling")
    return PhysicalLayout.FIXED_WIDTH


_by_id: dict[int, PhysicalLayout] = {}  # type id -> layout, where the id alone determines it


def physical_layout(type_: Any) -> PhysicalLayout:
    """The layout of a type.

    Raises:
        UnsupportedType: this version does not know the type.
    """
    layout = _by_id.get(type_.id)
    if layout is None:
        layout = _classify(type_)
        if layout not in (PhysicalLayout.SPARSE_UNION, PhysicalLayout.DENSE_UNION):
            _by_id[type_.id] = layout
    return layout
