"""Names of pipes and reserved file names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from entrepot.errors import InvalidArgument
from entrepot_pipes.names import PipeName, is_reserved, parse, parse_reserved, reserved_file


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("db://orders", PipeName("orders")),
        ("db:/orders", PipeName("orders")),
        ("db:///orders", PipeName("orders")),
        ("db://orders/", PipeName("orders")),
        ("db://sales/2024/orders.csv", PipeName("sales/2024/orders.csv")),
        ("db://orders?workers=3&query=q1", PipeName("orders", 3, "q1")),
        ("db://orders?query=q1", PipeName("orders", 1, "q1")),
        ("db://bestände?query=a.b-c", PipeName("bestände", 1, "a.b-c")),
    ],
)
def test_names(text: str, name: PipeName) -> None:
    assert parse(text) == name
    assert parse(str(name)) == name


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("orders", "db://name"),
        ("db:orders", "db://name"),
        ("db://", "letters, digits"),
        ("db://a b", "letters, digits"),
        ("db://../x", "letters, digits"),
        ("db://a//b", "letters, digits"),
        ("db://" + "x" * 101, "1 to 100 bytes"),
        ("db://x#y", "db://name"),
        ("db://x?workers=0", "1 to 64 workers, not 0"),
        ("db://x?workers=65", "1 to 64 workers"),
        ("db://x?workers=-1", "workers=-1"),
        ("db://x?workers=many", "workers=many"),
        ("db://x?workers=1&workers=2", "once each"),
        ("db://x?worker=1", "'worker=1'"),
        ("db://x?query=a/b", "query"),
        ("db://x?query=" + "q" * 101, "at most 100 bytes"),
    ],
)
def test_malformed_names(text: str, part: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse(text)
    assert part in str(refused.value)


@pytest.mark.parametrize("name", [PipeName("orders"), PipeName("a/b.c", 3, "q1"), PipeName("bestände", 64)])
@pytest.mark.parametrize("suffix", ["", ".csv", ".parquet"])
def test_reserved_files_stand_for_the_same(name: PipeName, suffix: str, tmp_path: Path) -> None:
    path = reserved_file(name, tmp_path, suffix)
    assert path.parent == tmp_path
    assert parse_reserved(path) == name
    assert is_reserved(path, tmp_path)


def test_what_is_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "__reserved__orders@workers=3@query=q1.csv"
    assert parse_reserved(path) == PipeName("orders", 3, "q1")
    assert not is_reserved(path)  # no folder is reserved
    monkeypatch.setenv("ENTREPOT_PIPES_FOLDER", os.fspath(tmp_path))
    assert is_reserved(path)
    assert not is_reserved(tmp_path / "orders.csv")
    assert not is_reserved(tmp_path / "sub" / "__reserved__orders.csv")
    monkeypatch.chdir(tmp_path)
    assert is_reserved("__reserved__orders")
    with pytest.raises(InvalidArgument, match="begins with __reserved__"):
        parse_reserved("orders.csv")
