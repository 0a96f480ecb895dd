"""Plugin of pytest by which the tests of dagster-duckdb's libraries use a store over DuckDB.

``python -m pytest -p substituted_database dagster_duckdb_pandas_tests``, with this folder in PYTHONPATH. What the tests
write is in the store and in DuckDB, where their own queries look; what their steps read comes from the store, with
types and columns. The last line of the report counts what was read from DuckDB instead.
"""

from __future__ import annotations

import importlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

from dagster import InputContext
from entrepot_dagster import EntrepotIOManager, TieredIOManager
from entrepot_io.scopes import scope_of

LIBRARIES = (("dagster_duckdb_pandas", "DuckDBPandas"), ("dagster_duckdb_polars", "DuckDBPolars"))
READS: Counter[str] = Counter()


class CountedStore(EntrepotIOManager):
    """The store; counts what was read from it."""

    def load_existing(self, context: InputContext) -> Any:
        value = super().load_existing(context)
        READS["store"] += 1
        return value


class CountedTiers(TieredIOManager):
    """Both tiers; counts what was read from the database."""

    def _load_durable(self, context: InputContext, missing: Exception) -> Any:
        READS["database"] += 1
        return super()._load_durable(context, missing)


def substitute(module: Any, prefix: str) -> None:
    """Replace both IO managers of a library, the one of Dagster's Pythonic resources and the one before these."""
    pythonic = getattr(module, f"{prefix}IOManager")
    old_name = f"duckdb_{prefix.removeprefix('DuckDB').lower()}_io_manager"
    old = getattr(module, old_name)

    def over_pythonic(*, database: str, **settings: Any) -> TieredIOManager:
        return tiers(database, pythonic(database=database, **settings))

    over_old = SimpleNamespace(configured=lambda config: tiers(config["database"], old.configured(config)))
    vars(module).update({f"{prefix}IOManager": over_pythonic, old_name: over_old})


def tiers(database: str, durable: Any) -> TieredIOManager:
    """A store for the objects of one database, over it."""
    return CountedTiers(store=CountedStore(scope=scope_of("dagster", database)), durable=durable)


def pytest_configure() -> None:
    """Replace the IO managers, before the tests import them."""
    for name, prefix in LIBRARIES:
        substitute(importlib.import_module(name), prefix)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say where inputs came from."""
    terminalreporter.write_line(f"inputs: {READS['store']} from the store, {READS['database']} from DuckDB")
