"""Assets with partitions, and a table of all of them."""

# No `from __future__ import annotations`: Dagster uses the annotations of assets as types.
import polars as pl
from dagster import AssetExecutionContext, StaticPartitionsDefinition, asset

REGIONS = StaticPartitionsDefinition(["north", "south"])


@asset(partitions_def=REGIONS)
def orders(context: AssetExecutionContext) -> pl.DataFrame:
    return pl.DataFrame({"region": [context.partition_key] * 100, "price": [2.5] * 100})


@asset
def revenue(orders: pl.LazyFrame) -> pl.DataFrame:
    return orders.group_by("region").agg(pl.col("price").sum()).sort("region").collect()
