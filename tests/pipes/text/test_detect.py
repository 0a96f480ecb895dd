"""Dialects that are found in a text, and dialects as plain values."""

from __future__ import annotations

import pytest
from entrepot.errors import InvalidArgument
from entrepot_pipes.text.detect import detect
from entrepot_pipes.text.dialect import Dialect
from entrepot_pipes.text.json_keys import KeyFit, KeyHeader


@pytest.mark.parametrize(
    ("text", "delimiter", "header"),
    [
        ("id,name\n1,x\n", ",", True),
        ("1,1.5,2.5\n2,2.5,3.5\n", ",", False),
        ("1.5,2.5\n", ",", False),
        ("a;b\n1,5;2,5\n3,5;4,5\n", ";", True),
        ("2024-05-01 10:00:00|5\n2024-05-01 11:00:00|6\n", "|", False),
        ("a\tb,c\nx\ty\n", "\t", True),
        ("root:x:0:0\nbin:x:1:1\n", ":", False),
        ("a b\n1 2\n", " ", True),
        ('a,b\n"x;;;;;y",1\n', ",", True),
        (",a,b\n0,x,y\n", ",", True),
        ("x,y\nx,y\n", ",", True),
        ("x,x\ny,z\n", ",", False),
        ("1\x012\n", "\x01", False),
        ("single\nvalues\n", ",", True),
        ("a,b\n", ",", True),
        ("", ",", True),
    ],
)
def test_delimiter_and_header(text: str, delimiter: str, header: bool) -> None:
    detected = detect(text.encode())
    assert (detected.kind, detected.delimiter, detected.header) == ("csv", delimiter, header)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\r\n1,x\r\n", {"newline": "\r\n"}),
        ("a,b\r1,x\r", {"newline": "\r"}),
        ("a|b\n'x|y'|1\n", {"quote": "'"}),
        ("a,b\nit's,1\n", {"quote": '"'}),
        ('a,b\n"say \\"x\\"",1\n', {"escape": "\\"}),
        ('a,b\n"say ""x""",1\n', {"escape": None}),
        ("1\t\\N\n", {"nulls": ("\\N",)}),
        ("\ufeffa,b\n", {"encoding": "utf-8"}),
        (' {"a": 1}\n', {"kind": "json", "layout": "lines"}),
        ('[\n {"a": 1}]', {"kind": "json", "layout": "array"}),
        ("[]", {"kind": "json", "layout": "array"}),
    ],
)
def test_other_properties(text: str, expected: dict[str, object]) -> None:
    detected = detect(text.encode())
    assert {name: getattr(detected, name) for name in expected} == expected


def test_dialects_are_plain_values() -> None:
    dialect = Dialect(delimiter="|", nulls=("NULL", ""), escape="\\", header=False)
    assert Dialect.from_dict(dialect.to_dict()) == dialect
    assert Dialect.from_dict({}) == Dialect()


@pytest.mark.parametrize(
    "values",
    [
        {"delimiter": ""},
        {"delimiter": "ab"},
        {"delimiter": "\n"},
        {"delimiter": None},
        {"delimiter": "é"},
        {"quote": ","},
        {"escape": '"'},
        {"kind": "xml"},
        {"nulls": []},
        {"nulls": "NA"},
        {"nulls": [","]},
        {"encoding": "utf-99"},
        {"header": "yes"},
        {"colour": 1},
    ],
)
def test_what_is_no_dialect(values: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=r"dialect"):
        Dialect.from_dict(values)


def test_key_headers() -> None:
    header = KeyHeader()
    assert header.add(["a", "b"]) is KeyFit.EXTENDS
    assert header.add(["b"]) is KeyFit.KNOWN
    assert header.add(["z", "y"]) is KeyFit.DISJOINT
    assert header.add(["a", "c"]) is KeyFit.EXTENDS
    assert header.keys == ("a", "b", "c")
    assert header.add([]) is KeyFit.KNOWN
