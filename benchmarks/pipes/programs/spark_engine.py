"""Spark as an engine: frames that are kept in memory, written and read as CSV."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]

from benchmarks.pipes.programs.engine_loop import serve

session = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "3g")
    .getOrCreate()
)
schema = "id LONG, " + ", ".join(f"i{n} LONG, d{n} DOUBLE" for n in (1, 2, 3))
table = session.read.csv(sys.argv[1], header=True, schema=schema).coalesce(1).persist()
table.count()


def export(name: str, header: bool) -> None:
    """Write the table, with a header."""
    table.write.mode("overwrite").csv(name, header=True)


def take(name: str, header: bool) -> tuple[int, int]:
    """Read a table; its rows, and the sum of the first column."""
    frame = session.read.csv(name, header=header, schema=schema).persist()
    try:
        (row,) = frame.selectExpr("count(*) AS n", "sum(id) AS total", "sum(d3)").collect()
        return row.n, row.total
    finally:
        frame.unpersist(blocking=True)


serve(export, take)
