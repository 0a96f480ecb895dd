"""Polars' part of the values of the matrix (see ``matrix_values``)."""

from __future__ import annotations

import decimal
from typing import Any

from matrix_values import MOMENT, define


@define("polars/frame", polars="1.31")
def _polars_frame() -> Any:
    import polars as pl

    return pl.DataFrame(
        {
            "i": [1, None, 3],
            "s": ["a", None, "short"],
            "t": [MOMENT, None, MOMENT],
            "d": pl.Series([decimal.Decimal("1.10"), None, decimal.Decimal("2.20")], dtype=pl.Decimal(10, 2)),
            "c": pl.Series(["x", "y", "x"], dtype=pl.Categorical),
            "e": pl.Series(["x", "y", None], dtype=pl.Enum(["x", "y", "", "ä;1"])),
            "l": [[1, 2], None, []],
            "n": [{"a": 1}, {"a": 2}, None],
            "big": pl.Series([2**100, None, -1], dtype=pl.Int128),
        }
    )


@define("polars/series", polars="1.31")
def _polars_series() -> Any:
    import polars as pl

    return pl.Series("b", [True, None], dtype=pl.Boolean)


@define("polars/long text", polars="1.31")
def _polars_text() -> Any:
    import polars as pl

    return pl.DataFrame({"s": ["longer than the twelve bytes of a view", None]})


@define("polars/nested Enum", polars="1.31")
def _polars_nested_enum() -> Any:
    import polars as pl

    return pl.DataFrame({"n": [{"a": "x"}, None]}, {"n": pl.Struct({"a": pl.Enum(["x", "y"])})})


@define("polars/UInt128", polars="2.0")
def _polars_large_integers() -> Any:
    import polars as pl

    return pl.DataFrame({"u": pl.Series([2**127, None], dtype=pl.UInt128)})


@define("polars/Float16", polars="2.0")
def _polars_halves() -> Any:
    import polars as pl

    return [
        pl.Series("h", [0.5, 1.5], dtype=pl.Float16),
        pl.DataFrame({"n": [{"a": 0.5}]}, {"n": pl.Struct({"a": pl.Float16})}),
    ]


@define("polars/lazy", polars="1.31")
def _polars_lazy() -> Any:
    import polars as pl

    return pl.DataFrame({"a": [1, 2]}).lazy().filter(pl.col("a") > 1)
