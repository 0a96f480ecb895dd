"""Assets in the store, for speed, and in files, which outlive it; the folder is that of ASSETS_FOLDER.

ASSETS_FOLDER=/data/assets dagster dev -f examples/dagster/durable_tier.py
"""

# No `from __future__ import annotations`: Dagster uses the annotations of assets as types.
import polars as pl
from dagster import Definitions, EnvVar, FilesystemIOManager, asset, define_asset_job
from entrepot_dagster import EntrepotIOManager, TieredIOManager


@asset
def orders() -> pl.DataFrame:
    return pl.DataFrame({"price": [2.5] * 300})


@asset
def revenue(orders: pl.DataFrame) -> float:
    return float(orders["price"].sum())


defs = Definitions(
    assets=[orders, revenue],
    jobs=[define_asset_job("everything")],
    resources={
        "io_manager": TieredIOManager(
            store=EntrepotIOManager(),
            durable=FilesystemIOManager(base_dir=EnvVar("ASSETS_FOLDER")),
            background=True,
        )
    },
)
