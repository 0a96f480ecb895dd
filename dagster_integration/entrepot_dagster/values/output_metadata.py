"""What Dagster's pages show of an output: its reference, and of a table columns, rows and the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster import JsonMetadataValue, MetadataValue, TableColumn, TableColumnConstraints, TableSchema
from entrepot_io.reference import Reference
from entrepot_io.table_info import table_info

from entrepot_dagster.values.reference_log import REFERENCE, REFERENCES

Metadata = dict[str, MetadataValue[Any]]


def reference_metadata(reference: Reference) -> Metadata:
    """What a reference says.

    Args:
        reference: to the output.
    """
    metadata: Metadata = {
        "entrepot/id": MetadataValue.text(str(reference.id)),
        "entrepot/type": MetadataValue.text(reference.type),
        "entrepot/bytes": MetadataValue.int(reference.nbytes),
        REFERENCE: JsonMetadataValue(reference.to_dict()),
    }
    if reference.shape is not None:
        metadata["entrepot/shape"] = MetadataValue.text(" x ".join(map(str, reference.shape)))
    return metadata


def partitions_metadata(references: Mapping[str, Reference]) -> Metadata:
    """What references to the partitions of one output say.

    Args:
        references: by partition key.
    """
    return {
        "entrepot/bytes": MetadataValue.int(sum(reference.nbytes for reference in references.values())),
        REFERENCES: JsonMetadataValue({partition: each.to_dict() for partition, each in references.items()}),
    }


def table_metadata(value: Any, preview_rows: int, *, is_partition: bool, with_rows: bool = True) -> Metadata:
    """What a table has in Dagster's own names; nothing if the value is no table.

    Args:
        value: the output.
        preview_rows: how many of its first rows are kept in Dagster's database.
        is_partition: whether it is one partition of an asset.
        with_rows: whether the number of rows is said.
    """
    info = table_info(value, preview_rows)
    if info is None:
        return {}
    columns = [
        TableColumn(column.name, column.type, constraints=TableColumnConstraints(nullable=column.nullable))
        for column in info.columns
    ]
    metadata: Metadata = {"dagster/column_schema": MetadataValue.table_schema(TableSchema(columns))}
    if with_rows and info.rows is not None:
        metadata["dagster/partition_row_count" if is_partition else "dagster/row_count"] = MetadataValue.int(info.rows)
    if info.head:
        metadata["entrepot/preview"] = MetadataValue.md(info.head_markdown())
    return metadata
