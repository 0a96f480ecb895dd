"""The external program of pipes_assets.py; it needs entrepot, dagster-pipes and Polars, and no Dagster."""

from __future__ import annotations

import polars as pl
from dagster_pipes import open_dagster_pipes
from entrepot_dagster import PipesValues


def main() -> None:
    """Sum up prices by customer."""
    with open_dagster_pipes() as pipes:
        values = PipesValues(pipes)
        orders: pl.DataFrame = values.get("orders")  # a view of the store's memory
        values.put(orders.group_by("customer").agg(pl.col("price").sum()), metadata={"customers": 3})


if __name__ == "__main__":
    main()
