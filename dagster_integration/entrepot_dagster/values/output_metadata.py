"""What Dagster's pages show of an output: its reference, and of a table columns, rows and the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dagster import JsonMetadataValue, MetadataValue, TableColumn, TableColumnConstraints, TableConstraints, TableSchema
from entrepot_io.reference import Reference

from entrepot_dagster.values.output_facts import Fact, memory_facts, partitions_facts, reference_facts, table_facts

Metadata = dict[str, MetadataValue[Any]]


def reference_metadata(reference: Reference) -> Metadata:
    """What a reference says.

    Args:
        reference: to the output.
    """
    return _metadata(reference_facts(reference))


def partitions_metadata(references: Mapping[str, Reference]) -> Metadata:
    """What references to the partitions of one output say.

    Args:
        references: by partition key.
    """
    return _metadata(partitions_facts(references))


def memory_metadata(references: Iterable[Reference], address: str | None) -> Metadata:
    """What the store says of an output's memory.

    Args:
        references: to the output, or to each of its partitions.
        address: of the store.
    """
    return _metadata(memory_facts(references, address))


def table_metadata(value: Any, preview_rows: int, *, is_partition: bool, with_rows: bool = True) -> Metadata:
    """What a table has in Dagster's own names; nothing if the value is no table.

    Args:
        value: the output.
        preview_rows: how many of its first rows are kept in Dagster's database.
        is_partition: whether it is one partition of an asset.
        with_rows: whether the number of rows is said.
    """
    return _metadata(table_facts(value, preview_rows, is_partition=is_partition, with_rows=with_rows))


def _metadata(facts: Mapping[str, Fact]) -> Metadata:
    return {name: _VALUES[fact.type](fact.value) for name, fact in facts.items()}


def _table_schema(value: Any) -> MetadataValue[Any]:
    columns = [
        TableColumn(column["name"], column["type"], constraints=TableColumnConstraints(**column["constraints"]))
        for column in value["columns"]
    ]
    of_table = value.get("constraints")
    return MetadataValue.table_schema(
        TableSchema(columns, None if of_table is None else TableConstraints(other=of_table["other"]))
    )


_VALUES: dict[str, Callable[[Any], MetadataValue[Any]]] = {
    "text": MetadataValue.text,
    "int": MetadataValue.int,
    "md": MetadataValue.md,
    "json": JsonMetadataValue,
    "table_schema": _table_schema,
}
