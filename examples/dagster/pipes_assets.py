"""Dagster Pipes: a program outside Dagster reads an asset and writes another, by reference, through shared memory.

dagster dev -f examples/dagster/pipes_assets.py
"""

# No `from __future__ import annotations`: Dagster uses the annotations of assets as types.
import sys
from pathlib import Path
from typing import Any

import polars as pl
from dagster import AssetExecutionContext, Definitions, MaterializeResult, PipesSubprocessClient, asset
from entrepot_dagster import EntrepotIOManager, EntrepotResource

PROGRAM = Path(__file__).with_name("pipes_program.py")


@asset
def orders() -> pl.DataFrame:
    return pl.DataFrame({"customer": [number % 3 for number in range(3000)], "price": [2.5] * 3000})


@asset(deps=[orders])
def totals(
    context: AssetExecutionContext, pipes: PipesSubprocessClient, entrepot: EntrepotResource
) -> MaterializeResult[Any]:
    invocation = pipes.run(
        context=context, command=[sys.executable, str(PROGRAM)], extras=entrepot.pipes_extras(context)
    )
    return invocation.get_materialize_result()


@asset
def revenue(totals: pl.DataFrame) -> float:
    return float(totals["price"].sum())


defs = Definitions(
    assets=[orders, totals, revenue],
    resources={
        "io_manager": EntrepotIOManager(),
        "entrepot": EntrepotResource(),
        "pipes": PipesSubprocessClient(),
    },
)
