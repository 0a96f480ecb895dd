"""pandas indexes: a RangeIndex as three numbers, a MultiIndex as levels and codes, all others as their array."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import pandas as pd
from entrepot.codec import Decoder, Encoder, Node, default_registry, pack_tree, unpack_tree
from entrepot.errors import CorruptData, EntrepotError

from entrepot_io.codecs.pandas_arrays import ArrayCodec, decode_codes, decode_values, encode_values, values_of
from entrepot_io.codecs.pandas_labels import decode_freq, encode_freq
from entrepot_io.codecs.validation import CheckedCodec, child, damaged, fields

MAX_SHARED_BYTES = 16 << 10  # size of a packed index whose labels may be shared
SHARED_INDEXES = 64  # that are kept
# pandas' tables in which labels are found are not made for threads that run at the same time.
_GIL_ENABLED = bool(getattr(sys, "_is_gil_enabled", lambda: True)())


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
    return _checked_index(node, decoder.decode(node), length)


def decode_labels(node: Node, decoder: Decoder, length: int) -> Any:
    """Decode a child that must be an index of ``length`` column labels.

    Frames that have the same few labels of text share them, and the table in which pandas finds a label, as copies of
    one frame do: of many frames, most have the same columns, and to make both takes as long as the rest of a frame.
    Each has an index of its own, so that it may give it another name.
    """
    shared = _shared_labels(node)
    return _checked_index(node, decoder.decode(node) if shared is None else shared.view(), length)


def _checked_index(node: Node, index: Any, length: int | None) -> Any:
    if not isinstance(index, pd.Index):
        raise damaged(node, f"expected an index, found {type(index).__name__}")
    if length is not None and len(index) != length:
        raise damaged(node, f"expected {length} labels, found {len(index)}")
    return index


def _shared_labels(node: Node) -> Any:
    """Return the index that all frames with these labels have a view of; None: they share none."""
    if not _GIL_ENABLED or node.codec != IndexCodec.name or len(node.children) != 2:
        return None
    values = node.children[1]
    is_text = values.codec == ArrayCodec.name and isinstance(values.params, list) and values.params[:1] == ["text"]
    if not is_text or _has_buffers(node):
        return None
    tree = pack_tree(node)
    return _labels_of(tree) if len(tree) <= MAX_SHARED_BYTES else None


def _has_buffers(node: Node) -> bool:
    return bool(node.buffers) or any(map(_has_buffers, node.children))


@lru_cache(maxsize=SHARED_INDEXES)
def _labels_of(tree: bytes) -> Any:
    """Return the index that a packed tree without buffers describes; None if it may not be shared, or is damaged."""
    decoder = Decoder(default_registry(), _refuse_buffer, 0, allow_pickle=False)
    try:
        index: Any = decoder.decode(unpack_tree(tree))
    except EntrepotError:  # decoding it for a frame reports that, or may use pickle
        return None
    if not isinstance(index, pd.Index) or len(index) == 0:
        return None
    labels: Any = index.array
    try:
        labels[0] = labels[0]
    except ValueError:
        return index
    return None  # before pandas 3, who has an index can write to its labels


def _refuse_buffer(index: int) -> Any:
    raise CorruptData(f"labels in the tree refer to buffer {index}")
