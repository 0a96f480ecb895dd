"""Outputs with several partitions that are one table, as steps return it whose assets are in a database."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import (
    AssetKey,
    AssetsDefinition,
    BackfillPolicy,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    DynamicPartitionsDefinition,
    FilesystemIOManager,
    HourlyPartitionsDefinition,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    OutputContext,
    StaticPartitionsDefinition,
    asset,
    build_output_context,
    materialize,
)
from entrepot.errors import InvalidArgument
from entrepot_dagster import EntrepotIOManager, TieredIOManager
from entrepot_dagster.values.partition_tables import split_by_partition
from partition_contexts import needs_partition_contexts

pytestmark = pytest.mark.usefixtures("own_store")

IO = {"io_manager": EntrepotIOManager()}
REGIONS = StaticPartitionsDefinition(["north", "south", "west"])
DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
BOTH = MultiPartitionsDefinition({"day": DAYS, "region": REGIONS})
DYNAMIC = DynamicPartitionsDefinition(name="shops")


def table_asset(partitions: Any, expression: Any, make: Callable[[], Any]) -> AssetsDefinition:
    metadata = {} if expression is None else {"partition_expr": expression}

    @asset(partitions_def=partitions, backfill_policy=BackfillPolicy.single_run(), metadata=metadata)
    def sales() -> Any:
        return make()

    return sales


def backfill(sales: AssetsDefinition, first: str, last: str, instance: DagsterInstance, **resources: Any) -> Any:
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return materialize([sales], instance=instance, resources=resources or IO, tags=tags)


def stored(sales: AssetsDefinition, instance: DagsterInstance, *keys: str) -> dict[str, pl.DataFrame]:
    """Partitions of the asset, by key."""
    defs = Definitions(assets=[sales], resources=IO)
    frames: dict[str, Any] = {
        key: defs.load_asset_value("sales", python_type=pl.DataFrame, instance=instance, partition_key=key)
        for key in keys
    }
    return frames


COLUMNS = {"region": ["west", "north", "north", "south", "west"], "n": [5, 1, 2, 3, 4]}
TABLES = {
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas categories": lambda: pd.DataFrame(COLUMNS).astype({"region": "category"}),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars, lazy": lambda: pl.LazyFrame(COLUMNS),
    "arrow": lambda: pa.table(COLUMNS),
    "arrow, in chunks": lambda: pa.concat_tables([pa.table(COLUMNS).slice(0, 2), pa.table(COLUMNS).slice(2)]),
    "arrow, read once": lambda: pa.table(COLUMNS).to_reader(),
}


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in TABLES.items()])
def test_each_partition_gets_its_rows(make: Callable[[], Any], instance: DagsterInstance) -> None:
    sales = table_asset(REGIONS, "region", make)
    assert backfill(sales, "north", "west", instance).success
    numbers = {key: frame["n"].to_list() for key, frame in stored(sales, instance, "north", "south", "west").items()}
    assert numbers == {"north": [1, 2], "south": [3], "west": [5, 4]}, "in the order that the table had"
    records = instance.fetch_materializations(AssetKey("sales"), limit=10).records
    assert {record.partition_key for record in records} == set(numbers)


def test_a_partition_without_rows_is_empty(instance: DagsterInstance) -> None:
    north = pl.DataFrame({"region": ["north"], "n": [1]})
    sales = table_asset(REGIONS, "region", lambda: north)
    assert backfill(sales, "north", "south", instance).success
    heights = {key: frame.height for key, frame in stored(sales, instance, "north", "south").items()}
    assert heights == {"north": 1, "south": 0}


DATES = [dt.date(2026, 1, 3), dt.date(2026, 1, 1), dt.date(2026, 1, 2)]
MOMENTS = [dt.datetime(2026, 1, 3, 23, 59, 59, 999_999), dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2, 12)]
TIMES: dict[str, Any] = {
    "dates": pl.Series(DATES),
    "text": pl.Series(["2026-01-03", "2026-01-01", "2026-01-02T12:00:00"]),
    "microseconds": pl.Series(MOMENTS, dtype=pl.Datetime("us")),
    "nanoseconds": pl.Series(MOMENTS, dtype=pl.Datetime("ns")),
    "another zone": pl.Series(MOMENTS).dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_windows_of_time(times: pl.Series, instance: DagsterInstance) -> None:
    sales = table_asset(DAYS, "t", lambda: pl.DataFrame({"t": times, "n": [3, 1, 2]}))
    assert backfill(sales, "2026-01-01", "2026-01-03", instance).success
    frames = stored(sales, instance, "2026-01-01", "2026-01-02", "2026-01-03")
    assert [frame["n"].to_list() for frame in frames.values()] == [[1], [2], [3]]


BERLIN = HourlyPartitionsDefinition("2026-10-24-22:00", end_date="2026-10-25-06:00", timezone="Europe/Berlin")
CHANGE = pl.datetime_range(dt.datetime(2026, 10, 24, 22), dt.datetime(2026, 10, 25, 1), "1h", eager=True)


def test_an_hour_that_is_there_twice(instance: DagsterInstance) -> None:
    """The clock is put back at one o'clock in UTC."""
    keys = BERLIN.get_partition_keys()[2:6]
    in_utc = CHANGE.dt.replace_time_zone("UTC")
    sales = table_asset(BERLIN, "t", lambda: pl.DataFrame({"t": in_utc, "n": range(4)}))
    assert backfill(sales, keys[0], keys[-1], instance).success
    assert [frame["n"].to_list() for frame in stored(sales, instance, *keys).values()] == [[0], [1], [2], [3]]
    local = in_utc.dt.convert_time_zone("Europe/Berlin").dt.replace_time_zone(None)
    ambiguous = table_asset(BERLIN, "t", lambda: pl.DataFrame({"t": local}))
    with pytest.raises(InvalidArgument, match="the clock was put back in these partitions: use times with a time zone"):
        backfill(ambiguous, keys[0], keys[-1], instance)


def test_two_dimensions(instance: DagsterInstance) -> None:
    rows = {"on": ["2026-01-02", "2026-01-01", "2026-01-02"], "place": ["south", "south", "north"], "n": [1, 2, 3]}
    sales = table_asset(BOTH, {"day": "on", "region": "place"}, lambda: pa.table(rows))
    assert backfill(sales, "2026-01-01|north", "2026-01-02|south", instance).success
    keys = [MultiPartitionKey({"day": f"2026-01-0{day}", "region": part}) for day in (1, 2) for part in PLACES]
    frames = stored(sales, instance, *keys)
    assert [frame["n"].to_list() for frame in frames.values()] == [[], [2], [3], [1]]


PLACES = ("north", "south")


def test_partitions_that_are_added_while_dagster_runs(instance: DagsterInstance) -> None:
    """Their keys are text, whatever the column's type is."""
    instance.add_dynamic_partitions("shops", ["7", "11"])
    sales = table_asset(DYNAMIC, "shop", lambda: pd.DataFrame({"shop": [11, 7, 11], "n": [1, 2, 3]}))
    assert backfill(sales, "7", "11", instance).success
    assert [frame["n"].to_list() for frame in stored(sales, instance, "7", "11").values()] == [[2], [1, 3]]


def of_regions(expression: Any, regions: list[Any]) -> AssetsDefinition:
    return table_asset(REGIONS, expression, lambda: pl.DataFrame({"region": regions}))


REFUSED = [
    (
        of_regions("region", ["north", "east", None]),
        r"row 1 of .* sales, and 1 more: .*, it belongs to none of the 3 partitions",
    ),
    (of_regions("CAST(region AS TEXT)", ["north"]), r"'CAST\(region AS TEXT\)' is no column of it, only 'region'"),
    (of_regions({"region": "region"}, ["north"]), r"\{'region': 'region'\} is no column of it"),
    (of_regions("region", [["north"]]), "the column 'region', whose values name no partitions of Static"),
    (
        of_regions(None, ["north"]),
        "return a dictionary with the value of each of north, south, west, .*; or name the column .* in the output's "
        "metadata partition_expr; or run",
    ),
]


@pytest.mark.parametrize(("sales", "message"), REFUSED)
def test_what_cannot_be_told_apart_is_refused(sales: AssetsDefinition, message: str, instance: DagsterInstance) -> None:
    with pytest.raises(InvalidArgument, match=message):
        backfill(sales, "north", "west", instance)
    assert instance.fetch_materializations(AssetKey("sales"), limit=1).records == []


def test_text_that_is_no_date_is_said_with_its_column(instance: DagsterInstance) -> None:
    sales = table_asset(DAYS, "t", lambda: pl.DataFrame({"t": ["2026-01-01", "some day"]}))
    message = r"partition_expr of sales is the column 't', whose values name no partitions of Daily.*'some day'"
    with pytest.raises(InvalidArgument, match=message):
        backfill(sales, "2026-01-01", "2026-01-03", instance)


def test_times_that_are_none(instance: DagsterInstance) -> None:
    sales = table_asset(DAYS, "t", lambda: pl.DataFrame({"t": ["yesterday"]}))
    with pytest.raises(InvalidArgument, match=r"column 't', whose values name no partitions of Daily.*'yesterday'"):
        backfill(sales, "2026-01-01", "2026-01-03", instance)
    sales = table_asset(BOTH, "t", lambda: pl.DataFrame({"t": ["2026-01-01"]}))
    with pytest.raises(InvalidArgument, match=r"must name a column for each of day, region, not 't'"):
        backfill(sales, "2026-01-01|north", "2026-01-02|south", instance)


def test_one_partition_is_the_whole_table(instance: DagsterInstance) -> None:
    """As in a database, to which a run of one partition writes what it has."""
    sales = table_asset(REGIONS, "region", lambda: pl.DataFrame({"region": ["north", "east"]}))
    assert materialize([sales], partition_key="north", instance=instance, resources=IO).success
    assert stored(sales, instance, "north")["north"].height == 2


@pytest.mark.parametrize("make", [TABLES["pandas"], TABLES["polars, lazy"]], ids=["pandas", "lazy"])
def test_both_tiers_have_each_partition(make: Callable[[], Any], instance: DagsterInstance, tmp_path: Path) -> None:
    files = FilesystemIOManager(base_dir=str(tmp_path / "assets"))
    tiers = TieredIOManager(store=EntrepotIOManager(), durable=files)
    sales = table_asset(REGIONS, "region", make)
    assert backfill(sales, "north", "west", instance, io_manager=tiers).success
    assert stored(sales, instance, "south")["south"]["n"].to_list() == [3]
    south = pickle.loads((tmp_path / "assets/sales/south").read_bytes())
    assert list((south.collect() if isinstance(south, pl.LazyFrame) else south)["n"]) == [3]


@needs_partition_contexts
def test_rows_in_the_order_of_the_partitions_are_not_copied() -> None:
    table = pa.table({"day": np.repeat([f"2026-01-0{day}" for day in (1, 2, 3)], 1000), "n": np.arange(3000)})
    context = build_output_context(
        asset_key=AssetKey("sales"),
        partition_key="2026-01-01",
        asset_partitions_def=DAYS,
        definition_metadata={"partition_expr": "day"},
    )
    days = split_by_partition(SeveralPartitions(context, DAYS.get_partition_keys()), table)
    assert [(key, part["n"][0].as_py()) for key, part in days.items()] == [
        ("2026-01-01", 0),
        ("2026-01-02", 1000),
        ("2026-01-03", 2000),
    ]
    addresses = {part["n"].chunk(0).buffers()[1].address for part in days.values()}
    assert addresses == {table["n"].chunk(0).buffers()[1].address}


@needs_partition_contexts
def test_keys_of_two_dimensions_as_text_and_in_any_order() -> None:
    context = build_output_context(
        asset_key=AssetKey("sales"),
        partition_key="2026-01-01|north",
        asset_partitions_def=BOTH,
        definition_metadata={"partition_expr": {"day": "on", "region": "place"}},
    )
    table = pl.DataFrame({"on": [dt.date(2026, 1, 1), dt.date(2026, 1, 2)], "place": ["south", "north"]})
    keys = ["2026-01-02|north", "2026-01-01|south"]
    parts = split_by_partition(SeveralPartitions(context, keys), table)
    assert [(key, part["place"].to_list()) for key, part in parts.items()] == list(
        zip(keys, [["north"], ["south"]], strict=True)
    )
    with pytest.raises(InvalidArgument, match=r"row 0 of this output of sales: .* none of the 2 partitions"):
        split_by_partition(SeveralPartitions(context, ["2026-01-02|north", "2026-01-02|south"]), table)


class SeveralPartitions(OutputContext):
    """A context of several partitions."""

    def __init__(self, context: OutputContext, keys: Sequence[str]) -> None:
        vars(self).update(vars(context))
        self.keys = keys

    @property
    def asset_partition_keys(self) -> Sequence[str]:
        return self.keys
