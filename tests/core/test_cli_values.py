"""``entrepot get --head`` and ``entrepot diff``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import entrepot
import pytest
from entrepot._cli.comparing import differences_between
from entrepot.cli import main

Run = Callable[..., str]


@pytest.fixture(scope="module")
def store(module_daemon: Any) -> Iterator[entrepot.Store]:
    """Connection to the module's store."""
    with entrepot.connect(module_daemon.address) as connected:
        yield connected


@pytest.fixture
def cli(module_daemon: Any, capsys: pytest.CaptureFixture[str]) -> Run:
    """``cli("get", "name", code=0)``: run a subcommand; return what it printed."""

    def run(*arguments: object, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*map(str, arguments), "--address", module_daemon.address]) == code
        printed = capsys.readouterr()
        return printed.out if code in (0, 3) else printed.err

    return run


def test_the_first_rows_of_tables(cli: Run, store: entrepot.Store) -> None:
    pa = pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    columns = {"n": [1, 2, 3], "text": ["a", "\x1b[31m", None]}
    for name, value, header in (
        ("arrow", pa.table(columns), ["n int64", "text string"]),
        ("batch", pa.record_batch(columns), ["n int64", "text string"]),
        ("pandas", pd.DataFrame(columns), ["n int64"]),
        ("polars", pl.DataFrame(columns), ["n Int64", "text String"]),
    ):
        store.put(value, name=name)
        printed = cli("get", name, "--head", 2)
        lines = printed.splitlines()
        assert all(each in lines[0] for each in header)
        assert lines[1].split()[-2:] == ["1", "a"]
        assert r"\x1b[31m" in lines[2]
        assert lines[3] == "2 of 3 rows"
        assert "2 of" not in cli("get", name, "--head", 3)


def test_what_cannot_be_shown_hides_nothing_else(cli: Run, store: entrepot.Store) -> None:
    pa = pytest.importorskip("pyarrow")
    store.put(pa.table({"t": pa.array([0, 2**40], pa.timestamp("s")), "n": [1, 2]}), name="beyond the year 9999")
    lines = cli("get", "beyond the year 9999", "--head", 2).splitlines()
    assert lines[1].split() == ["1970-01-01", "00:00:00", "1"]
    assert lines[2].rstrip() == "<value out of range: 1099511627776>  2"
    store.put([10**5000], name="long")
    assert "cannot be printed (ValueError: Exceeds the limit" in cli("get", "long", code=1)
    assert "<not shown: ValueError: Exceeds the limit" in cli("get", "long", "--head", 1)


def test_the_first_of_other_values(cli: Run, store: entrepot.Store) -> None:
    np = pytest.importorskip("numpy")
    for name, value, expected in (
        ("array", np.arange(20).reshape(5, 4), "[0, 1, 2, 3]"),
        ("list", ["x", "y", "z"], "x"),
        ("dict", {"a": 1, "b": 2}, "a    1"),
    ):
        store.put(value, name=name)
        (header, row, count) = cli("get", name, "--head", 1).splitlines()
        assert row.rstrip() == expected
        assert count.startswith("1 of ")
        assert header
    store.put(17, name="number")
    assert "has no rows of which --head" in cli("get", "number", "--head", 1, code=1)
    assert "only one of these options" in cli("get", "list", "--head", 1, "-o", "x", code=1)


def test_the_first_bytes(module_daemon: Any, store: entrepot.Store) -> None:
    store.put(bytes(range(256)), name="bytes")
    command = [sys.executable, "-m", "entrepot", "get", "bytes", "--head", "3", "--address", module_daemon.address]
    assert subprocess.run(command, capture_output=True, timeout=60, check=True).stdout == b"\x00\x01\x02"


@pytest.mark.parametrize("count", ["0", "-1", "x", "1.5", "²"])
def test_the_number_of_rows_is_checked(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["get", "x", f"--head={count}"])
    assert "whole number of at least 1" in capsys.readouterr().err


def test_diff_of_tables(cli: Run, store: entrepot.Store) -> None:
    pa = pytest.importorskip("pyarrow")
    first = pa.table({"n": list(range(100)), "same": [1.5] * 100, "gone": ["x"] * 100})
    second = pa.table({"n": [*range(50), 0, *range(51, 100)], "same": [1.5] * 100, "new": [True] * 100})
    store.put(first, name="A")
    store.put(second, name="B")
    printed = cli("diff", "A", "B", code=3)
    assert "column 'gone' is only in A" in printed
    assert "column 'new' is only in B" in printed
    assert "column 'n': 1 row differs" in printed
    assert "50   50  0" in printed
    assert "'same'" not in printed
    assert "the values are equal" in cli("diff", "A", "A")
    store.put(first.slice(0, 100), name="copy")
    assert "the values are equal" in cli("diff", "A", "copy")
    assert "nothing" in cli("diff", "A", "nothing", code=1)


def test_diff_says_what_is_shared(cli: Run, store: entrepot.Store) -> None:
    np = pytest.importorskip("numpy")
    store.put(np.arange(100_000), name="whole")
    store.put(store.get_by_name("whole")[:50_000], name="half")
    lines = cli("diff", "whole", "half", code=3).splitlines()
    assert lines[1].endswith("390.6 KiB")
    assert "array: int64 (100000,) and int64 (50000,)" in lines


def test_differences_between_values() -> None:
    np = pytest.importorskip("numpy")
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    nan = float("nan")
    equal = [
        (np.array([1.0, nan]), np.array([1.0, nan])),
        (pd.DataFrame({"a": [1.0, nan]}), pd.DataFrame({"a": [1.0, nan]})),
        (pl.DataFrame({"a": [nan]}), pl.DataFrame({"a": [nan]})),
        (pd.Series([1, 2]), pd.Series([1, 2])),
        (pl.Series([1, 2]), pl.Series([1, 2])),
        ([1, {"a": nan, "b": np.array([1, 2])}], [1, {"a": float("nan"), "b": np.array([1, 2])}]),
        (b"x", b"x"),
        (None, None),
        (np.float32(1), np.float32(1)),
    ]
    for first, second in equal:
        assert differences_between(first, second) == [], (first, second)
    different = [
        (np.array([1, 2, 3]), np.array([1, 9, 3]), "1 element of 3 differs"),
        (np.zeros(100), np.ones(100), "100 elements of 100 differ, of which 10 are shown"),
        (np.array([1]), np.array([1.0]), "array: int64 (1,) and float64 (1,)"),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1, 2]}), "rows: 1 and 2"),
        (pd.DataFrame({"a": [1]}), pl.DataFrame({"a": [1]}), "type: pandas.DataFrame and polars.DataFrame"),
        (pl.DataFrame({"a": [1], "b": [2]}), pl.DataFrame({"b": [2], "a": [1]}), "the columns are in another order"),
        (pd.Series([1, 2]), pd.Series([1, 3]), "1 row differs"),
        ([1, 2], [1, 2, 3], "length: 2 and 3"),
        ([1, 2], [1, 3], "1 entry differs"),
        ({"a": 1}, {"a": 2}, "1 entry differs"),
        ([np.array([1, 2])], [np.array([1, 3])], "1 entry differs"),
        (b"abc", b"abd", "the first byte that differs is at 2"),
        (b"abc", b"ab", "bytes: 3 and 2"),
        (1, 2, "the values differ"),
        (1, "1", "type: builtins.int and builtins.str"),
    ]
    for first, second, expected in different:
        assert expected in differences_between(first, second), (first, second)


def in_terminal(module_daemon: Any, *arguments: str, **environment: str) -> str:
    """Run a subcommand in a pseudo-terminal; return what it printed there."""
    master, slave = os.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "entrepot", *arguments, "--address", module_daemon.address],
            stdout=slave,
            env={**{name: text for name, text in os.environ.items() if name != "NO_COLOR"}, **environment},
        ) as process:
            os.close(slave)
            chunks: list[bytes] = []
            while True:
                try:
                    chunks.append(os.read(master, 65536))
                except OSError:  # the program has ended
                    break
            assert process.wait(60) == 0
        return b"".join(chunks).decode()
    finally:
        os.close(master)


def test_colours_in_a_terminal_only(cli: Run, module_daemon: Any, store: entrepot.Store) -> None:
    pytest.importorskip("rich")
    store.put(b"x" * 100, name="[red]brackets[/red] \\ \x1b[31m")
    for command in (("ls",), ("info", "[red]brackets[/red] \\ \x1b[31m"), ("status",)):
        styled = in_terminal(module_daemon, *command, TERM="xterm-256color", COLUMNS="200")
        assert "\x1b[1" in styled
        assert "\x1b" not in cli(*command)
        assert "\x1b[31m" not in styled
        if command[0] != "status":
            assert r"[red]brackets[/red] \\ " in styled
        if command[0] == "ls":
            columns = [re.sub(r"\x1b\[[0-9;]*m", "", line).split()[:2] for line in styled.splitlines()]
            assert columns == [line.split()[:2] for line in cli(*command).splitlines()]
    for environment in ({"TERM": "xterm-256color", "NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in in_terminal(module_daemon, "ls", **environment)


@pytest.mark.parametrize(
    ("environment", "written"),
    [
        ({"PYTHONIOENCODING": "ascii"}, r"pr\xe9nom-\u4f60"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, r"pr\xe9nom-\u4f60"),
        ({"PYTHONIOENCODING": "latin-1"}, r"pr\xe9nom-\u4f60".replace(r"\xe9", "\xe9")),
    ],
)
def test_characters_that_an_encoding_lacks_are_escaped(
    module_daemon: Any, store: entrepot.Store, environment: dict[str, str], written: str
) -> None:
    oid = store.put({"pr\xe9nom-\u4f60": 1}, name="pr\xe9nom-\u4f60", replace=True)
    second = store.put({"pr\xe9nom-\u4f60": 2})
    for command in (["ls"], ["info", str(oid)], ["get", str(oid), "--head", "2"], ["diff", str(oid), str(second)]):
        done = subprocess.run(
            [sys.executable, "-m", "entrepot", *command, "--address", module_daemon.address],
            env={**os.environ, **environment},
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == (3 if command[0] == "diff" else 0), done.stderr
        assert written in done.stdout.decode("latin-1"), command
