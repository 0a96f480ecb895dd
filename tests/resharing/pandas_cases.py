"""pandas: which operations on stored frames share their columns' memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from arrow_cases import CODES, TEXT, WORDS
from sharing_case import COLUMN, ROWS, Case


def _frame() -> pd.DataFrame:
    numbers = np.arange(ROWS)
    frame = pd.DataFrame({"a": numbers, "b": numbers + 1, "x": numbers / 2, "y": numbers / 3})
    return frame.copy()  # one block of integers, one of floats


def _arrow_table() -> pa.Table:
    numbers = np.arange(ROWS)
    return pa.table({"a": numbers, "x": numbers / 2, "s": pa.array(TEXT, pa.large_string())})


# For the documentation, in its order.
NAMES = {
    "df": "is a frame with two columns each of integers and of floats",
    "one": "a frame of one block",
    "ar": "an Arrow-backed frame",
    "nu": "a frame with a nullable column",
    "c": "a frame with a categorical column",
    "s": "a series of text",
    "ix": "a frame with an index of integers",
    "t": "an Arrow table",
}

PARENTS: dict[str, Callable[[], Any]] = {
    "df": _frame,
    "one": lambda: pd.DataFrame(np.arange(4.0 * ROWS).reshape(ROWS, 4), columns=list("abcd")),
    "ar": lambda: _arrow_table().to_pandas(types_mapper=pd.ArrowDtype),
    "t": _arrow_table,
    "nu": lambda: pd.DataFrame({"n": pd.array(np.arange(ROWS), dtype="Int64")}),
    "c": lambda: pd.DataFrame({"c": pd.Categorical.from_codes(np.asarray(CODES), pd.Index(WORDS))}),
    "s": lambda: pd.Series(TEXT, dtype="str"),
    "ix": lambda: pd.DataFrame({"x": np.ones(ROWS)}, index=pd.Index(np.arange(ROWS) * 3, name="key")),
}
VALUES = {
    "pa": pa,
    "pd": pd,
    "new": np.ones(ROWS),
    "others": pd.DataFrame({"new": np.ones(ROWS)}),
    "mask": np.arange(ROWS) % 2 == 0,
    "order": np.arange(ROWS)[::-1].copy(),
}

CASES = [
    Case("df", ("df.copy(deep=False)", "df['a']", "df[['a', 'x']]", "df[['b', 'a']]", "df.loc[:, 'a':'b']")),
    Case("df", ("df.drop(columns='b')", "df.filter(like='x')", "df.select_dtypes('float')", "df.iloc[:, 1:3]")),
    Case("df", ("df.rename(columns={'a': 'z'})", "df.set_axis(list('stuv'), axis=1)", "df.add_prefix('p')")),
    Case("df", ("df.iloc[10_000:150_000]", "df.truncate(before=10_000)")),
    Case("df", ("df.astype(df.dtypes)", "df.infer_objects()", "df.convert_dtypes(dtype_backend='pyarrow')[['x']]")),
    Case("df", ("df.reset_index(drop=True)", "df.set_index('a')", "df.fillna(0)", "df.pipe(lambda frame: frame)")),
    Case("df", ("df['a'].rename('z')", "df['a'].to_frame()", "df['a'].to_numpy()", "pa.Table.from_pandas(df)")),
    Case("one", ("one.to_numpy()", "one.T.T", "one.iloc[:, :]", "one.rename(columns=str.upper)")),
    Case("ix", ("ix.index", "ix['x']", "ix.reset_index(drop=True)", "ix.rename_axis('other')", "ix.iloc[10_000:]")),
    Case("nu", ("nu.rename(columns={'n': 'm'})", "nu.iloc[10_000:]", "nu['n']", "nu.copy(deep=False)")),
    Case("c", ("c.iloc[10_000:]", "c.rename(columns={'c': 'd'})", "c['c'].cat.categories")),
    Case("s", ("s.iloc[10_000:]", "s.rename('text')", "s.copy()", "s.astype('str')", "s.to_frame()")),
    Case("ar", ("ar[['s', 'a']]", "ar.drop(columns='a')", "ar.rename(columns={'a': 'b'})", "ar.copy()", "ar['s']")),
    Case(
        "ar", ("ar.iloc[10_000:150_000]", "ar.head(150_000)", "pd.concat([ar, ar])[['a', 's']].reset_index(drop=True)")
    ),
    Case(
        "ar",
        (
            "pa.Table.from_pandas(ar)",
            "pd.concat([ar, ar.add_prefix('p')], axis=1)",
            "ar.convert_dtypes(dtype_backend='pyarrow')",
        ),
    ),
    Case("t", ("t.to_pandas(types_mapper=pd.ArrowDtype)", "t.to_pandas(split_blocks=True)")),
    Case(
        "df",
        ("df.assign(new=new)", "df.assign(a=new)", "pd.concat([df, others], axis=1)", "df.join(others)"),
        COLUMN,
        "the new column",
    ),
    Case("ar", ("ar.assign(new=new)", "pd.concat([ar, others], axis=1)"), COLUMN, "the new column"),
    Case("c", ("c[mask].reset_index(drop=True)",), ROWS, "the codes"),
    Case("c", ("c.take(order).reset_index(drop=True)", "c.sort_values('c', ignore_index=True)"), 2 * ROWS, "the codes"),
    Case("ix", ("ix.reset_index()",), COLUMN, "the index, which becomes a column"),
    Case("t", ("t.to_pandas()",), 2 * COLUMN, "the numbers; text is shared"),
    Case("c", ("c['c'].cat.as_ordered()", "c['c'].cat.codes"), 2 * ROWS, "the codes"),
    Case("df", ("df['a'].astype('M8[us]')",), COLUMN),
    Case("df", ("df.head(150_000)", "df.tail(150_000)"), 3 * COLUMN, "pandas copies, unlike `iloc`"),
    Case("df", ("df[mask].reset_index(drop=True)", "df.query('a % 2 == 0').reset_index(drop=True)"), 2 * COLUMN),
    Case(
        "df",
        (
            "df.copy()",
            "df.take(order).reset_index(drop=True)",
            "df.sort_values('x', ascending=False, ignore_index=True)",
        ),
        4 * COLUMN,
    ),
    Case("df", ("pd.concat([df, df], ignore_index=True)",), 8 * COLUMN),
]
