"""pandas Series and DataFrames.

A DataFrame stores columns of the same dtype together in two-dimensional *blocks*. Which columns share a block is
derived from their memory: columns of one dtype at equal distances in the memory of one array form one array, stored
once and restored as one block, without a copy on either side. Other columns, and those of extension dtypes, are stored
individually: also neighbours in memory that are arrays of their own, because each of them may be stored already, and
an array over several stored ones would have to be copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import CorruptData

from entrepot_io.codecs.numpy_arrays import address_of, decode_ndarray
from entrepot_io.codecs.pandas_arrays import decode_column, encode_values, values_of
from entrepot_io.codecs.pandas_index import decode_index, decode_labels
from entrepot_io.codecs.pandas_labels import encode_attributes, restore_attributes
from entrepot_io.codecs.validation import CheckedCodec, child, damaged, fields, size, sizes

# Since pandas 3, reordering the columns of whole blocks gives views; earlier versions copy.
_REORDERING_GIVES_VIEWS = int(pd.__version__.partition(".")[0]) >= 3


class SeriesCodec(CheckedCodec):
    """``pandas.Series``. params: number of rows; children: values, index, name, attributes."""

    name = "pandas.Series"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        children = [
            encode_values(values_of(value), encoder),
            encoder.encode(value.index),
            encoder.encode(value.name),
            encode_attributes(value, encoder),
        ]
        return Node(self.name, self.version, len(value), children=children)

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        rows = size(node, node.params)
        values = decode_column(child(node, 0), decoder, rows)
        index = decode_index(child(node, 1), decoder, rows)
        name = decoder.decode(child(node, 2))
        series = pd.Series(values, index=index, dtype=values.dtype, name=name, copy=False)
        restore_attributes(series, child(node, 3), decoder)
        return series


@dataclass
class _ColumnGroup:
    """Columns in one piece of memory."""

    first: np.ndarray[Any, Any]
    step: int  # bytes from one column to the next
    positions: list[int]
    next_address: int

    def block(self) -> np.ndarray[Any, Any]:
        """The columns as one array of shape (rows, columns)."""
        rows = len(self.first)
        if len(self.positions) == 1:
            return self.first.reshape(rows, 1)
        # All addresses belong to columns of the frame, which outlives the put.
        return np.lib.stride_tricks.as_strided(
            self.first, (rows, len(self.positions)), (self.first.strides[0], self.step), writeable=False
        )


def _owner(values: np.ndarray[Any, Any]) -> object:
    """The array, or other object, whose memory an array shows."""
    owner: Any = values
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


def _group_columns(columns: list[tuple[int, np.ndarray[Any, Any]]]) -> list[_ColumnGroup]:
    groups: list[_ColumnGroup] = []
    # (dtype, stride, identity of the owner) -> the group that may be extended. All owners outlive the put.
    open_groups: dict[tuple[Any, int, int], _ColumnGroup] = {}
    for position, values in columns:
        address, stride, item = address_of(values), values.strides[0], values.dtype.itemsize
        key = (values.dtype, stride, id(_owner(values)))
        group = open_groups.get(key)
        if group is not None and address == group.next_address and values.size:
            group.positions.append(position)
            group.next_address += group.step
            continue
        # Column-major: the next column begins where this one ends. Row-major: at the next item.
        step = len(values) * item if stride == item else item
        group = open_groups[key] = _ColumnGroup(values, step, [position], address + step)
        groups.append(group)
    return groups


def _only_block(frame: Any, rows: int, count: int) -> np.ndarray[Any, Any] | None:
    """The array of a frame that consists of one, of shape (rows, columns); None: it does not, or it has gaps.

    It is what grouping the columns leads to as well, without making an object of each column.
    """
    if rows == 0 or count < 2 or not all(isinstance(dtype, np.dtype) for dtype in frame.dtypes.to_numpy()):
        return None
    row = frame.iloc[:1]
    once, twice = row.to_numpy(), row.to_numpy()
    # Of several arrays, pandas makes a new one each time; these two exist at the same time.
    if once.dtype.hasobject or address_of(once) != address_of(twice):
        return None
    block: np.ndarray[Any, Any] = frame.to_numpy()
    item, stride = block.dtype.itemsize, block.strides[0]
    if block.shape != (rows, count) or block.strides[1] != (rows * item if stride == item else item):
        return None
    return block


class DataFrameCodec(CheckedCodec):
    """``pandas.DataFrame``.

    params: [rows, columns, positions of each block's columns, positions of the columns stored individually]; children:
    index, column labels, attributes, the blocks, the individual columns.
    """

    name = "pandas.DataFrame"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        rows, count = value.shape
        labels = [encoder.encode(value.index), encoder.encode(value.columns), encode_attributes(value, encoder)]
        only = _only_block(value, rows, count)
        if only is not None:
            params: list[Any] = [rows, count, [list(range(count))], []]
            return Node(self.name, self.version, params, children=[*labels, encoder.encode(only)])
        dense: list[tuple[int, np.ndarray[Any, Any]]] = []
        singles: list[tuple[int, Any]] = []
        for position in range(count):
            values = values_of(value.iloc[:, position])
            if isinstance(values, np.ndarray) and not values.dtype.hasobject:
                dense.append((position, values))
            else:
                singles.append((position, values))
        groups = _group_columns(dense)
        children = [*labels, *(encoder.encode(group.block()) for group in groups)]
        children += [encode_values(values, encoder) for _, values in singles]
        params = [rows, count, [group.positions for group in groups], [position for position, _ in singles]]
        return Node(self.name, self.version, params, children=children)

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        raw_rows, raw_count, raw_blocks, raw_singles = fields(node, 4)
        rows, count = size(node, raw_rows), size(node, raw_count)
        if not isinstance(raw_blocks, list):
            raise damaged(node, "its blocks are not a list")
        positions = [sizes(node, item) for item in raw_blocks]
        single_positions = sizes(node, raw_singles)
        order = [position for block in positions for position in block] + single_positions
        if len(order) != count or sorted(order) != list(range(count)):
            raise damaged(node, f"its blocks do not form {count} columns")
        index = decode_index(child(node, 0), decoder, rows)
        columns = decode_labels(child(node, 1), decoder, count)
        blocks = [
            self._block(child(node, 3 + number), decoder, rows, len(block)) for number, block in enumerate(positions)
        ]
        singles = [
            decode_column(child(node, 3 + len(blocks) + number), decoder, rows)
            for number in range(len(single_positions))
        ]
        frame = self._assemble(index, list(zip(positions, blocks, strict=True)), single_positions, singles)
        frame.columns = columns
        restore_attributes(frame, child(node, 2), decoder)
        return frame

    def _block(self, node: Node, decoder: Decoder, rows: int, columns: int) -> np.ndarray[Any, Any]:
        block = decode_ndarray(node, decoder)
        if block.shape != (rows, columns) or not columns:
            raise CorruptData(f"a block of a DataFrame has shape {block.shape}, expected {(rows, columns)}")
        return block

    def _assemble(
        self,
        index: Any,
        blocks: list[tuple[list[int], np.ndarray[Any, Any]]],
        single_positions: list[int],
        singles: list[Any],
    ) -> Any:
        wide = [(positions, block) for positions, block in blocks if len(positions) > 1]
        narrow: dict[int, Any] = {
            positions[0]: pd.Series(block[:, 0], index=index, copy=False)
            for positions, block in blocks
            if len(positions) == 1
        }
        for position, values in zip(single_positions, singles, strict=True):
            narrow[position] = pd.Series(values, index=index, dtype=values.dtype, copy=False)
        if len(wide) == 1 and not narrow:
            return pd.DataFrame(wide[0][1], index=index, copy=False)
        order = [position for positions, _ in wide for position in positions] + sorted(narrow)
        in_order = order == sorted(order)
        if not wide or not (in_order or _REORDERING_GIVES_VIEWS):
            for positions, block in wide:
                for number, position in enumerate(positions):
                    narrow[position] = pd.Series(block[:, number], index=index, copy=False)
            return pd.DataFrame({position: narrow[position] for position in sorted(narrow)}, index=index, copy=False)
        frames = [pd.DataFrame(block, index=index, columns=positions, copy=False) for positions, block in wide]
        if narrow:
            frames.append(pd.DataFrame({key: narrow[key] for key in sorted(narrow)}, index=index, copy=False))
        options: dict[str, Any] = {} if _REORDERING_GIVES_VIEWS else {"copy": False}
        joined: Any = pd.concat(frames, axis=1, **options)
        if in_order:
            return joined
        return joined.iloc[:, np.argsort(np.array(order, dtype=np.intp), kind="stable")]
