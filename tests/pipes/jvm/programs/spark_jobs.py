"""An unmodified PySpark program: reads and writes CSV by the names that it is given. Prints what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]

session = SparkSession.builder.master(sys.argv[2]).config("spark.ui.enabled", "false").getOrCreate()
ROWS = 20_000
table = session.range(0, ROWS, 1, 5).selectExpr("id", "concat('item ', id) AS name", "id * 0.5 AS price")
names = sys.argv[3:]


def breaks(rows: Iterator[Any]) -> Iterator[Any]:
    """Fail in the middle; with a file to remember it by, only once."""
    for row in rows:
        if row.id == ROWS * 3 // 4 and not (len(names) > 1 and os.path.exists(names[1])):
            if len(names) > 1:
                open(names[1], "w").close()
            raise ValueError("the source is gone")
        yield row


try:
    if sys.argv[1] == "copy":
        session.read.csv(names[0], header=True).write.csv(names[1], header=True)
    elif sys.argv[1] == "write":
        table.write.csv(names[0], header=True)
    elif sys.argv[1] == "sum":
        frame = session.read.csv(names[0], header=True, schema="id LONG, name STRING, price DOUBLE")
        frame.createOrReplaceTempView("frame")
        (row,) = session.sql("SELECT count(*) AS n, sum(price) AS total FROM frame").collect()
        print(row.n, row.total)
    elif sys.argv[1] == "break":
        session.createDataFrame(table.rdd.mapPartitions(breaks), table.schema).write.csv(names[0], header=True)
    elif sys.argv[1] == "refused":
        for write in (
            table.write.parquet,
            table.write.partitionBy("name").csv,
            lambda name: table.write.csv(name, compression="gzip"),
        ):
            try:
                write(names[0])
            except Exception as error:
                print(next(line for line in str(error).splitlines() if "PipeException" in line))
finally:
    session.stop()
