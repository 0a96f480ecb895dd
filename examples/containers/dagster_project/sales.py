"""Two assets, whose steps run in processes of their own, and a table that passes between them through the store."""

from __future__ import annotations

import dagster
import numpy as np
import pandas as pd
from entrepot_dagster import EntrepotIOManager


@dagster.asset
def orders() -> pd.DataFrame:
    """Make orders of a thousand customers."""
    random = np.random.default_rng(0)
    return pd.DataFrame({"customer": random.integers(0, 1000, 100_000), "price": random.uniform(1, 100, 100_000)})


@dagster.asset
def best_customers(orders: pd.DataFrame) -> pd.DataFrame:
    """Return the ten customers that spent most."""
    return orders.groupby("customer", as_index=False).agg({"price": "sum"}).nlargest(10, "price")


defs = dagster.Definitions(assets=[orders, best_customers], resources={"io_manager": EntrepotIOManager()})
