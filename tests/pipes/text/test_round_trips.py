"""Tables to text and back, over dialects and over blocks that are cut anywhere."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest
from entrepot_pipes.text.blocks import TextBlock
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.parser import TextParser
from entrepot_pipes.text.writer import TextWriter
from hypothesis import given, settings
from hypothesis import strategies as st

# The same examples in every run.
EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)

_CHARACTERS = st.sampled_from([*"aé€😀 ,;|\t\"'\\\n\r.0-_{}[]:#", "\r\n", "NA", "\\N", "null"])
_TEXTS = st.lists(_CHARACTERS, max_size=6).map("".join)
_DOUBLES = st.floats(allow_nan=True, allow_infinity=True)
_COLUMNS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): _DOUBLES,
    pa.bool_(): st.booleans(),
    pa.string(): _TEXTS,
}


@st.composite
def tables(draw: st.DrawFn, json: bool = False) -> pa.RecordBatch:
    """A batch with one to five columns of any of the types, with nulls."""
    rows = draw(st.integers(1, 8))
    names = draw(st.lists(st.text("abcé,\"' ;", min_size=1, max_size=5), min_size=1, max_size=5, unique=True))
    doubles = st.floats(allow_nan=False, allow_infinity=False) if json else _DOUBLES
    columns = []
    for _ in names:
        type_ = draw(st.sampled_from(list(_COLUMNS)))
        values = doubles if type_ == pa.float64() else _COLUMNS[type_]
        columns.append(pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), type_))
    return pa.RecordBatch.from_arrays(columns, names=names)


@st.composite
def csv_dialects(draw: st.DrawFn) -> Dialect:
    delimiter = draw(st.sampled_from([",", ";", "|", "\t", "\x01", "#"]))
    escape = draw(st.sampled_from([None, "\\"]))
    return Dialect(
        delimiter=delimiter,
        header=draw(st.booleans()),
        quote=draw(st.sampled_from(['"', "'"])),
        escape=escape,
        newline=draw(st.sampled_from(["\n", "\r\n", "\r"])),
        nulls=draw(st.sampled_from([("",), ("NULL", "") if escape else ("\\N", "NULL"), ("NA",)])),
        encoding=draw(st.sampled_from(["utf-8", "utf-16-le"])),
        quoting=draw(st.sampled_from(["minimal", "all"])),
    )


def parse(text: bytes, dialect: Dialect | None, cut: random.Random | None = None, **options: Any) -> list[Any]:
    """Feed the text, in one block or cut at random."""
    parser, blocks, at = TextParser(dialect, **options), [], 0
    while at < len(text):
        length = cut.randint(1, 9) if cut else len(text)
        blocks += parser.feed(text[at : at + length])
        at += length
    return blocks + parser.finish()


def same(left: Any, right: Any) -> bool:
    """Equal to the last bit, with equal NaNs."""
    if isinstance(left, float) and isinstance(right, float):
        return (left == right and math.copysign(1, left) == math.copysign(1, right)) or (
            left != left and right != right
        )
    return type(left) is type(right) and left == right


@EXAMPLES
@given(batch=tables(), dialect=csv_dialects(), seed=st.integers(0, 2**32))
def test_csv_text_says_what_the_table_said(batch: pa.RecordBatch, dialect: Dialect, seed: int) -> None:
    """Each value comes back: with its type where the text shows it, else as its text."""
    text = TextWriter(dialect).write(batch)
    batches = parse(text, dialect, infer=False)
    (read,) = batches
    assert read.num_rows == batch.num_rows
    if dialect.header:
        assert read.schema.names == batch.schema.names
    for column, texts in zip(batch.columns, read.columns, strict=True):
        for value, field in zip(column.to_pylist(), texts.to_pylist(), strict=True):
            if value is None or field is None:
                assert value is None
                assert field is None
            elif isinstance(value, bool):
                assert field == ("true" if value else "false")
            else:
                assert same(type(value)(field), value)
    # Blocks that are cut elsewhere have the same records.
    cut = parse(text, dialect, random.Random(seed), infer=False, block_bytes=16)
    assert not any(isinstance(block, TextBlock) for block in cut)
    assert pa.Table.from_batches(cut).to_pydict() == pa.Table.from_batches(batches).to_pydict()


@EXAMPLES
@given(batch=tables(), dialect=csv_dialects())
def test_typed_csv_columns_say_what_their_text_said(batch: pa.RecordBatch, dialect: Dialect) -> None:
    (read,) = parse(TextWriter(dialect).write(batch), dialect)
    (texts,) = parse(TextWriter(dialect).write(batch), dialect, infer=False)
    for typed, text in zip(read.columns, texts.columns, strict=True):
        for value, field in zip(typed.to_pylist(), text.to_pylist(), strict=True):
            if isinstance(value, float):
                assert same(float(field), value)
            elif isinstance(value, bool):
                assert field == str(value).lower()
            else:
                assert value is field is None or str(value) == field


@EXAMPLES
@given(values=st.lists(_DOUBLES, min_size=1, max_size=20))
def test_doubles_stay_doubles_to_the_last_bit(values: list[float]) -> None:
    for dialect in (Dialect(), Dialect(kind="json")):
        given = [v for v in values if dialect.kind == "csv" or math.isfinite(v)] or [1.0]
        (read,) = parse(TextWriter(dialect).write(pa.record_batch({"x": given})), dialect)
        assert read.schema.types == [pa.float64()]
        assert all(map(same, read.column(0).to_pylist(), given))


@EXAMPLES
@given(batch=tables(json=True), layout=st.sampled_from(["lines", "array"]), seed=st.integers(0, 2**32))
def test_json_round_trips(batch: pa.RecordBatch, layout: Any, seed: int) -> None:
    dialect = Dialect(kind="json", layout=layout)
    writer = TextWriter(dialect)
    text = writer.write(batch) + writer.finish()
    (read,) = parse(text, dialect)
    assert read.schema.names == batch.schema.names
    for column, again in zip(batch.columns, read.columns, strict=True):
        assert all(map(same, again.to_pylist(), column.to_pylist()))
    detected = parse(text, None, random.Random(seed))
    assert [block.to_pydict() for block in detected] == [read.to_pydict()]


@EXAMPLES
@given(batch=tables(json=True), seed=st.integers(0, 2**32))
def test_json_cut_anywhere_has_the_same_objects(batch: pa.RecordBatch, seed: int) -> None:
    dialect = Dialect(kind="json")
    text = b"".join(TextWriter(dialect).write(batch) for _ in range(4))
    columns: list[dict[str, Any]] = []
    for block in parse(text, dialect, random.Random(seed), block_bytes=32):
        # A block whose types differ from the first one's (a column of nulls before) stays text: its objects are there.
        if isinstance(block, TextBlock):
            (read,) = parse(block.data, dialect)
            columns += read.to_pylist()
        else:
            columns += block.to_pylist()
    assert len(columns) == 4 * batch.num_rows
    for row, expected in zip(columns, batch.to_pylist() * 4, strict=True):
        assert all(same(row.get(name), value) for name, value in expected.items())


@EXAMPLES
@given(batch=tables(), seed=st.integers(0, 2**32), final=st.booleans())
def test_what_the_writer_writes_is_detected(batch: pa.RecordBatch, seed: int, final: bool) -> None:
    """The default dialect is found again, given columns whose names could not be values."""
    names = [f"column_{i}" for i in range(batch.num_columns)] + ["last"]
    last = pa.array([1.5] * batch.num_rows)
    batch = pa.RecordBatch.from_arrays([*batch.columns, last], names=names)
    text = TextWriter().write(batch)
    text = text if final else text.removesuffix(b"\n")
    parser = TextParser()
    parser.feed(text)
    parser.finish()
    assert parser.dialect is not None
    if not any(v and set(v) & set("\t;|'\\") for c in batch.columns if c.type == pa.string() for v in c.to_pylist()):
        assert (parser.dialect.delimiter, parser.dialect.header, parser.dialect.quote) == (",", True, '"')


@pytest.mark.slow
def test_ten_thousand_columns() -> None:
    batch = pa.record_batch({f"c{i}": [i, None, -i] for i in range(10_000)})
    for dialect in (Dialect(), Dialect(kind="json")):
        read = parse(TextWriter(dialect).write(batch), None)
        assert [block.schema.names for block in read] == [batch.schema.names]
        assert read[0].columns[9_999].to_pylist() == [9_999, None, -9_999]


@pytest.mark.parametrize("dialect", [Dialect(), Dialect(kind="json"), Dialect(kind="json", layout="array")])
def test_no_rows(dialect: Dialect) -> None:
    writer = TextWriter(dialect)
    batch = pa.record_batch({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())})
    text = writer.write(batch) + writer.finish()
    read = parse(text, None)
    assert sum(block.num_rows for block in read) == 0
    if dialect.kind == "csv":
        assert read[0].schema.names == ["a", "b"]
    assert parse(b"", dialect) == []
    assert parse(b"", None) == []
