"""A durable tier of Parquet files in S3, by an IO manager as Dagster's documentation writes it."""

# Annotations are not postponed here: Dagster looks at those of assets.

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster import (
    AssetExecutionContext,
    AssetIn,
    AssetKey,
    BackfillPolicy,
    DagsterInstance,
    InputContext,
    OutputContext,
    StaticPartitionsDefinition,
    UPathIOManager,
    asset,
    build_output_context,
    build_resources,
    materialize,
)
from entrepot_dagster import EntrepotIOManager, TieredIOManager
from entrepot_io.connections import close_all
from upath import UPath

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run_programs"))

from s3_in_memory import S3Server

pytestmark = [pytest.mark.usefixtures("own_store"), pytest.mark.slow]

REGIONS = StaticPartitionsDefinition(["north", "south"])
BOTH = {"dagster/asset_partition_range_start": "north", "dagster/asset_partition_range_end": "south"}


class ParquetFiles(UPathIOManager):
    """Writes Polars frames as Parquet files."""

    extension = ".parquet"

    def dump_to_path(self, context: OutputContext, obj: pl.DataFrame, path: UPath) -> None:
        with path.open("wb") as file:
            obj.write_parquet(file)

    def load_from_path(self, context: InputContext, path: UPath) -> pl.DataFrame:
        with path.open("rb") as file:
            return pl.read_parquet(file)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def folder(server: S3Server, request: pytest.FixtureRequest) -> UPath:
    """A bucket of the test's own."""
    bucket = UPath(f"s3://{abs(hash(request.node.name)):x}", **server.options)
    bucket.fs.mkdir(bucket.path)
    assets: UPath = bucket / "assets"
    return assets


@asset(partitions_def=REGIONS, backfill_policy=BackfillPolicy.single_run(), metadata={"partition_expr": "region"})
def orders(context: AssetExecutionContext) -> pl.DataFrame:
    return pl.DataFrame({"region": ["south", "north", "south"], "n": [1, 2, 3]})


@asset(io_manager_key="others")
def as_dictionary(orders: dict[str, pl.LazyFrame]) -> dict[str, list[int]]:
    return {region: frame.collect()["n"].to_list() for region, frame in orders.items()}


@asset(io_manager_key="others")
def as_table(orders: pa.Table) -> list[int]:
    return [int(each) for each in orders["n"].to_pylist()]


@asset(io_manager_key="others", ins={"orders": AssetIn(metadata={"columns": ["n"]})})
def as_column(orders: pd.DataFrame) -> list[str]:
    return [*orders.columns, str(len(orders))]


@asset(io_manager_key="others")
def with_missing(orders: dict[str, pl.DataFrame | None]) -> list[str]:
    return list(orders)


READERS = [as_dictionary, as_table, as_column, with_missing]


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_what_the_store_has_lost_is_read_in_the_same_form(
    background: bool, folder: UPath, instance: DagsterInstance, daemon: Any
) -> None:
    durable = ParquetFiles(base_path=folder)
    resources = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=durable, background=background)}
    assert materialize([orders], instance=instance, resources=resources, tags=BOTH).success
    assert sorted(path.name for path in (folder / "orders").iterdir()) == ["north.parquet", "south.parquet"]

    def read() -> list[Any]:
        # These assets' own values are lists, which these files cannot have.
        own = {"io_manager": resources["io_manager"], "others": EntrepotIOManager()}
        result = materialize([orders, *READERS], selection=READERS, instance=instance, resources=own)
        return [result.output_for_node(each.op.name) for each in READERS]

    expected = [{"north": [2], "south": [1, 3]}, [2, 1, 3], ["n", "3"], ["north", "south"]]
    assert read() == expected
    daemon.stop()
    close_all()
    daemon.start()
    assert read() == expected


def test_partitions_that_were_never_written_are_left_out(folder: UPath, instance: DagsterInstance) -> None:
    resources = {
        "io_manager": TieredIOManager(store=EntrepotIOManager(), durable=ParquetFiles(base_path=folder)),
        "others": EntrepotIOManager(),
    }
    assert materialize([orders], instance=instance, resources=resources, partition_key="south").success
    result = materialize([orders, with_missing], selection=[with_missing], instance=instance, resources=resources)
    assert result.output_for_node("with_missing") == ["south"]
    with pytest.raises(FileNotFoundError):
        materialize([orders, as_table], selection=[as_table], instance=instance, resources=resources)


def test_files_in_s3_are_deleted(folder: UPath, instance: DagsterInstance) -> None:
    resources = {"io_manager": TieredIOManager(store=EntrepotIOManager(), durable=ParquetFiles(base_path=folder))}
    assert materialize([orders], instance=instance, resources=resources, tags=BOTH).success
    context = build_output_context(asset_key=AssetKey("orders"), partition_key="north", asset_partitions_def=REGIONS)
    with build_resources(resources, instance=instance) as opened:
        assert opened.io_manager.has_output(context)
        assert opened.io_manager.delete(context)
        assert not opened.io_manager.has_output(context)
    assert [path.name for path in (folder / "orders").iterdir()] == ["south.parquet"]
