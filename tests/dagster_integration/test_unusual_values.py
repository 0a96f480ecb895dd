"""Values that libraries handle in their own ways: none fails a step because it is displayed, counted or converted."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    AssetsDefinition,
    DagsterInstance,
    StaticPartitionsDefinition,
    asset,
    materialize,
)
from entrepot.errors import UnsupportedType
from entrepot_dagster import EntrepotIOManager

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}
DAYS = StaticPartitionsDefinition(["mon", "tue", "wed"])


class NoText:
    """A value whose text raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no text today")


def asset_of(value: Any) -> AssetsDefinition:
    @asset
    def made() -> Any:
        return value

    return made


def passed_on(value: Any, annotation: Any, instance: DagsterInstance, **of_input: Any) -> tuple[Any, Any, Any]:
    """What a step gets of a value, with the metadata of the output and of the input."""
    got: list[Any] = []

    def reader(made: Any) -> None:
        got.append(made)

    reader.__annotations__ = {"made": annotation, "return": None}
    read = asset(reader, ins={"made": AssetIn(metadata=of_input)}) if of_input else asset(reader)
    result = materialize([asset_of(value), read], instance=instance, resources=IO)
    (written,) = result.asset_materializations_for_node("made")
    loaded = [event for event in result.all_events if event.event_type_value == "LOADED_INPUT"]
    return got[0], written.metadata, loaded[0].event_specific_data.metadata  # type: ignore[union-attr]


OVER = 2**62
SHOWN: dict[str, tuple[Any, str]] = {
    "arrow": (pa.table({"t": pa.array([OVER], pa.timestamp("us")), "n": [7]}), "out of range"),
    "arrow, nested": (pa.table({"t": pa.array([[OVER]], pa.list_(pa.timestamp("us"))), "n": [7]}), "out of range"),
    "arrow, no such zone": (pa.table({"t": pa.array([1], pa.timestamp("us", "Mars/Phobos")), "n": [7]}), "1970-01-01"),
    "polars": (pl.DataFrame({"t": pl.Series([2**30], dtype=pl.Int32).cast(pl.Date), "n": [7]}), "out of range"),
    "pandas": (pd.DataFrame({"t": [10**5000], "n": [7]}), "not shown: ValueError"),
    "pandas, pickled": (pd.DataFrame({"t": [NoText()], "n": [7]}), "not shown: RuntimeError: no text today"),
}


@pytest.mark.parametrize(("value", "text"), SHOWN.values(), ids=SHOWN)
def test_a_cell_that_cannot_be_shown_fails_no_step(value: Any, text: str, instance: DagsterInstance) -> None:
    got, written, _ = passed_on(value, Any, instance)
    assert type(got) is type(value)
    preview = written["entrepot/preview"].value
    assert text in preview
    assert preview.endswith("| 7 |")


def test_a_name_of_a_megabyte_is_cut_in_the_event_log(instance: DagsterInstance) -> None:
    got, written, _ = passed_on(pl.DataFrame({"c" * 1_000_000: [1]}), Any, instance)
    assert len(got.columns[0]) == 1_000_000
    assert len(repr(written)) < 10_000


WIDE = pl.DataFrame({"n": [2**100, -1], "s": ["x", "y"]}, schema_overrides={"n": pl.Int128})


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (WIDE, Any),
        (WIDE, pl.DataFrame),
        (WIDE, pl.LazyFrame),
        ([WIDE, WIDE], Any),
        ({"a": WIDE}, dict[str, pl.DataFrame]),
    ],
    ids=["frame", "annotated", "lazy", "list", "dict"],
)
def test_memory_that_cannot_be_counted_is_left_out(value: Any, annotation: Any, instance: DagsterInstance) -> None:
    got, _, loaded = passed_on(value, annotation, instance)
    while isinstance(got, (list, dict)):
        got = next(iter(got.values() if isinstance(got, dict) else got))
    assert got.lazy().collect().equals(WIDE)
    assert "entrepot/copied_bytes" not in loaded


def test_a_masked_array_keeps_its_mask(instance: DagsterInstance) -> None:
    masked = np.ma.MaskedArray([1, 2, 3], mask=[False, True, False])
    got, _, _ = passed_on(masked, np.ndarray, instance)
    assert isinstance(got, np.ma.MaskedArray)
    assert got.tolist() == [1, None, 3]


def test_labels_of_pandas_that_are_numbers(instance: DagsterInstance) -> None:
    frame = pd.DataFrame([[1, 2, 3]], columns=[10, 20, 30])
    got, _, _ = passed_on(frame, pd.DataFrame, instance, columns=[30, 10])
    assert got.to_dict("list") == {30: [3], 10: [1]}


def test_arrays_of_no_elements_fail_the_step_that_writes_them(instance: DagsterInstance) -> None:
    empty = pl.DataFrame({"e": pl.Series([[], []], dtype=pl.Array(pl.Int64, 0))})
    with pytest.raises(UnsupportedType, match="an Array of no elements"):
        materialize([asset_of(empty)], instance=instance, resources=IO)


def of_days(*values: Any) -> AssetsDefinition:
    @asset(partitions_def=DAYS)
    def sales(context: AssetExecutionContext) -> Any:
        return dict(zip(DAYS.get_partition_keys(), values, strict=False))[context.partition_key]

    return sales


def all_days(annotation: Any, instance: DagsterInstance, *values: Any) -> Any:
    """What a step gets of several partitions."""
    sales = of_days(*values)
    for day, _ in zip(DAYS.get_partition_keys(), values, strict=False):
        materialize([sales], partition_key=day, instance=instance, resources=IO)
    got: list[Any] = []

    def week(sales: Any) -> None:
        got.append(sales)

    week.__annotations__ = {"sales": annotation, "return": None}
    read = asset(week, ins={"sales": AssetIn(metadata={"allow_missing_partitions": True})})
    materialize([sales, read], selection=[AssetKey("week")], instance=instance, resources=IO)
    return got[0]


def lists(value: Any) -> dict[str, list[Any]]:
    if isinstance(value, pa.RecordBatchReader):
        value = value.read_all()
    if isinstance(value, (pl.DataFrame, pl.LazyFrame)):
        return value.lazy().collect().to_dict(as_series=False)
    if isinstance(value, pd.DataFrame):
        return {str(name): [None if pd.isna(each) else each for each in column] for name, column in value.items()}
    return value.to_pydict()  # type: ignore[no-any-return]


@pytest.mark.parametrize("annotation", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.Table, pa.RecordBatchReader])
def test_types_that_drift_from_day_to_day(annotation: Any, instance: DagsterInstance) -> None:
    """A value is missing on one day, all texts on another, whose columns are in another order."""
    got = all_days(
        annotation,
        instance,
        pd.DataFrame({"n": [1, 2], "s": ["x", "y"]}),
        pd.DataFrame({"n": [3, np.nan], "s": ["z", None]}),
        pl.DataFrame({"s": [None], "n": [4]}),
    )
    assert lists(got) == {"n": [1, 2, 3, None, 4], "s": ["x", "y", "z", None, None]}


def test_plans_of_equal_schemas_stay_plans(instance: DagsterInstance) -> None:
    frames = [pl.DataFrame({"n": [number], "s": ["x"]}) for number in range(3)]
    plan = all_days(pl.LazyFrame, instance, *frames)
    assert plan.collect().equals(pl.concat(frames))


@pytest.mark.parametrize("annotation", [pl.DataFrame, pl.LazyFrame, pd.DataFrame])
def test_what_is_no_table_of_one_kind_is_said(annotation: Any, instance: DagsterInstance) -> None:
    remedy = r"annotate the input with dict\[str, (Data|Lazy)Frame\]"
    types = "the column 'n' of the asset sales is int64 in the partition mon and .*string in the partition wed"
    with pytest.raises(UnsupportedType, match=f"{types}.*{remedy}"):
        all_days(annotation, instance, *(pl.DataFrame({"n": each}) for each in ([1], [2], ["x"])))
    with pytest.raises(UnsupportedType, match=f"the partition tue of the asset sales: a NoneType cannot .*{remedy}"):
        all_days(annotation, instance, pl.DataFrame({"n": [1]}), None)
