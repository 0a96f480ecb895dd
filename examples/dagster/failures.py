"""Failures of the store, explained in the step's log and, for killed steps too, in the run's.

dagster dev -f examples/dagster/failures.py
"""

# No `from __future__ import annotations`: Dagster uses the annotations of ops as types.
import logging

import polars as pl
from dagster import Definitions, RunFailureSensorContext, job, op
from entrepot_dagster import EntrepotIOManager, StepFailure, store_failure_hook, store_failure_sensor

log = logging.getLogger(__name__)


@op
def orders() -> pl.DataFrame:
    return pl.DataFrame({"price": [2.5] * 300})


@op
def revenue(orders: pl.DataFrame) -> float:
    return float(orders["price"].sum())


@job(hooks={store_failure_hook})
def sales() -> None:
    revenue(orders())


def tell(context: RunFailureSensorContext, failures: list[StepFailure]) -> None:
    """Tell someone: a chat, a pager, or, as here, a log."""
    log.error("%s: %s", context.dagster_run.job_name, "; ".join(map(str, failures)))


defs = Definitions(jobs=[sales], sensors=[store_failure_sensor(tell)], resources={"io_manager": EntrepotIOManager()})
