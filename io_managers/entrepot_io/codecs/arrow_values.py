"""Codecs of Arrow values: buffers are shared unchanged, chunk by chunk (see ``arrow_arrays``)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from entrepot.codec import Decoder, Encoder, Node
from entrepot.errors import UnsupportedType

from entrepot_io.codecs.arrow_arrays import ArrayReader, ArrayWriter, worth_trimming
from entrepot_io.codecs.arrow_schema import describe_schema, describe_type, restore_schema, restore_type
from entrepot_io.codecs.validation import CheckedCodec, damaged, fields, size


class BufferCodec(CheckedCodec):
    """``pyarrow.Buffer`` (a ``ResizableBuffer`` is restored as a plain one). params: inline bytes or None."""

    name = "arrow.buffer"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        if not value.is_cpu:
            raise UnsupportedType("the Arrow buffer is in device memory: copy it to the CPU first")
        if value.size == 0:
            return Node(self.name, self.version, b"")
        return Node(self.name, self.version, None, [encoder.add_buffer(value, value.address)])

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        if isinstance(node.params, bytes):
            return pa.py_buffer(node.params)
        if not node.buffers:
            raise damaged(node, "it has no buffer")
        return pa.py_buffer(decoder.buffer(node.buffers[0]))


class DataTypeCodec(CheckedCodec):
    """``pyarrow.DataType``: params are the schema of one field."""

    name = "arrow.type"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        return Node(self.name, self.version, describe_type(value))

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        return restore_type(node, node.params)


class FieldCodec(CheckedCodec):
    """``pyarrow.Field``: params are the schema of one field."""

    name = "arrow.field"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        return Node(self.name, self.version, describe_schema(pa.schema([value])))

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        schema = restore_schema(node, node.params)
        if len(schema) != 1:
            raise damaged(node, f"its schema has {len(schema)} fields, expected one")
        return schema.field(0)


class SchemaCodec(CheckedCodec):
    """``pyarrow.Schema``."""

    name = "arrow.schema"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        return Node(self.name, self.version, describe_schema(value))

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        return restore_schema(node, node.params)


class ArrayCodec(CheckedCodec):
    """``pyarrow.Array`` of every type. params: [type, description]."""

    name = "arrow.array"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        node = Node(self.name, self.version)
        described = ArrayWriter(encoder, node).write(value, trim=worth_trimming(value))
        node.params = [describe_type(value.type), described]
        return node

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        described_type, described = fields(node, 2)
        return ArrayReader(node, decoder).read(restore_type(node, described_type), described)


class ScalarCodec(ArrayCodec):
    """``pyarrow.Scalar``, as an array of one element."""

    name = "arrow.scalar"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        try:
            if isinstance(value, pa.ExtensionScalar):
                array = pa.ExtensionArray.from_storage(value.type, pa.repeat(value.value, 1))
            else:
                array = pa.repeat(value, 1)
        except (pa.ArrowException, AttributeError, TypeError) as error:
            raise UnsupportedType(
                f"an Arrow scalar of type {value.type} cannot be stored in an array ({error}): put an array, or allow "
                "pickling"
            ) from error
        if array.type != value.type or type(array[0]) is not type(value):
            raise UnsupportedType(
                f"an Arrow scalar of type {value.type} changes its type in an array: put an array instead"
            )
        return super().encode(array, encoder)

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        array = super().rebuild(node, decoder)
        if len(array) != 1:
            raise damaged(node, f"it has {len(array)} values, expected one")
        return array[0]


class ChunkedArrayCodec(CheckedCodec):
    """``pyarrow.ChunkedArray``, chunk by chunk. params: [type, descriptions]."""

    name = "arrow.chunked_array"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        node = Node(self.name, self.version)
        node.params = [describe_type(value.type), _describe_chunks(ArrayWriter(encoder, node), value)]
        return node

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        described_type, described = fields(node, 2)
        return _read_chunks(node, ArrayReader(node, decoder), restore_type(node, described_type), described)


class RecordBatchCodec(CheckedCodec):
    """``pyarrow.RecordBatch``. params: [schema, rows, descriptions]."""

    name = "arrow.record_batch"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        node = Node(self.name, self.version)
        writer = ArrayWriter(encoder, node)
        columns = [writer.write(column, trim=worth_trimming(column)) for column in value.columns]
        node.params = [describe_schema(value.schema), value.num_rows, columns]
        return node

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        described_schema, raw_rows, columns = fields(node, 3)
        schema, rows = restore_schema(node, described_schema), size(node, raw_rows)
        reader = ArrayReader(node, decoder)
        if not isinstance(columns, list) or len(columns) != len(schema):
            raise damaged(node, "its columns do not match its schema")
        if not columns:
            return _batch_without_columns(schema, rows)
        arrays = [reader.read(field.type, item) for field, item in zip(schema, columns, strict=True)]
        if any(len(array) != rows for array in arrays):
            raise damaged(node, f"its columns do not all have {rows} rows")
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class TableCodec(CheckedCodec):
    """``pyarrow.Table``, chunk by chunk, including schema metadata. params: [schema, rows, descriptions by column]."""

    name = "arrow.table"

    def encode(self, value: Any, encoder: Encoder) -> Node:
        node = Node(self.name, self.version)
        writer = ArrayWriter(encoder, node)
        columns = [_describe_chunks(writer, column) for column in value.columns]
        node.params = [describe_schema(value.schema), value.num_rows, columns]
        return node

    def rebuild(self, node: Node, decoder: Decoder) -> Any:
        described_schema, raw_rows, columns = fields(node, 3)
        schema, rows = restore_schema(node, described_schema), size(node, raw_rows)
        reader = ArrayReader(node, decoder)
        if not isinstance(columns, list) or len(columns) != len(schema):
            raise damaged(node, "its columns do not match its schema")
        if not columns:
            return pa.Table.from_batches([_batch_without_columns(schema, rows)])
        chunked = [_read_chunks(node, reader, field.type, item) for field, item in zip(schema, columns, strict=True)]
        if any(len(column) != rows for column in chunked):
            raise damaged(node, f"its columns do not all have {rows} rows")
        return pa.Table.from_arrays(chunked, schema=schema)


def _describe_chunks(writer: ArrayWriter, column: Any) -> list[Any]:
    trim = worth_trimming(column)
    return [writer.write(chunk, trim=trim) for chunk in column.chunks]


def _read_chunks(node: Node, reader: ArrayReader, type_: Any, described: Any) -> Any:
    if not isinstance(described, list):
        raise damaged(node, "a column is not a list of chunks")
    chunks = [reader.read(type_, item) for item in described]
    return pa.chunked_array(chunks, type=type_)


def _batch_without_columns(schema: Any, rows: int) -> Any:
    rows_only = pa.Array.from_buffers(pa.struct([]), rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(rows_only).replace_schema_metadata(schema.metadata)
