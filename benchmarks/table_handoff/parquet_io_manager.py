"""Dagster's usual way to keep tables in Parquet files: a ``UPathIOManager`` with pandas' defaults."""

# Annotations are not postponed here: Dagster looks at those of the class's methods.
import json
import os
from typing import TYPE_CHECKING, Any

from dagster import InitResourceContext, InputContext, OutputContext, UPathIOManager, io_manager

from examples.flights.dagster_names import FILES_VARIABLE
from examples.flights.transports import Transport

if TYPE_CHECKING:
    from upath import UPath

PARQUET = Transport("dagster", "parquet", "Parquet IO manager", "UPathIOManager, Parquet files as pandas writes them")


class ParquetIOManager(UPathIOManager):
    """A file for each output: Parquet for a table, JSON for anything else."""

    def dump_to_path(self, context: OutputContext, obj: Any, path: "UPath") -> None:
        if isinstance(obj, dict):
            path.write_text(json.dumps(obj))
        else:
            obj.to_parquet(path)

    def load_from_path(self, context: InputContext, path: "UPath") -> Any:
        import pandas as pd

        with path.open("rb") as file:
            is_table = file.read(4) == b"PAR1"
        return pd.read_parquet(str(path)) if is_table else json.loads(path.read_text())


@io_manager
def parquet_io_manager(context: InitResourceContext) -> ParquetIOManager:
    """In the folder that the environment names."""
    from upath import UPath

    return ParquetIOManager(UPath(os.environ[FILES_VARIABLE]))
