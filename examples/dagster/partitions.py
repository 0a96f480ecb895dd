"""Partitions: backfills of all of them in a single run, which return a dictionary or a table, and one table of all.

dagster dev -f examples/dagster/partitions.py
"""

# No `from __future__ import annotations`: Dagster uses the annotations of assets as types.
from typing import Any

import polars as pl
from dagster import AssetExecutionContext, BackfillPolicy, Definitions, StaticPartitionsDefinition, asset
from entrepot_dagster import EntrepotIOManager

REGIONS = StaticPartitionsDefinition(["north", "south", "west"])


def table(region: str) -> pl.DataFrame:
    return pl.DataFrame({"region": [region] * 100, "price": [2.5] * 100})


@asset(partitions_def=REGIONS, backfill_policy=BackfillPolicy.single_run())
def orders(context: AssetExecutionContext) -> Any:
    if len(context.partition_keys) == 1:
        return table(context.partition_key)
    return {region: table(region) for region in context.partition_keys}


# As for a database: one table, whose column says which rows are whose.
@asset(partitions_def=REGIONS, backfill_policy=BackfillPolicy.single_run(), metadata={"partition_expr": "region"})
def returns(context: AssetExecutionContext, orders: pl.DataFrame) -> pl.DataFrame:
    return orders.filter(pl.int_range(pl.len()) % 10 == 0)


@asset
def revenue(orders: pl.LazyFrame) -> pl.DataFrame:
    return orders.group_by("region").agg(pl.col("price").sum()).sort("region").collect()


@asset
def rows_by_region(orders: dict[str, pl.DataFrame]) -> dict[str, int]:
    return {region: each.height for region, each in orders.items()}


defs = Definitions(assets=[orders, returns, revenue, rows_by_region], resources={"io_manager": EntrepotIOManager()})
