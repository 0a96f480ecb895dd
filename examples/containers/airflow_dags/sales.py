"""Two tasks, which run in processes of their own, and a table that passes between them through the store."""

from __future__ import annotations

import numpy as np
import pandas as pd
from airflow.sdk import dag, task


@task
def orders() -> pd.DataFrame:
    """Make orders of a thousand customers."""
    random = np.random.default_rng(0)
    return pd.DataFrame({"customer": random.integers(0, 1000, 100_000), "price": random.uniform(1, 100, 100_000)})


@task
def best_customers(sold: pd.DataFrame) -> pd.DataFrame:
    """Return the ten customers that spent most."""
    return sold.groupby("customer", as_index=False).agg({"price": "sum"}).nlargest(10, "price")


@dag(schedule=None)
def sales() -> None:
    """Orders, and who ordered most."""
    best_customers(orders())  # type: ignore[arg-type]  # Airflow passes the table that orders() returned


sales()
