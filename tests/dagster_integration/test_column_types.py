"""Types of columns through steps: what comes back in which form, what the pages say, and with which partitions."""

# Annotations are not postponed here: Dagster looks at those of assets.

import datetime as dt
from decimal import Decimal
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
    DagsterEventType,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    EnvVar,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    StaticPartitionsDefinition,
    TableColumnConstraints,
    TimeWindowPartitionMapping,
    asset,
    materialize,
)
from entrepot_dagster import EntrepotIOManager
from polars.testing import assert_frame_equal

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}
UTC = dt.timezone.utc

POLARS = pl.DataFrame(
    {
        "small": pl.Series([1, None, 3], dtype=pl.Int8),
        "unsigned": pl.Series([1, 2, 2**64 - 1], dtype=pl.UInt64),
        "half": pl.Series([0.5, None, float("nan")], dtype=pl.Float32),
        "flag": [True, None, False],
        "text": ["a", None, "日本"],
        "raw": [b"\x00", b"", None],
        "day": [dt.date(2026, 1, 1), None, dt.date(1, 1, 1)],
        "time": [dt.time(1, 2, 3), None, dt.time(0)],
        "instant": pl.Series(
            [dt.datetime(2026, 1, 1, tzinfo=UTC), None, None], dtype=pl.Datetime("ns", "Europe/Paris")
        ),
        "duration": pl.Series([dt.timedelta(days=1), None, None], dtype=pl.Duration("ms")),
        "price": pl.Series([Decimal("1.50"), None, Decimal("2.25")], dtype=pl.Decimal(10, 2)),
        "kind": pl.Series(["x", "y", None], dtype=pl.Categorical()),
        "size": pl.Series(["l", "s", "l"], dtype=pl.Enum(["s", "m", "l"])),
        "list": pl.Series([[1, 2], None, []], dtype=pl.List(pl.Int16)),
        "pair": pl.Series([[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int32, 2)),
        "record": pl.Series([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}]),
        "nothing": [None, None, None],
    }
)
PANDAS = pd.DataFrame(
    {
        "small": np.array([1, 2, 3], np.int8),
        "nullable": pd.array([1, None, 3], "Int64"),
        "flag": pd.array([True, None, False], "boolean"),
        "text": pd.Series(["a", None, "b"], dtype="str"),
        "objects": pd.Series(["a", None, "b"], dtype=object),
        "mixed": pd.Series([1, "a", None], dtype=object),
        "kind": pd.Categorical(["x", "y", "x"], categories=["y", "x", "z"], ordered=True),
        "instant": pd.date_range("2026-01-01", periods=3, tz="Europe/Paris"),
        "duration": pd.to_timedelta([1, 2, 3], unit="s"),
        "arrow": pd.Series([[1], None, [2, 3]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    }
)


@asset
def of_polars() -> pl.DataFrame:
    return POLARS


@asset
def polars_eagerly(of_polars: pl.DataFrame) -> None:
    assert_frame_equal(of_polars, POLARS)


@asset
def polars_lazily(of_polars: pl.LazyFrame) -> None:
    assert_frame_equal(of_polars.collect(), POLARS)


@asset
def polars_as_arrow(of_polars: pa.Table) -> None:
    assert of_polars.column_names == POLARS.columns
    back = pl.from_arrow(of_polars)
    assert isinstance(back, pl.DataFrame)
    assert_frame_equal(back, POLARS, check_dtypes=False, categorical_as_str=True)


@asset
def polars_as_pandas(of_polars: pd.DataFrame) -> None:
    assert list(of_polars.columns) == POLARS.columns
    assert of_polars["text"].tolist()[::2] == ["a", "日本"]
    assert str(of_polars["instant"].dtype) == "datetime64[ns, Europe/Paris]"


@asset(ins={"of_polars": AssetIn(metadata={"columns": ["record", "small"]})})
def some_columns(of_polars: pl.LazyFrame) -> None:
    assert_frame_equal(of_polars.collect(), POLARS.select("record", "small"))


@asset
def of_pandas() -> pd.DataFrame:
    return PANDAS


@asset
def pandas_as_stored(of_pandas: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(of_pandas, PANDAS)


def test_each_type_of_column(instance: DagsterInstance) -> None:
    consumers = [polars_eagerly, polars_lazily, polars_as_arrow, polars_as_pandas, some_columns, pandas_as_stored]
    assert materialize([of_polars, of_pandas, *consumers], instance=instance, resources=IO).success


@pytest.mark.parametrize(("name", "frame"), [("of_polars", POLARS), ("of_pandas", PANDAS)])
def test_the_pages_name_each_type(name: str, frame: Any, instance: DagsterInstance) -> None:
    assert materialize([of_polars if name == "of_polars" else of_pandas], instance=instance, resources=IO).success
    event = instance.get_latest_materialization_event(AssetKey(name))
    assert event is not None
    assert event.asset_materialization is not None
    schema: Any = event.asset_materialization.metadata["dagster/column_schema"]
    columns = {column.name: column.type for column in schema.schema.columns}
    types = frame.schema.items() if isinstance(frame, pl.DataFrame) else frame.dtypes.items()
    assert columns == {label: str(column_type) for label, column_type in types}
    assert all(column.constraints == TableColumnConstraints() for column in schema.schema.columns)


@asset
def no_rows() -> pl.DataFrame:
    return POLARS.clear()


@asset
def no_rows_again(no_rows: pl.LazyFrame) -> None:
    assert_frame_equal(no_rows.collect(), POLARS.clear())


@asset
def no_columns() -> pd.DataFrame:
    return pd.DataFrame()


@asset
def no_columns_again(no_columns: pl.DataFrame) -> list[int]:
    return list(no_columns.shape)


def test_empty_tables(instance: DagsterInstance) -> None:
    result = materialize([no_rows, no_rows_again, no_columns, no_columns_again], instance=instance, resources=IO)
    assert result.output_for_node("no_columns_again") == [0, 0]


DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
YESTERDAY = TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


@asset(partitions_def=DAYS, ins={"balance": AssetIn("balance", partition_mapping=YESTERDAY)})
def balance(context: AssetExecutionContext, balance: Optional[pl.LazyFrame]) -> pl.LazyFrame:  # noqa: UP045 - as users write it
    today = pl.LazyFrame({"day": [context.partition_key], "amount": [1]})
    return today if balance is None else pl.concat([balance, today])


def test_a_table_that_depends_on_its_own_last_partition(instance: DagsterInstance) -> None:
    for day in DAYS.get_partition_keys():
        assert materialize([balance], partition_key=day, instance=instance, resources=IO).success
    last: Any = Definitions(assets=[balance], resources=IO).load_asset_value(
        "balance", partition_key=DAYS.get_partition_keys()[-1], instance=instance
    )
    assert last["day"].to_list() == DAYS.get_partition_keys()


CELLS = MultiPartitionsDefinition({"day": DAYS, "region": StaticPartitionsDefinition(["eu", "us"])})


@asset(partitions_def=CELLS)
def cells(context: AssetExecutionContext) -> pl.DataFrame:
    keys: Any = context.partition_key
    return pl.DataFrame({"day": [keys.keys_by_dimension["day"]], "region": [keys.keys_by_dimension["region"]]})


@asset(partitions_def=DAYS)
def regions_of_a_day(cells: pl.DataFrame) -> Any:
    return sorted(cells.rows())


@asset
def all_cells(cells: dict[str, pl.LazyFrame]) -> list[str]:
    return sorted(f"{key}: {frame.collect().height}" for key, frame in cells.items())


def test_one_dimension_of_two_is_one_table(instance: DagsterInstance) -> None:
    days = DAYS.get_partition_keys()
    for day in days:
        for region in ("eu", "us"):
            key = MultiPartitionKey({"day": day, "region": region})
            assert materialize([cells], partition_key=key, instance=instance, resources=IO).success
    result = materialize(
        [cells, regions_of_a_day], selection=[regions_of_a_day], partition_key=days[1], instance=instance, resources=IO
    )
    assert result.output_for_node("regions_of_a_day") == [(days[1], "eu"), (days[1], "us")]
    result = materialize([cells, all_cells], selection=[all_cells], instance=instance, resources=IO)
    assert result.output_for_node("all_cells") == [f"{day}|{region}: 1" for day in days for region in ("eu", "us")]


def test_text_of_python_objects_in_the_form_that_each_io_manager_sets(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is for IO managers that do not set it; several in one process do not mix."""
    text = [f"value {number}" for number in range(20_000)]  # too many for a record

    @asset(io_manager_key="as_put")
    def stored() -> pd.DataFrame:
        return pd.DataFrame({"text": pd.Series(text, dtype=object)})

    @asset(ins={"stored": AssetIn(input_manager_key="as_arrow")})
    def as_arrow(stored: pd.DataFrame) -> str:
        assert isinstance(stored["text"].dtype, pd.StringDtype)
        return ",".join(stored["text"])

    @asset(ins={"stored": AssetIn(input_manager_key="as_put")})
    def as_put(stored: pd.DataFrame) -> str:
        assert stored["text"].dtype == object
        return ",".join(stored["text"])

    @asset(ins={"stored": AssetIn(input_manager_key="of_environment")})
    def of_environment(stored: pd.DataFrame) -> str:
        return str(stored["text"].dtype)

    monkeypatch.setenv("OF_THE_TEST", "arrow")
    monkeypatch.setenv("ENTREPOT_OBJECT_STRINGS", "arrow")
    resources = {
        **IO,
        "as_put": EntrepotIOManager(object_strings="object"),
        "as_arrow": EntrepotIOManager(object_strings=EnvVar("OF_THE_TEST")),
        "of_environment": EntrepotIOManager(),
    }
    run = materialize([stored, as_arrow, as_put, of_environment], resources=resources, instance=instance)
    assert run.output_for_node("as_arrow") == run.output_for_node("as_put") == ",".join(text)
    assert run.output_for_node("of_environment") != "object"
    (loaded,) = [
        event.event_specific_data
        for event in run.all_events
        if event.event_type is DagsterEventType.LOADED_INPUT and event.step_key == "as_arrow"
    ]
    assert getattr(loaded, "metadata", {})["entrepot/copied_bytes"].value == 0
