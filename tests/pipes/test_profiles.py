"""The profiles of the package: they are what `pipe learn` says of the engines here, and are chosen by version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import entrepot
import pyarrow as pa
import pytest
from entrepot.errors import InvalidArgument
from entrepot_pipes import Dialect, open_export, open_import
from entrepot_pipes.learn.lesson import learned
from entrepot_pipes.learn.supervisor import NoNotifications
from entrepot_pipes.profiles.model import Profile, read_profile
from entrepot_pipes.profiles.shipped import dialect_hints, has_seam, profile_of_program, shipped, versions_with_seam
from entrepot_pipes.profiles.versions import within
from entrepot_pipes.text.detect import detect
from postgres_server import USER, NoPostgres, run_server

WAIT = 60.0
SCRIPTS = Path(__file__).with_name("profiles")
ENGINES = {"pandas", "DuckDB", "SQLite", "PostgreSQL", "Spark", "Derby"}


def test_every_engine_has_one_that_covers_what_it_was_learned_with() -> None:
    assert {profile.engine for profile in shipped().values()} >= ENGINES
    for name, profile in shipped().items():
        assert profile.versions, name
        assert profile.learned_with, name
        assert all(profile.covers(version) for version in profile.learned_with), name
        assert not profile.covers("0.1"), name
        Dialect.from_dict(profile.hints)


def learn(store: entrepot.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Profile:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    try:
        script = str(SCRIPTS / f"{name}.sh")
        return learned(store, ["sh", "-e", script], str(tmp_path / "rows.csv"), name, "", WAIT)
    except NoNotifications as error:
        pytest.skip(str(error))


def check(name: str, learnt: Profile) -> None:
    """What was learned here is what the package says."""
    profile = shipped()[name]
    assert learnt.rung == "blocks"
    assert learnt.reason in profile.reason
    assert learnt.dialect is not None
    assert profile.dialect is not None
    assert Dialect.from_dict(learnt.dialect) == Dialect.from_dict(profile.dialect)
    for use in ("double_opens", "appends", "opens_to_change"):
        assert getattr(learnt.use, use) == getattr(profile.use, use)


@pytest.mark.parametrize(
    ("name", "program"), [("sqlite", "sqlite3"), ("duckdb-cli", "duckdb"), ("duckdb", "python"), ("pandas", "python")]
)
def test_it_is_what_is_learned_here(
    name: str, program: str, store: entrepot.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program == "python":
        pytest.importorskip(name)
    elif shutil.which(program, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") is None:
        pytest.skip(f"the program {program} is not on this machine")
    check(name, learn(store, tmp_path, monkeypatch, name))


def test_it_is_what_is_learned_from_psql(
    store: entrepot.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        with run_server() as server:
            server.create("learning")
            monkeypatch.setenv("PGHOST", server.url("learning").rpartition("host=")[2])
            monkeypatch.setenv("PGUSER", USER)
            monkeypatch.setenv("PGDATABASE", "learning")
            check("postgresql", learn(store, tmp_path, monkeypatch, "postgresql"))
    except NoPostgres as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("version", "range_", "expected"),
    [
        ("3.40.1", "3.40.1", True),
        ("3.40.2", "3.40.1", False),
        ("15.18", ">=15,<19", True),
        ("19", ">=15,<19", False),
        ("3.1.1rc2", ">=2.2,<4", True),
        ("10.14.2.0", ">=10.14,<10.15", True),
        ("", ">=1", False),
        ("unknown", ">=1", False),
    ],
)
def test_versions(version: str, range_: str, expected: bool) -> None:
    assert within(version, range_) is expected


@pytest.mark.parametrize(("line", "reason"), [("versions: [x.y]", "neither a version"), ("fixed: [header]", "header")])
def test_what_no_profile_says(line: str, reason: str, tmp_path: Path) -> None:
    text = "engine: t\nversions: []\nrung: blocks\nreason: r\n"
    lines = [each for each in text.splitlines() if each.split(":")[0] != line.split(":")[0]]
    (tmp_path / "p.yaml").write_text("\n".join([*lines, line]))
    with pytest.raises(InvalidArgument, match=reason):
        read_profile(tmp_path / "p.yaml")


def test_hints_are_those_of_the_version() -> None:
    warnings: list[str] = []
    assert dialect_hints("derby", "10.14.2.0", warnings.append) == {"header": False}
    assert dialect_hints("spark", "3.5.7", warnings.append) == {"escape": "\\"}
    assert dialect_hints("nothing", "1", warnings.append) == {}
    assert not warnings
    assert dialect_hints("derby", "10.17.1.0", warnings.append) == {}
    assert len(warnings) == 1
    assert "derby is version 10.17.1.0" in warnings[0]


def test_libraries_have_seams_and_programs_have_none() -> None:
    assert has_seam("pandas", "3.1.1")
    assert not has_seam("pandas", "4.0")
    with pytest.raises(KeyError):
        versions_with_seam("sqlite")
    assert profile_of_program("psql") is shipped()["postgresql"]
    assert profile_of_program("cat") is None


@pytest.mark.parametrize(
    ("text", "hints", "escape", "header"),
    [
        ('a,b\n1,"x,y"\n', {"escape": "\\"}, "\\", True),
        ('a,b\n1,""\n2,"x,y"\n', {"escape": "\\"}, "\\", True),  # an empty text is no doubled quote
        ('a,b\n1,"x ""y"""\n', {"escape": "\\"}, None, True),
        ('a,b\n1,"x \\"y\\""\n', {"escape": "\\"}, "\\", True),
        ("one,two\nthree,four\n", {"header": False}, None, False),
        ("one,two\nthree,four\n", {}, None, True),
    ],
)
def test_what_is_known_beside_what_the_text_shows(
    text: str, hints: dict[str, object], escape: str | None, header: bool
) -> None:
    dialect = detect(text.encode(), hints=hints)
    assert (dialect.escape, dialect.header) == (escape, header)


def test_ends_take_what_is_known(store: entrepot.Store) -> None:
    export = open_export("db://names", store=store, form="text", hints={"header": False}, timeout=WAIT)
    reader = open_import("db://names", store=store, timeout=WAIT)
    with export:
        export.write_text(b"one,two\nthree,four\n")
    table = pa.Table.from_batches(list(reader))
    assert table.to_pydict() == {"f0": ["one", "three"], "f1": ["two", "four"]}

    export = open_export("db://quotes", store=store, timeout=WAIT)
    reader = open_import("db://quotes", store=store, form="text", hints={"escape": "\\"}, timeout=WAIT)
    with export:
        export.write(pa.table({"s": ['a"b']}))
    assert reader.read_text() == b's\n"a\\"b"\n'


@pytest.mark.parametrize("version", ["3.45.0", "5.1"])
def test_a_program_outside_of_its_profile_gets_one_warning(version: str, store: entrepot.Store, tmp_path: Path) -> None:
    program = tmp_path / "sqlite3"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo {version}; else printf "a;b\\n1;2\\n" > $1; fi\n'
    )
    program.chmod(0o755)
    run = [sys.executable, "-m", "entrepot.cli", "pipe", "run", "--export", "db://p", "--", str(program), "db://p"]
    exporter = subprocess.Popen(run, stderr=subprocess.PIPE, text=True)
    with open_import("db://p", store=store, timeout=WAIT) as reader:
        assert pa.Table.from_batches(list(reader)).to_pydict() == {"a": [1], "b": [2]}
    _, errors = exporter.communicate(timeout=WAIT)
    assert exporter.returncode == 0
    assert len(re.findall("the profile of SQLite is for", errors)) == (version == "5.1")
