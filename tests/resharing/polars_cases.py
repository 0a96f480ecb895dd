"""Polars: which operations on stored frames share their buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from arrow_cases import TEXT, WORDS
from sharing_case import COLUMN, ROWS, Case


def _frame() -> pl.DataFrame:
    numbers = np.arange(ROWS)
    return pl.DataFrame({"i": numbers, "f": numbers / 2, "s": pl.Series(TEXT)})


# For the documentation, in its order.
NAMES = {
    "df": "is a frame of numbers and text",
    "n": "a frame of numbers",
    "st": "a frame with a struct column",
    "li": "a frame with a list column",
    "c": "a frame with an `Enum` column",
    "k": "a frame with a `Categorical` column",
    "dt": "a frame of datetimes",
    "t": "an Arrow table of numbers",
    "tl": "one of `large_string`",
    "tv": "one of `string_view`",
}

PARENTS: dict[str, Callable[[], Any]] = {
    "df": _frame,
    "n": lambda: _frame().select("i", "f"),
    "st": lambda: _frame().select("i", "f").to_struct("st").to_frame(),
    "li": lambda: pl.DataFrame({"l": pl.Series(np.arange(ROWS)).reshape((ROWS // 4, 4)).arr.to_list()}),
    "c": lambda: pl.DataFrame({"c": pl.Series(WORDS, dtype=pl.Enum(WORDS))[np.arange(ROWS) % len(WORDS)]}),
    "k": lambda: pl.DataFrame({"k": pl.Series(WORDS, dtype=pl.Categorical)[np.arange(ROWS) % len(WORDS)]}),
    "t": lambda: pa.table({"i": np.arange(ROWS), "f": np.arange(ROWS) / 2}),
    "tl": lambda: pa.table({"s": pa.array(TEXT, pa.large_string())}),
    "tv": lambda: pa.table({"s": pa.array(TEXT, pa.string_view())}),
    "dt": lambda: pl.DataFrame({"d": pl.Series(np.arange(ROWS)).cast(pl.Datetime("us"))}),
}
VALUES = {
    "pl": pl,
    "new": pl.Series("new", np.ones(ROWS)),
    "mask": pl.Series(np.arange(ROWS) % 2 == 0),
    "order": pl.Series(np.arange(ROWS)[::-1].copy()),
    "newest": pl.CompatLevel.newest(),
}
CATEGORIES = sum(16 + len(word) for word in WORDS)

CASES = [
    Case(
        "df", ("df.clone()", "df.lazy().collect()", "df.select('s', 'i')", "df.drop('i')", "df['s']", "df[['i', 's']]")
    ),
    Case(
        "df",
        ("df.rename({'i': 'z'})", "df.select(pl.col('i').alias('z'), 's')", "df.with_columns(pl.col('i').alias('i2'))"),
    ),
    Case(
        "df",
        (
            "df.slice(10_000, 150_000)",
            "df[10_000:150_000]",
            "df.head(150_000)",
            "df.tail(150_000)",
            "df.limit(150_000)",
        ),
    ),
    Case("df", ("df.vstack(df)", "pl.concat([df, df])", "df.hstack([df['i'].alias('i2')])", "df.rechunk()")),
    Case(
        "df",
        ("df.cast(dict(df.schema))", "df.with_columns(pl.col('i').set_sorted())", "df.fill_null(0).select('i', 'f')"),
    ),
    Case("df", ("df.to_arrow(compat_level=newest)", "df.select('i', 'f').to_arrow()", "df.to_struct('st')")),
    Case("n", ("n['i'].to_numpy()", "n['i'].to_arrow()", "n.to_pandas(use_pyarrow_extension_array=True)")),
    Case("n", ("n['i'].cast(pl.Datetime('us'))", "n['i'].cast(pl.Int64)", "n['i'].reinterpret(signed=False)")),
    Case("n", ("pl.from_pandas(n.to_pandas(use_pyarrow_extension_array=True))", "pl.from_arrow(n.to_arrow())")),
    Case("dt", ("dt['d'].to_physical()", "dt['d'].cast(pl.Int64)", "dt['d'].dt.replace_time_zone('UTC')")),
    Case("st", ("st.unnest('st')", "st['st'].struct.field('i')", "st['st'].struct.unnest()")),
    Case("li", ("li['l'].explode()", "li.slice(10_000)", "li.rename({'l': 'm'})")),
    Case("t", ("pl.from_arrow(t)", "pl.from_arrow(t['i'])", "pl.from_arrow(t.slice(10_000))")),
    Case("tv", ("pl.from_arrow(tv)",)),
    Case("df", ("df.with_columns(new)", "df.with_columns(i=new)", "df.hstack([new])"), COLUMN, "the new column"),
    Case("c", ("c.slice(10_000)", "c.clone()", "c.rename({'c': 'd'})"), CATEGORIES, "the categories"),
    Case("k", ("k.clone()", "k.rename({'k': 'z'})"), 4 * ROWS + CATEGORIES, "codes and categories"),
    Case("c", ("c.filter(mask)",), ROWS + CATEGORIES, "codes and categories"),
    Case("c", ("c[order]", "c.sort('c')"), 2 * ROWS + CATEGORIES, "codes and categories"),
    Case("df", ("df.select('s').filter(mask)",), 8 * ROWS, "the views"),
    Case("df", ("df.select('s')[order]", "df.select('s').sort('s', descending=True)"), 16 * ROWS, "the views"),
    Case("tl", ("pl.from_arrow(tl)",), 16 * ROWS, "the views"),
    Case("df", ("df.select('s').to_arrow()",), 28 * ROWS + 8, "text and offsets"),
    Case("n", ("n.filter(mask)",), COLUMN),
    Case("n", ("n['i'].to_numpy(writable=True)", "n['i'] + 1"), COLUMN),
    Case("n", ("n[order]", "n.sort('f', descending=True)"), 2 * COLUMN),
]
