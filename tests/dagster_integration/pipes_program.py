"""External process of the tests of Dagster Pipes. Dagster cannot be imported in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


class NoDagster:
    """Finder that has no Dagster, as where only entrepot and dagster-pipes are installed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        """Refuse Dagster's packages."""
        if name.partition(".")[0] in ("dagster", "dagster_shared"):
            raise ModuleNotFoundError(f"no module named {name!r} here", name=name)


sys.meta_path.insert(0, NoDagster())

from dagster_pipes import PipesContext, open_dagster_pipes  # noqa: E402
from entrepot_dagster import PipesValues  # noqa: E402


def double(values: PipesValues, pipes: PipesContext) -> None:
    """Put twice the only upstream array; with several partitions, a dictionary of sums."""
    value = values.get("numbers")
    if isinstance(value, dict):
        values.put({partition: int(each.sum()) for partition, each in value.items()})
        return
    assert not value.flags.writeable
    values.put(value * 2, metadata={"entrepot/type": "mine", "by": "the program"}, data_version="v7")


def both(values: PipesValues, pipes: PipesContext) -> None:
    """Put two assets of one step."""
    for number, name in enumerate(values.outputs):
        values.put([number], asset_key=name)


def lazily(values: PipesValues, pipes: PipesContext) -> None:
    """Put a query plan, or one for each partition."""
    import polars as pl

    frame = pl.LazyFrame({"n": range(10)}).filter(pl.col("n") > 3)
    values.put({"a": frame, "b": frame.head(1)} if values.outputs == ["planned_parts"] else frame)


def missing(values: PipesValues, pipes: PipesContext) -> None:
    """Read what is not upstream."""
    values.get("elsewhere")


def output(values: PipesValues, pipes: PipesContext) -> None:
    """Put an op's output."""
    values.put(bytes(100_000))


if __name__ == "__main__":
    with open_dagster_pipes() as opened:
        globals()[sys.argv[1]](PipesValues(opened), opened)
    assert not {"dagster", "dagster_shared"} & sys.modules.keys()
