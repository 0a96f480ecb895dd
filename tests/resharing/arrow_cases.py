"""pyarrow: which operations on stored tables and arrays share their buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from sharing_case import COLUMN, ROWS, Case

pc: Any = pyarrow.compute  # its functions are created at import, which type checkers cannot see
WORDS = [f"a word of dictionary {number}" for number in range(5000)]
CODES = pa.array(np.arange(ROWS, dtype=np.int32) % len(WORDS))
TEXT = [f"row {number:08} of text" for number in range(ROWS)]  # 20 characters


def _table() -> pa.Table:
    numbers = np.arange(ROWS)
    return pa.table({"i": numbers, "j": numbers + 1, "f": numbers / 2, "s": pa.array(TEXT, pa.large_string())})


# For the documentation, in its order.
NAMES = {
    "t": "is a table of numbers and text",
    "b": "a record batch of the same columns",
    "two": "a table of two chunks",
    "a": "an array of integers",
    "s": "an array of `large_string`",
    "v": "an array of `string_view`",
    "d": "a table with a dictionary column",
    "st": "a table with a struct column",
    "li": "a list array",
    "fl": "a fixed-size list array",
}

PARENTS: dict[str, Callable[[], Any]] = {
    "t": _table,
    "b": lambda: _table().to_batches()[0],
    "two": lambda: pa.concat_tables([_table().slice(0, ROWS // 2).take(np.arange(ROWS // 2)), _table()]),
    "a": lambda: pa.array(np.arange(ROWS)),
    "s": lambda: pa.array(TEXT, pa.large_string()),
    "v": lambda: pa.array(TEXT, pa.string_view()),
    "d": lambda: pa.table({"d": pa.DictionaryArray.from_arrays(CODES, pa.array(WORDS))}),
    "st": lambda: pa.table({"st": pa.StructArray.from_arrays([np.arange(ROWS), np.ones(ROWS)], ["x", "y"])}),
    "li": lambda: pa.ListArray.from_arrays(pa.array(np.arange(0, ROWS + 1, 4), pa.int32()), pa.array(np.arange(ROWS))),
    "fl": lambda: pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS)), 4),
}
VALUES = {
    "pa": pa,
    "pc": pc,
    "np": np,
    "new": pa.array(np.ones(ROWS)),
    "mask": pa.array(np.arange(ROWS) % 2 == 0),
    "order": pa.array(np.arange(ROWS)[::-1].copy()),
}

CASES = [
    Case("t", ("t.select(['i', 's'])", "t.drop_columns('i')", "t.remove_column(0)", "t['s']", "t['s'].chunk(0)")),
    Case(
        "t", ("t.rename_columns(['w', 'x', 'y', 'z'])", "t.cast(t.schema)", "t.replace_schema_metadata({'unit': 'm'})")
    ),
    Case("t", ("t.slice(10_000, 150_000)", "t[10_000:]", "t.drop_null()", "t.combine_chunks()")),
    Case("t", ("pa.concat_tables([t, t])", "pa.Table.from_arrays(t.columns, t.column_names)")),
    Case("t", ("t.to_batches()[0]", "pa.Table.from_batches(t.to_batches())")),
    Case(
        "b",
        ("b.select(['i', 's'])", "b.slice(10_000)", "b.rename_columns(['w', 'x', 'y', 'z'])", "b.to_struct_array()"),
    ),
    Case("st", ("st.flatten()", "pc.struct_field(st['st'], 'x')", "st['st'].chunk(0).field('y')")),
    Case("li", ("li.flatten()", "li.values", "li.offsets", "li.slice(10_000)")),
    Case("fl", ("fl.flatten()", "fl.values", "fl.slice(10_000)")),
    Case(
        "a",
        (
            "a.view(pa.timestamp('us'))",
            "a.cast(pa.timestamp('us'))",
            "a.cast(pa.int64())",
            "a.slice(10_000)",
            "a.drop_null()",
        ),
    ),
    Case(
        "a", ("a.to_numpy()", "np.asarray(a)", "pa.array(a.to_numpy())", "pa.chunked_array([a, a])", "a.buffers()[1]")
    ),
    Case("s", ("s.slice(10_000)", "s.cast(pa.large_binary())", "s.buffers()[2]")),
    Case("v", ("v.slice(10_000)", "v.cast(pa.binary_view())")),
    Case("d", ("d.slice(10_000)", "d['d'].chunk(0).dictionary", "d['d'].chunk(0).indices", "d.unify_dictionaries()")),
    Case("d", ("d.filter(mask)",), 2 * ROWS, "the indices"),
    Case("d", ("d.take(order)", "d.append_column('k', order).sort_by('k').select(['d'])"), 4 * ROWS, "the indices"),
    Case(
        "t",
        ("t.append_column('new', new)", "t.add_column(0, 'new', new)", "t.set_column(0, 'i', new)"),
        COLUMN,
        "the new column",
    ),
    Case("s", ("s.cast(pa.string())",), 4 * ROWS + 4, "offsets of 32 bits"),
    Case("s", ("s.cast(pa.string_view())",), 16 * ROWS, "the views"),
    Case("s", ("s.dictionary_encode()",), 32 * ROWS + 8),
    Case("a", ("a.filter(mask)", "a.cast(pa.int32())"), COLUMN // 2),
    Case("a", ("a.take(order)", "pc.add(a, 1)"), COLUMN),
    Case("a", ("pc.fill_null(a, 0)",), COLUMN + ROWS // 8, "although nothing is null"),
    Case("two", ("two.select(['i']).combine_chunks()",), 3 * COLUMN // 2),
]
