"""Assets by day, for backfills by Dagster's own daemon: ``dagster-daemon run -f backfill_assets.py``."""

# No `from __future__ import annotations`: Dagster uses the annotations of assets as types.

import os
import time
from pathlib import Path
from typing import Any

import polars as pl
from dagster import (
    AssetExecutionContext,
    BackfillPolicy,
    DailyPartitionsDefinition,
    Definitions,
    asset,
    in_process_executor,
)
from entrepot_dagster import EntrepotIOManager

DAYS = DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
ROWS = 1000
HELD_SECONDS = 120.0


def rows_of(day: str) -> pl.DataFrame:
    return pl.DataFrame({"day": [day] * ROWS, "price": [float(day[-2:])] * ROWS})


def hold() -> None:
    """If the test wants that, stay in this step until it says go on; the process's ID is in a file meanwhile."""
    folder = Path(os.environ["DAGSTER_HOME"])
    if not (folder / "hold").exists():
        return
    (folder / "held.part").write_text(str(os.getpid()))
    (folder / "held.part").rename(folder / "held")
    end = time.monotonic() + HELD_SECONDS
    while (folder / "hold").exists():
        if time.monotonic() > end:
            raise TimeoutError("the test did not say go on")
        time.sleep(0.01)


@asset(partitions_def=DAYS, backfill_policy=BackfillPolicy.single_run())
def orders(context: AssetExecutionContext) -> dict[str, pl.DataFrame]:
    hold()
    return {day: rows_of(day) for day in context.partition_keys}


@asset(partitions_def=DAYS, backfill_policy=BackfillPolicy.single_run())
def revenue(context: AssetExecutionContext, orders: dict[str, pl.DataFrame]) -> dict[str, float]:
    return {day: float(orders[day]["price"].sum()) for day in context.partition_keys}


@asset(partitions_def=DAYS, backfill_policy=BackfillPolicy.multi_run(max_partitions_per_run=2))
def in_pairs(context: AssetExecutionContext, orders: dict[str, pl.LazyFrame]) -> dict[str, int]:
    """Three days are a run of two and a run of one; the function is the same for both."""
    return {day: orders[day].collect().height for day in context.partition_keys}


@asset(partitions_def=DAYS)
def by_day(context: AssetExecutionContext, orders: pl.DataFrame, revenue: float) -> list[Any]:
    return [context.partition_key, orders["day"].unique().to_list(), revenue]


@asset
def total(orders: pl.LazyFrame, revenue: dict[str, float], in_pairs: dict[str, int]) -> list[Any]:
    """All of them: tables as one, numbers by day."""
    return [orders.collect().height, sum(revenue.values()), in_pairs]


defs = Definitions(
    assets=[orders, revenue, in_pairs, by_day, total],
    resources={"io_manager": EntrepotIOManager()},
    executor=in_process_executor,  # each run is a process of its own
)
