"""What becomes columns, and what stays text because columns would not say the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument
from entrepot_pipes.text.blocks import TextBlock, matches
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.json_parser import LONG_INTEGER
from entrepot_pipes.text.parser import TextParser
from entrepot_pipes.text.writer import TextWriter

JSON = Dialect(kind="json")


def parse(*blocks: bytes, dialect: Dialect | None = None, block_bytes: int = 1) -> list[Any]:
    """Each block on its own, if its last record is whole."""
    parser = TextParser(dialect, block_bytes=block_bytes)
    parsed: list[Any] = []
    for block in blocks:
        parsed += parser.feed(block)
    return parsed + parser.finish()


def columns(*blocks: bytes, dialect: Dialect | None = None) -> dict[str, list[Any]]:
    """The only batch's."""
    (batch,) = parse(*blocks, dialect=dialect, block_bytes=1 << 20)
    assert isinstance(batch, pa.RecordBatch)
    parsed: dict[str, list[Any]] = batch.to_pydict()
    return parsed


@pytest.mark.parametrize(
    "field",
    [
        "007",
        "+7",
        "0x10",
        " 7",
        "7 ",
        "-0",
        "00",
        "9223372036854775808",
        "0.1234567890123456789",
        "1_000",
        "12:30",
        "2024-05-01 10:00:00",
        "2024-05-01T10:00:00Z",
        "TRUE",
        "1,5",
        "NULL",
        "-",
    ],
)
def test_what_a_number_would_not_keep_stays_text(field: str) -> None:
    text = f'x,y\n1,0.5\n"{field}",1.5\n'.encode()
    assert columns(text, dialect=Dialect())["x"] == ["1", field]


@pytest.mark.parametrize("large", ["9007199254740993", "-9007199254740993", "12345678901234567"])
def test_integers_that_doubles_would_round_stay_text(large: str) -> None:
    assert columns(f"x,y\n{large},a\n0.5,b\n".encode())["x"] == [large, "0.5"]


def test_types() -> None:
    text = b"i,d,b,t,s,n\n-9223372036854775808,1e-7,true,2024-02-29,x,\n9223372036854775807,nan,false,,,\n"
    (batch,) = parse(text, block_bytes=1 << 20)
    assert batch.schema.types == [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.string(), pa.string()]
    assert batch.column(0).to_pylist() == [-(2**63), 2**63 - 1]
    assert batch.column(5).to_pylist() == [None, None]


def test_types_that_change_later_make_a_block_text() -> None:
    first, second, third = parse(b"a,b\n1,2\n", b"x,3\n", b"4,5\n", dialect=Dialect())
    assert first.to_pydict() == {"a": [1], "b": [2]}
    assert isinstance(second, TextBlock)
    assert second.data == b"x,3\n"
    assert "x" in second.reason
    assert third.to_pydict() == {"a": [4], "b": [5]}


@pytest.mark.parametrize("later", ["007", "1.5", "x", "1,2"])
def test_a_later_block_that_integers_would_not_keep_is_text(later: str) -> None:
    first, second = parse(b"a\n1\n", f"{later}\n".encode(), dialect=Dialect())
    assert first.to_pydict() == {"a": [1]}
    assert second.data == f"{later}\n".encode()


def test_quoted_and_unquoted_nulls_differ() -> None:
    assert columns(b'a,b\n"",1\n,2\n') == {"a": ["", None], "b": [1, 2]}


def test_one_column_with_nulls_keeps_its_rows() -> None:
    assert columns(b"a\n1\n\n3\n", dialect=Dialect()) == {"a": [1, None, 3]}
    batch = pa.record_batch({"a": [1, None, 3]})
    assert columns(TextWriter().write(batch), dialect=Dialect()) == {"a": [1, None, 3]}


def test_byte_order_marks() -> None:
    assert columns("\ufeffa;b\nä;1\n".encode()) == {"a": ["ä"], "b": [1]}
    assert columns("a;b\nä;1\n".encode("utf-16")) == {"a": ["ä"], "b": [1]}
    assert columns('\ufeff{"a":"ä"}\n'.encode()) == {"a": ["ä"]}


def test_ends_of_lines() -> None:
    for text in (b"a,b\r\n1,x\r\n2,y\r\n", b"a,b\r1,x\r2,y", b"a,b\n1,x\n2,y"):
        assert columns(text) == {"a": [1, 2], "b": ["x", "y"]}
    assert columns(b'a,b\r\n1,"x\r\ny"\r\n') == {"a": [1], "b": ["x\r\ny"]}


def test_names_that_occur_twice_or_are_empty() -> None:
    (batch,) = parse(b",a,a\n0,1,x\n1,2,y\n", block_bytes=1 << 20)
    assert batch.schema.names == ["", "a", "a"]
    assert batch.column(2).to_pylist() == ["x", "y"]


@pytest.mark.parametrize(
    "text",
    [
        b'size,n\n5" nails,1\n6" nails,2\n"x\ny",3\n',
        b'size,n\n"open,1\nx,2\n',
        b'a,b\n"x"y,2\n',
    ],
)
def test_stray_quotes_make_the_rest_text(text: bytes) -> None:
    for blocks in ([text], [text[i : i + 5] for i in range(0, len(text), 5)]):
        parsed = parse(*blocks, dialect=Dialect(), block_bytes=8)
        read = b"".join(block.data for block in parsed if isinstance(block, TextBlock))
        assert isinstance(parsed[-1], TextBlock)
        assert "quote" in parsed[-1].reason
        assert text.endswith(read)
        if len(blocks) == 1:
            assert read == text


def test_records_of_other_lengths_stay_text() -> None:
    (block,) = parse(b"a,b\n1,2\n1,2,3\n", block_bytes=1 << 20)
    assert block.data == b"a,b\n1,2\n1,2,3\n"


def test_bytes_that_are_no_utf8_stay_as_they_are() -> None:
    text = b"a,b\n\xe4,1\n"
    (block,) = parse(text, block_bytes=1 << 20)
    assert block.data == text
    assert columns(text, dialect=Dialect(encoding="latin-1")) == {"a": ["ä"], "b": [1]}


def test_text_in_another_encoding_than_it_says_is_refused() -> None:
    parser = TextParser(Dialect(encoding="utf-16-le"), block_bytes=1)
    with pytest.raises(InvalidArgument, match="byte order mark"):
        parser.feed(b"\x00\xd8\x00\x00\x00\x00")


def test_backslashes_beside_nulls_stay_text() -> None:
    """PostgreSQL's text format: a backslash and n is an end of line."""
    assert columns(b"1\t\\N\n2\tx\n") == {"f0": [1, 2], "f1": [None, "x"]}
    (block,) = parse(b"1\t\\N\n2\tx\\ny\n", block_bytes=1 << 20)
    assert isinstance(block, TextBlock)


# --- JSON


def test_json_times_stay_text_and_integers_exact() -> None:
    parsed = columns(b'{"t":"2024-05-01","o":{"t":["2024-05-01 10:00:00"]},"i":9223372036854775807}\n')
    assert parsed == {"t": ["2024-05-01"], "o": [{"t": ["2024-05-01 10:00:00"]}], "i": [2**63 - 1]}


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":9223372036854775808}\n',
        b'{"a":0.5}\n{"a":9007199254740993}\n',
        b'{"a":{"b":[0.5,9007199254740993]}}\n',
        b'{"a":1,"a":2}\n',
        b'{"a":1}\n{"a":"x"}\n',
        b'{"a":1}\n{"z":1}\n',
        b'{"a":1\n',
    ],
)
def test_json_that_columns_would_not_keep_stays_text(text: bytes) -> None:
    (block,) = parse(text, block_bytes=1 << 20, dialect=JSON)
    assert isinstance(block, TextBlock)
    assert block.data == text


def test_json_keys() -> None:
    blocks = [b'{"a":1,"b":null}\n', b'{"a":2}\n', b'{"a":3,"b":"x","c":[1]}\n', b'{"z":1}\n', b'{"a":4}\n']
    first, two, three, four, five = parse(*blocks, b'{"a":5}\n', dialect=JSON)[:5]
    assert first.to_pydict() == {"a": [1], "b": [None]}
    assert two.to_pydict()["a"] == [2]
    assert three.to_pydict() == {"a": [3], "b": ["x"], "c": [[1]]}
    assert isinstance(four, TextBlock)
    assert five.to_pydict() == {"a": [4], "b": [None], "c": [None]}


def test_json_over_several_lines() -> None:
    text = b'{\n "a": 1,\n "o": [\n  {\n"x": 1\n},\n  {"x": 2}\n ]\n}\n{\n "a": 2,\n "o": []\n}\n'
    for length in (1, 7, 1000):
        parsed = parse(*(text[i : i + length] for i in range(0, len(text), length)))
        rows = [row for block in parsed for row in block.to_pylist()]
        assert rows == [{"a": 1, "o": [{"x": 1}, {"x": 2}]}, {"a": 2, "o": []}]


def test_an_array_with_something_after_it_is_text() -> None:
    for text in (b'[{"a":1}] x', b'[{"a":1}', b"[1,2]"):
        (block,) = parse(text, dialect=Dialect(kind="json", layout="array"), block_bytes=1 << 20)
        assert block.data == text


@pytest.mark.parametrize(
    ("text", "is_long"),
    [
        ('{"a":9007199254740993}', True),
        ('{"a": -9007199254740993 }', True),
        ('{"a":[0.5,90071992547409931]}', True),
        ('{"a":0.1234567890123456789}', False),
        ('{"a":-0.1234567890123456789e-10,"b":1.5}', False),
        ('{"a":12345678901234567.5}', False),
        ('{"a":12345678901234567e3}', False),
        ('{"a":123456789012345}', False),
    ],
)
def test_integers_that_doubles_may_round(text: str, is_long: bool) -> None:
    assert matches(text.encode(), LONG_INTEGER) is is_long
