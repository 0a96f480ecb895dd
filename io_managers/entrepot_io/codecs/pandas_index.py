"""pandas indexes: a RangeIndex as three numbers, a MultiIndex as levels and codes, all others as their array."""

from __future__ import annotations

from typing import Any

import pandas as pd
from entrepot.codec import Decoder, Encoder, Node

from entrepot_io.codecs.pandas_arrays import decode_codes, decode_values, encode_values, values_of
from entrepot_io.codecs.pandas_labels import decode_freq, encode_freq
from entrepot_io.codecs.validation import CheckedCodec, child, damaged, fields


class IndexCodec(CheckedCodec):
    """``pandas.Index`` and its subclasses. params: [kind, details]; the first child holds the names."""

    name = "pandas.Index"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        index: Any = value
        names = encoder.encode(list(index.names))
        if isinstance(value, pd.RangeIndex):
            return Node(self.name, self.version, ["range", [value.start, value.stop, value.step]], children=[names])
        if isinstance(value, pd.MultiIndex):
            levels = [encoder.encode(level) for level in value.levels]
            codes = [encoder.encode(item) for item in value.codes]
            details = [len(levels), index.sortorder]
            return Node(self.name, self.version, ["multi", details], children=[names, *levels, *codes])
        children = [names, encode_values(values_of(value), encoder)]
        freq = getattr(value, "freq", None) if isinstance(value, (pd.DatetimeIndex, pd.TimedeltaIndex)) else None
        if freq is not None:
            children.append(encode_freq(freq, encoder))
        return Node(self.name, self.version, ["array", type(value).__name__], children=children)

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        kind, details = fields(node, 2)
        names = decoder.decode(child(node, 0))
        if not isinstance(names, list):
            raise damaged(node, "its names are not a list")
        if kind == "range":
            start, stop, step = details
            index: Any = pd.RangeIndex(start, stop, step)
        elif kind == "multi":
            index = self._multi(node, decoder, details)
        elif kind == "array":
            values = decode_values(child(node, 1), decoder)
            index = pd.Index(values, dtype=values.dtype, copy=False)
            if len(node.children) > 2:
                index.freq = decode_freq(node.children[2], decoder)
            if type(index).__name__ != details:
                raise damaged(node, f"it describes a {details}, but its values form a {type(index).__name__}")
        else:
            raise damaged(node, f"unknown kind of index {kind!r}")
        index.names = names
        return index

    def _multi(self, node: Node, decoder: Decoder, details: Any) -> Any:
        count, sortorder = details
        if type(count) is not int or len(node.children) != 1 + 2 * count:
            raise damaged(node, "its levels and codes do not match")
        levels = [decoder.decode(item) for item in node.children[1 : 1 + count]]
        if not all(isinstance(level, pd.Index) for level in levels):
            raise damaged(node, "a level is not an index")
        # Check every code here, reading each once; pandas' own check would also hash the levels.
        codes = [
            decode_codes(item, decoder, len(level))
            for item, level in zip(node.children[1 + count :], levels, strict=True)
        ]
        if len({len(item) for item in codes}) > 1:
            raise damaged(node, "its codes have different lengths")
        return pd.MultiIndex(levels=levels, codes=codes, sortorder=sortorder, copy=False, verify_integrity=False)


def decode_index(node: Node, decoder: Decoder, length: int | None = None) -> Any:
    """Decode a child that must be an index, of ``length`` labels if given."""
    index = decoder.decode(node)
    if not isinstance(index, pd.Index):
        raise damaged(node, f"expected an index, found {type(index).__name__}")
    if length is not None and len(index) != length:
        raise damaged(node, f"expected {length} labels, found {len(index)}")
    return index
