"""What Dagster's pages show of an output, by name: the type of metadata and its raw value, without Dagster.

A process that Dagster Pipes has started, where Dagster may not be installed, reports the same as the IO manager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from entrepot.errors import EntrepotError
from entrepot_io.connections import session_store
from entrepot_io.keys import object_name
from entrepot_io.reference import Reference
from entrepot_io.table_info import TableInfo, table_info

log = logging.getLogger("dagster.entrepot")
CHECKPOINT = "entrepot/checkpoint"
MAX_SCHEMA_COLUMNS = 1000  # of a table, in Dagster's database and on its pages
REFERENCE = "entrepot/reference"
REFERENCES = "entrepot/references"  # of an output with several partitions: a mapping by partition key


class Fact(NamedTuple):
    """A metadata entry.

    Attributes:
        type: ``text``, ``int``, ``json``, ``md`` or ``table_schema``, as Dagster Pipes calls them.
        value: its raw value.
    """

    type: str
    value: Any


def reference_facts(reference: Reference) -> dict[str, Fact]:
    """What a reference says.

    Args:
        reference: to the output.
    """
    facts = {
        "entrepot/id": Fact("text", str(reference.id)),
        "entrepot/type": Fact("text", reference.type),
        "entrepot/bytes": Fact("int", reference.nbytes),
        "entrepot/host": Fact("text", reference.host),
        REFERENCE: Fact("json", reference.to_dict()),
    }
    if reference.shape is not None:
        facts["entrepot/shape"] = Fact("text", " x ".join(map(str, reference.shape)))
    return facts


def partitions_facts(references: Mapping[str, Reference]) -> dict[str, Fact]:
    """What references to the partitions of one output say.

    Args:
        references: by partition key.
    """
    return {
        "entrepot/bytes": Fact("int", sum(reference.nbytes for reference in references.values())),
        REFERENCES: Fact("json", {partition: each.to_dict() for partition, each in references.items()}),
    }


def memory_facts(references: Iterable[Reference], address: str | None) -> dict[str, Fact]:
    """What the store says of an output's memory: how many bytes are its own, how many it shares with older objects.

    In a durable session, also where the durable copy is. Nothing, and a line in the log, if the store cannot be asked:
    the output is stored already.

    Args:
        references: to the output, or to each of its partitions.
        address: of the store.
    """
    own = shared = 0
    checkpoint: str | None = None
    try:
        for reference in references:
            store = session_store(address, reference.scope, reference.session, None)
            info = store.info(reference.id)
            # A small value is in its record, and has no memory that could be shared.
            own, shared = own + (info.own_bytes if info.blobs else info.nbytes), shared + info.referenced_bytes
            durable = store.durable
            if durable is not None and durable.covers("" if reference.key is None else object_name(reference.key)):
                state = "written to" if durable.mode == "through" else "written in the background to"
                checkpoint = f"{state} {durable.url} (durable session)"
    except EntrepotError as error:
        log.info("Entrepot: an output is stored, but its metadata have no sizes of its memory: %s", error)
        return {}
    facts = {"entrepot/own_bytes": Fact("int", own), "entrepot/referenced_bytes": Fact("int", shared)}
    if checkpoint is not None:
        facts[CHECKPOINT] = Fact("text", checkpoint)
    return facts


def table_facts(value: Any, preview_rows: int, *, is_partition: bool, with_rows: bool = True) -> dict[str, Fact]:
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
    facts = {"dagster/column_schema": Fact("table_schema", _schema(info))}
    if with_rows and info.rows is not None:
        facts["dagster/partition_row_count" if is_partition else "dagster/row_count"] = Fact("int", info.rows)
    if info.head:
        facts["entrepot/preview"] = Fact("md", info.head_markdown())
    return facts


def _schema(info: TableInfo) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "columns": [
            {"name": column.name, "type": column.type, "constraints": {"nullable": column.nullable}}
            for column in info.columns[:MAX_SCHEMA_COLUMNS]
        ]
    }
    if len(info.columns) > MAX_SCHEMA_COLUMNS:
        left_out = f"the first {MAX_SCHEMA_COLUMNS} of {len(info.columns)} columns"
        schema["constraints"] = {"other": [left_out]}
    return schema
