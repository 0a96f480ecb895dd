"""How record batches are written."""

from __future__ import annotations

import datetime
import decimal
import io
import json

import pandas as pd
import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.writer import TextWriter


def test_only_fields_that_need_quotes_have_them() -> None:
    batch = pa.record_batch(
        {"a": ["x", "x,y", 'q"', "", None, " z", "l\nm"], "d": [1.0, 0.5, None, 1e22, 5e-324, -0.0, 2.0]}
    )
    assert TextWriter().write(batch).decode() == (
        'a,d\nx,1.0\n"x,y",0.5\n"q""",\n"",1e+22\n,5e-324\n" z",-0.0\n"l\nm",2.0\n'
    )


def test_pandas_reads_the_same_values_as_from_its_own_text() -> None:
    frame = pd.DataFrame({"i": [1, 2], "d": [0.1, 3.0], "s": ["a,b", 'q"'], "b": [True, False]})
    text = TextWriter().write(pa.RecordBatch.from_pandas(frame, preserve_index=False))
    pd.testing.assert_frame_equal(pd.read_csv(io.BytesIO(text)), pd.read_csv(io.StringIO(frame.to_csv(index=False))))


def test_types_of_all_kinds() -> None:
    batch = pa.record_batch(
        {
            "date": [datetime.date(2024, 2, 29)],
            "time": pa.array([datetime.datetime(2024, 2, 29, 12)], pa.timestamp("us")),
            "money": [decimal.Decimal("1.50")],
            "category": pa.array(["x"]).dictionary_encode(),
            "list": [[1, None]],
            "struct": [{"a": 'q"', "b": float("nan")}],
            "bytes": [b"ab"],
            "u64": pa.array([2**64 - 1], pa.uint64()),
            "f32": pa.array([0.1], pa.float32()),
        }
    )
    text = TextWriter(Dialect(header=False)).write(batch).decode()
    assert text == (
        '2024-02-29,2024-02-29 12:00:00.000000,1.50,x,"[1, null]","{""a"": ""q\\"""", ""b"": null}",'
        "ab,18446744073709551615,0.1\n"
    )
    record = json.loads(TextWriter(Dialect(kind="json")).write(batch))
    assert record["struct"] == {"a": 'q"', "b": None}
    assert record["u64"] == 2**64 - 1
    assert record["date"] == "2024-02-29"
    assert record["money"] == 1.5


def test_json_texts_are_escaped() -> None:
    values = ["\x00\x1f", "\\", '"', "\u2028é😀", "\n", None]
    for column in (values, values[1:4]):
        text = TextWriter(Dialect(kind="json")).write(pa.record_batch({"s": column, 'k"': column}))
        records = [json.loads(line) for line in text.decode().split("\n") if line]
        assert [record["s"] for record in records] == column


def test_what_a_dialect_cannot_express_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="needs quotes"):
        TextWriter(Dialect(quote=None)).write(pa.record_batch({"a": ["x,y"]}))
    with pytest.raises(InvalidArgument, match="needs quotes"):
        TextWriter(Dialect(quoting="none")).write(pa.record_batch({"a": ["x\ny"]}))
    with pytest.raises(InvalidArgument, match="latin-1"):
        TextWriter(Dialect(encoding="latin-1")).write(pa.record_batch({"a": ["€"]}))
    with pytest.raises(InvalidArgument, match="two keys"):
        TextWriter(Dialect(kind="json")).write(pa.RecordBatch.from_arrays([pa.array([1])] * 2, names=["a", "a"]))
    with pytest.raises(InvalidArgument, match="without columns"):
        TextWriter().write(pa.RecordBatch.from_struct_array(pa.array([{}])))
    with pytest.raises(InvalidArgument, match="no text"):
        TextWriter().write(pa.record_batch({"a": [b"\xff"]}))


def test_a_batch_with_other_columns_is_refused() -> None:
    writer = TextWriter()
    writer.write(pa.record_batch({"a": [1]}))
    with pytest.raises(InvalidArgument, match="one header"):
        writer.write(pa.record_batch({"b": [1]}))


def test_large_batches_are_written_in_slices() -> None:
    batch = pa.record_batch({"a": list(range(200_000)), "s": ["x"] * 200_000})
    lines = TextWriter().write(batch).decode().splitlines()
    assert lines[0] == "a,s"
    assert lines[1:] == [f"{i},x" for i in range(200_000)]
