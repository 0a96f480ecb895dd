"""Lists in the form that an input's annotation asks for: outputs fanned in or collected, and stored lists; readers."""

# Annotations are not postponed here: Dagster looks at those of ops.

from collections.abc import Callable, Iterator, Sequence
from typing import Any, List, Optional  # noqa: UP035 - as users of older versions write it

import dagster
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import (
    DagsterEventType,
    DagsterInstance,
    DynamicOut,
    DynamicOutput,
    ExecuteInProcessResult,
    In,
    OpDefinition,
    asset,
    graph,
    materialize,
    op,
)
from entrepot.errors import InvalidArgument, UnsupportedType
from entrepot_dagster import EntrepotIOManager

pytestmark = pytest.mark.usefixtures("own_store")

ROWS = 10_000  # in memory of the store, not in messages
IO = {"io_manager": EntrepotIOManager()}


@op
def first() -> pd.DataFrame:
    return pd.DataFrame({"n": np.arange(ROWS), "price": np.arange(ROWS) / 2})


@op
def second() -> pl.DataFrame:
    return pl.DataFrame({"n": np.arange(ROWS), "price": np.arange(ROWS) / 4})


@op
def nothing() -> Any:
    return None


def reads(annotation: Any, **options: Any) -> OpDefinition:
    """An op that reads a list, and returns its elements' types and columns."""

    def read(parts: Any) -> Any:
        assert type(parts) is list
        return [(type(part), list(getattr(part, "columns", []))) for part in parts]

    read.__annotations__ = {"parts": annotation, "return": Any}
    return op(**options)(read) if options else op(read)


def run(reader: OpDefinition, *makers: OpDefinition) -> ExecuteInProcessResult:
    @graph
    def fanned_in() -> None:
        reader([maker.alias(f"part_{number}")() for number, maker in enumerate(makers)])

    return fanned_in.to_job(resource_defs=IO).execute_in_process()


@pytest.mark.parametrize(
    "annotation",
    [
        list[pl.DataFrame],
        List[pl.DataFrame],  # noqa: UP006
        pytest.param(
            Sequence[pl.DataFrame],
            marks=pytest.mark.skipif(dagster.__version__.startswith("1.11."), reason="that Dagster takes lists only"),
        ),
    ],
)
def test_each_element_is_converted(annotation: Any) -> None:
    result = run(reads(annotation), first, second)
    assert result.output_for_node("read") == [(pl.DataFrame, ["n", "price"])] * 2
    copied = [
        event.event_specific_data.metadata["entrepot/copied_bytes"].value  # type: ignore[union-attr]
        for event in result.all_events
        if event.event_type is DagsterEventType.LOADED_INPUT
    ]
    assert copied == [0, 0]


def test_columns_of_each_element() -> None:
    result = run(reads(list[pa.Table], ins={"parts": In(metadata={"columns": ["price"]})}), first, second)
    assert [kind for kind, _ in result.output_for_node("read")] == [pa.Table] * 2
    with pytest.raises(InvalidArgument, match="no column 'cost'"):
        run(reads(list[pa.Table], ins={"parts": In(metadata={"columns": ["cost"]})}), first, second)


def test_elements_that_may_be_none() -> None:
    result = run(reads(list[Optional[pd.DataFrame]]), second, nothing)  # noqa: UP045 - the other spelling
    assert [kind for kind, _ in result.output_for_node("read")] == [pd.DataFrame, type(None)]
    with pytest.raises(UnsupportedType, match="a NoneType cannot be read as"):
        run(reads(list[pd.DataFrame]), second, nothing)


def test_other_lists_are_left_alone() -> None:
    result = run(reads(list[Any]), first, second)
    assert [kind for kind, _ in result.output_for_node("read")] == [pd.DataFrame, pl.DataFrame]


@op(out=DynamicOut())
def split() -> Iterator[Any]:
    for number in range(3):
        yield DynamicOutput(pd.DataFrame({"n": [number]}), mapping_key=f"part_{number}")


@op
def add_up(parts: list[pl.LazyFrame]) -> int:
    return int(pl.concat(parts).select(pl.col("n").sum()).collect().item())


def test_collected_outputs() -> None:
    @graph
    def mapped() -> None:
        add_up(split().collect())

    assert mapped.to_job(resource_defs=IO).execute_in_process().output_for_node("add_up") == 3


@asset
def tables() -> list[pd.DataFrame]:
    return [pd.DataFrame({"n": [1, 2]}), pd.DataFrame({"n": [3]})]


@asset
def heights(tables: list[pl.DataFrame]) -> list[int]:
    return [table.height for table in tables]


def test_a_stored_list(instance: DagsterInstance) -> None:
    result = materialize([tables, heights], instance=instance, resources=IO)
    assert result.output_for_node("heights") == [2, 1]


TABLE = pa.table({"n": [1, 2, 3]})


@pytest.mark.parametrize("make", [TABLE.to_reader, lambda: TABLE.to_reader(max_chunksize=1)], ids=["one", "three"])
def test_a_reader_that_a_step_returns_is_stored_as_its_rows(
    make: Callable[[], pa.RecordBatchReader], instance: DagsterInstance
) -> None:
    @asset
    def batches() -> pa.RecordBatchReader:
        return make()

    @asset
    def rows(batches: pa.Table) -> int:
        return int(batches.num_rows)

    result = materialize([batches, rows], instance=instance, resources=IO)
    assert result.output_for_node("rows") == 3
    event = instance.get_latest_materialization_event(batches.key)
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.metadata["dagster/row_count"].value == 3
