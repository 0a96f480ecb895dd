"""Inputs in the form of their annotation: one stored table, read in four ways.

dagster dev -f examples/dagster/typed_inputs.py
"""

# No `from __future__ import annotations`: Dagster uses the annotations of assets as types.
import pandas as pd
import polars as pl
import pyarrow as pa
from dagster import AssetIn, Definitions, asset, define_asset_job
from entrepot_dagster import EntrepotIOManager


@asset
def orders() -> pl.DataFrame:
    return pl.DataFrame({"customer": [1, 2, 3] * 100, "price": [2.5] * 300, "note": ["paid"] * 300})


@asset
def total(orders: pl.LazyFrame) -> float:
    return float(orders.select(pl.col("price").sum()).collect().item())


@asset(ins={"orders": AssetIn(metadata={"columns": ["customer", "price"]})})
def by_customer(orders: pd.DataFrame) -> pd.DataFrame:
    return orders.groupby("customer", as_index=False).sum()


@asset
def rows(orders: pa.Table, discounts: pa.Table | None) -> int:
    return int(orders.num_rows) + (0 if discounts is None else int(discounts.num_rows))


@asset
def discounts() -> pl.DataFrame:
    return pl.DataFrame({"customer": [1], "rate": [0.1]})


defs = Definitions(
    assets=[orders, total, by_customer, rows, discounts],
    jobs=[define_asset_job("everything")],
    resources={"io_manager": EntrepotIOManager()},
)
