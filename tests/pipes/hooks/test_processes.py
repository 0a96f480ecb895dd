"""How the hooks come into processes, and what they do there before a pipe is opened."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_pipes import open_export, open_import
from entrepot_pipes.hooks import versions
from entrepot_pipes.hooks.duckdb_sql import find_sources, mentions_pipe, parse_copy
from entrepot_pipes.hooks.environment import LOADER, hooked_environment
from entrepot_pipes.hooks.exact import exact_table
from entrepot_pipes.hooks.reserved import pipe_of

WATCHDOG_SECONDS = 100.0


def python(code: str, environment: dict[str, str]) -> str:
    """What a Python program prints, with what it says on stderr."""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WATCHDOG_SECONDS,
        check=True,
    )
    return ran.stdout


def test_the_environment_is_inherited_and_a_program_s_own_path_stays() -> None:
    environment = hooked_environment({"PYTHONPATH": f"/a:{LOADER}:/b", "X": "1"})
    assert environment == {"PYTHONPATH": f"{LOADER}:/a:/b", "X": "1"}


def test_an_existing_sitecustomize_is_loaded_and_nothing_heavy(tmp_path: Path) -> None:
    import os

    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.from_the_program = __file__\n")
    code = "import sys, builtins\nprint(from_the_program)\nprint(type(builtins.open).__name__)\n"
    code += "print(sorted({'pyarrow', 'pandas', 'numpy', 'polars'} & set(sys.modules)))"
    printed = python(code, hooked_environment({**os.environ, "PYTHONPATH": str(tmp_path)}))
    assert printed.splitlines() == [str(tmp_path / "sitecustomize.py"), "FunctionWrapper", "[]"]


def test_children_have_the_hooks_too() -> None:
    import os

    inner = "import builtins; print(type(builtins.open).__name__)"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {inner!r}], check=True)"
    assert python(code, hooked_environment(dict(os.environ))) == "FunctionWrapper\n"


def test_pipe_run_loads_the_hooks() -> None:
    """Two unmodified programs, each under ``entrepot pipe run``."""
    name = f"db://run-{uuid.uuid4().hex[:12]}"
    run = [sys.executable, "-m", "entrepot", "pipe", "run", "--", sys.executable, "-c"]
    write = f"import pandas as pd\npd.DataFrame({{'a': [1, 2], 's': ['x y', 'zz']}}).to_csv({name!r}, index=False)"
    read = f"import duckdb\nprint(duckdb.sql(\"FROM read_csv('{name}')\").fetchall())"
    writing = subprocess.Popen([*run, write])
    try:
        reading = subprocess.run([*run, read], stdout=subprocess.PIPE, text=True, timeout=WATCHDOG_SECONDS, check=True)
        assert writing.wait(WATCHDOG_SECONDS) == 0
    finally:
        writing.kill()
        writing.wait(WATCHDOG_SECONDS)
    assert reading.stdout == "[(1, 'x y'), (2, 'zz')]\n"


def test_ordinary_files_are_as_before(tmp_path: Path) -> None:
    import os

    code = f"""
import io, os, pathlib
path = pathlib.Path({str(tmp_path / "db__reserved__")!r})
path.write_text("x")
print(open(path).read(), io.open(str(path).encode()).read(), os.stat(path).st_size, os.path.exists(path), path.exists())
print(os.path.exists("/nowhere"), open(0).fileno())
"""
    assert python(code, hooked_environment(dict(os.environ))) == "x x 1 True True\nFalse 0\n"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("db://orders", "db://orders"),
        (Path("db://orders?workers=2&query=q"), "db://orders?workers=2&query=q"),
        (b"db://orders", "db://orders"),
        ("orders.csv", None),
        ("__reserved__orders", None),
        (3, None),
        (None, None),
    ],
)
def test_reserved_names(path: Any, name: str | None) -> None:
    result = pipe_of(path)
    assert (None if result is None else str(result)) == name


def test_a_malformed_name_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="workers"):
        pipe_of("db://orders?workers=none")


@pytest.mark.parametrize("version", ["1.9", "99.0"])
def test_other_versions_get_text_and_one_warning(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_seen", {})
    monkeypatch.setattr("importlib.metadata.version", lambda library: version)
    with pytest.warns(RuntimeWarning, match=f"pandas {version} was not tested"):
        assert not versions.takes_columns("pandas")
    assert not versions.takes_columns("pandas")


@pytest.mark.parametrize("library", ["pandas", "duckdb", "polars", "pyarrow"])
def test_the_installed_versions_are_tested_ones(library: str) -> None:
    pytest.importorskip(library)
    assert versions.takes_columns(library)


def test_copy_statements() -> None:
    copy = parse_copy("COPY (SELECT 'it''s' AS a) TO 'db://x' (FORMAT csv, DELIMITER ',', HEADER);")
    assert copy is not None
    assert (copy.query, copy.writes, str(copy.target)) == ("SELECT 'it''s' AS a", True, "db://x")
    assert copy.options == {"FORMAT": "csv", "DELIMITER": ",", "HEADER": "true"}
    plain = parse_copy("copy t from 'db://x'")
    assert plain is not None
    assert (plain.query, plain.writes, plain.options) == ("FROM t", False, {})
    other = parse_copy("COPY t TO 'db://x' (FORCE_QUOTE (a, b))")
    assert other is not None
    assert other.options is None
    assert parse_copy("COPY t TO 'x.csv'") is None


def test_sources_of_queries() -> None:
    query = "SELECT 'db://no' FROM read_csv('db://a') JOIN 'db://b' JOIN read_csv('db://c', header=true) USING (i)"
    result = [(str(source.target), source.alone) for source in find_sources(query)]
    assert result == [("db://c", False), ("db://b", True), ("db://a", True), ("db://no", False)]
    assert mentions_pipe(query)
    assert not mentions_pipe("SELECT 'x' -- db:")


@pytest.mark.parametrize(
    ("column", "exact"),
    [
        ([1, None], True),
        ([0.5, None], True),
        ([0.5, float("nan")], False),
        ([0.5, float("inf")], False),
        ([True, False], True),
        ([True, None], False),
        (["abc", "d e"], True),
        (["abc", None], True),
        (["abc", ""], False),
        (["abc", "NA"], False),
        (["abc", "007"], False),
        (["abc", "2024-01-01"], False),
        (["abc", "true"], False),
        (["abc", " x"], False),
        (["abc", "1e5"], False),
        ([None, None], False),
        ([[1], [2]], False),
    ],
)
def test_which_columns_are_what_their_text_would_be(column: list[Any], exact: bool) -> None:
    import pyarrow as pa

    assert (exact_table(pa.table({"i": [1, 2], "c": column})) is not None) is exact


def test_writers_exist_and_readers_do_not(hosts: Callable[[str], Any], pipe_names: Callable[[], str]) -> None:
    name, host = pipe_names(), hosts("existence")
    look = f"import os, pathlib\nprint(os.path.exists({name!r}), pathlib.Path({name!r}).exists())"
    host.begin(look)
    assert host.end().printed == "False False\n"
    with open_export(name, form="text") as export:
        host.begin(look)
        assert host.end().printed == "True True\n"
        export.abort("the test is over")
    with pytest.raises(Exception, match="the test is over"), open_import(name, form="text") as opened:
        opened.read_text()
