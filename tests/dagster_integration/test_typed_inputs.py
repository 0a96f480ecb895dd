"""Inputs in the form that their annotation asks for, and what the pages show of outputs."""

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    DagsterInstance,
    MetadataValue,
    OutputContext,
    StaticPartitionsDefinition,
    TableSchemaMetadataValue,
    asset,
    materialize,
)
from entrepot.errors import InvalidArgument, ObjectLost, UnsupportedType
from entrepot_dagster import EntrepotIOManager, TypeHandler
from entrepot_io.connections import session_store

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}
PARTS = StaticPartitionsDefinition(["a", "b"])


@asset
def orders() -> pd.DataFrame:
    return pd.DataFrame({"n": np.arange(1000), "price": np.arange(1000) / 2})


@asset
def as_polars(orders: pl.DataFrame) -> int:
    assert isinstance(orders, pl.DataFrame)
    return orders.height


@asset
def as_lazy(orders: pl.LazyFrame) -> float:
    return float(orders.select(pl.col("price").sum()).collect().item())


@asset
def as_arrow(orders: pa.Table) -> int:
    assert isinstance(orders, pa.Table)
    return int(orders.num_rows)


@asset
def as_reader(orders: pa.RecordBatchReader) -> int:
    return sum(batch.num_rows for batch in orders)


@asset
def as_array(orders: np.ndarray) -> Any:
    return orders.shape


@asset(ins={"orders": AssetIn(metadata={"columns": ["price"]})})
def one_column(orders: pl.DataFrame) -> list[str]:
    return orders.columns


@asset(ins={"orders": AssetIn(metadata={"columns": ["cost"]})})
def no_column(orders: pl.DataFrame) -> None: ...


@asset(ins={"orders": AssetIn(metadata={"columns": "price"})})
def not_columns(orders: pl.DataFrame) -> None: ...


@asset(ins={"orders": AssetIn(metadata={"columns": ["n", "price", "n"]})})
def twice(orders: pl.DataFrame) -> None: ...


@asset
def text() -> str:
    return "x" * 10


@asset
def text_as_table(text: pa.Table) -> None: ...


def run(*assets: Any, instance: DagsterInstance, **arguments: Any) -> Any:
    selected = [assets[-1]]
    return materialize(list(assets), selection=selected, instance=instance, resources=IO, **arguments)


def test_tables_in_the_form_that_is_asked_for(instance: DagsterInstance) -> None:
    consumers = [as_polars, as_lazy, as_arrow, as_reader, as_array, one_column]
    result = materialize([orders, *consumers], instance=instance, resources=IO)
    values = [result.output_for_node(each.op.name) for each in consumers]
    assert values == [1000, 249_750.0, 1000, 1000, (1000, 2), ["price"]]


def test_what_has_no_such_form_fails_the_step(instance: DagsterInstance) -> None:
    materialize([orders, text], instance=instance, resources=IO)
    with pytest.raises(InvalidArgument, match="no column 'cost', only 'n', 'price'"):
        run(orders, no_column, instance=instance)
    with pytest.raises(InvalidArgument, match="'columns' must be a list of names, not 'price'"):
        run(orders, not_columns, instance=instance)
    with pytest.raises(InvalidArgument, match="has 'n' more than once"):
        run(orders, twice, instance=instance)
    with pytest.raises(UnsupportedType, match=r"a str cannot be read as pyarrow\.Table"):
        run(text, text_as_table, instance=instance)


@asset(partitions_def=PARTS)
def part(context: AssetExecutionContext) -> pa.Table:
    return pa.table({"n": [ord(context.partition_key)] * 10})


@asset
def one_table(part: pa.Table) -> list[int]:
    return [*sorted(set(part["n"].to_pylist())), part.num_rows, part["n"].num_chunks]


@asset
def one_lazy(part: pl.LazyFrame) -> int:
    return int(part.collect().height)


@asset
def by_partition(part: dict[str, pl.DataFrame]) -> dict[str, int]:
    return {key: frame.height for key, frame in part.items()}


def test_partitions_are_one_table_or_a_dictionary(instance: DagsterInstance) -> None:
    for key in ("a", "b"):
        assert materialize([part], partition_key=key, instance=instance, resources=IO).success
    assert run(part, one_table, instance=instance).output_for_node("one_table") == [97, 98, 20, 2]
    assert run(part, one_lazy, instance=instance).output_for_node("one_lazy") == 20
    assert run(part, by_partition, instance=instance).output_for_node("by_partition") == {"a": 10, "b": 10}


@asset
def perhaps(orders: Optional[pd.DataFrame]) -> str:  # noqa: UP045 - as users of older versions write it
    return "nothing" if orders is None else f"{len(orders)} rows"


def test_an_optional_input_that_was_never_written_is_none(instance: DagsterInstance) -> None:
    assert run(orders, perhaps, instance=instance).output_for_node("perhaps") == "nothing"
    materialize([orders], instance=instance, resources=IO)
    assert run(orders, perhaps, instance=instance).output_for_node("perhaps") == "1000 rows"
    event = instance.get_latest_materialization_event(AssetKey("orders"))
    assert event is not None
    assert event.asset_materialization is not None
    reference: Any = event.asset_materialization.metadata["entrepot/reference"].value
    store = session_store(None, reference["scope"], reference["session"], None)
    assert store.delete(reference["id"])
    with pytest.raises(ObjectLost):  # it was written: None would hide that it is lost
        run(orders, perhaps, instance=instance)


class Interval:
    """A type of the user's."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high


class Intervals(TypeHandler):
    """Makes an interval of a table."""

    types = (Interval,)

    def load(self, value: Any, annotation: type) -> Any:
        return annotation(int(value["n"].min()), int(value["n"].max()))


class OwnIOManager(EntrepotIOManager):
    """As users extend it."""

    def type_handlers(self) -> Sequence[TypeHandler]:
        return [Intervals()]

    def get_metadata(self, context: OutputContext, obj: Any) -> Mapping[str, MetadataValue[Any]]:
        return {"mine": MetadataValue.text(type(obj).__name__)}


@asset
def interval(orders: Interval) -> Any:
    return orders.low, orders.high


def test_types_and_metadata_of_the_user(instance: DagsterInstance) -> None:
    resources = {"io_manager": OwnIOManager()}
    result = materialize([orders, interval], instance=instance, resources=resources)
    assert result.output_for_node("interval") == (0, 999)
    assert metadata_of(instance, "orders")["mine"].value == "DataFrame"


def metadata_of(instance: DagsterInstance, name: str) -> Mapping[str, Any]:
    event = instance.get_latest_materialization_event(AssetKey(name))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization.metadata


def test_what_the_pages_show_of_a_table(instance: DagsterInstance) -> None:
    materialize([orders, text], instance=instance, resources=IO)
    metadata = metadata_of(instance, "orders")
    assert metadata["dagster/row_count"].value == 1000
    schema = metadata["dagster/column_schema"]
    assert isinstance(schema, TableSchemaMetadataValue)
    assert [(column.name, column.type) for column in schema.schema.columns] == [("n", "int64"), ("price", "float64")]
    assert metadata["entrepot/preview"].value.splitlines()[:3] == ["| n | price |", "| --- | --- |", "| 0 | 0.0 |"]
    assert "dagster/column_schema" not in metadata_of(instance, "text")
    materialize([orders], instance=instance, resources={"io_manager": EntrepotIOManager(preview_rows=0)})
    assert "entrepot/preview" not in metadata_of(instance, "orders")
    materialize([part], partition_key="a", instance=instance, resources=IO)
    assert metadata_of(instance, "part")["dagster/partition_row_count"].value == 10


# --- patterns of Dagster's library for Polars


@asset
def lazily(orders: pl.LazyFrame) -> pl.LazyFrame:
    return orders.filter(pl.col("n") < 10)


@asset
def eagerly(lazily: pl.DataFrame) -> int:
    return lazily.height


@asset
def as_stored(lazily: Any) -> str:
    return type(lazily).__name__


def test_a_lazy_output_is_stored_as_its_result(instance: DagsterInstance) -> None:
    result = materialize([orders, lazily, eagerly, as_stored], instance=instance, resources=IO)
    assert result.output_for_node("eagerly") == 10
    assert result.output_for_node("as_stored") == "DataFrame"
    event = instance.get_latest_materialization_event(AssetKey("lazily"))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["dagster/row_count"].value == 10


@asset
def nothing() -> pl.DataFrame | None:
    return None


@asset
def nothing_eagerly(nothing: pl.DataFrame | None) -> bool:
    return nothing is None


@asset
def nothing_lazily(nothing: Optional[pl.LazyFrame]) -> bool:  # noqa: UP045 - the other spelling
    return nothing is None


@asset
def nothing_required(nothing: pl.DataFrame) -> None: ...


def test_a_stored_none_is_one_where_the_input_is_optional(instance: DagsterInstance) -> None:
    result = materialize([nothing, nothing_eagerly, nothing_lazily], instance=instance, resources=IO)
    assert result.output_for_node("nothing_eagerly")
    assert result.output_for_node("nothing_lazily")
    with pytest.raises(UnsupportedType, match="a NoneType cannot be read as"):
        run(nothing, nothing_required, instance=instance)


@asset(partitions_def=PARTS, config_schema={"empty": bool})
def regions(context: AssetExecutionContext) -> pl.DataFrame | None:
    return None if context.op_execution_context.op_config["empty"] else pl.DataFrame({"region": [1]})


@asset
def present(regions: dict[str, pl.LazyFrame | None]) -> list[str]:
    assert all(isinstance(frame, pl.LazyFrame) for frame in regions.values())
    return sorted(regions)


def test_optional_partitions_are_left_out(instance: DagsterInstance) -> None:
    def make(partition: str, *, empty: bool) -> None:
        config = {"ops": {"regions": {"config": {"empty": empty}}}}
        run(regions, instance=instance, partition_key=partition, run_config=config)

    make("a", empty=False)
    assert run(regions, present, instance=instance).output_for_node("present") == ["a"]
    make("b", empty=True)
    assert run(regions, present, instance=instance).output_for_node("present") == ["a"]
    make("b", empty=False)
    assert run(regions, present, instance=instance).output_for_node("present") == ["a", "b"]


@asset
def tables() -> dict[str, pd.DataFrame]:
    return {"left": pd.DataFrame({"n": [1, 2]}), "right": pd.DataFrame({"n": [3]})}


@asset
def heights(tables: dict[str, pl.DataFrame]) -> dict[str, int]:
    return {name: table.height for name, table in tables.items()}


def test_a_dictionary_that_is_no_partitions_has_each_value_in_the_form(instance: DagsterInstance) -> None:
    result = materialize([tables, heights], instance=instance, resources=IO)
    assert result.output_for_node("heights") == {"left": 2, "right": 1}
