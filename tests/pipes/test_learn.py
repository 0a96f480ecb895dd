"""``entrepot pipe learn``: real programs, whose opens become pipes, and the rung on which their tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import entrepot
import pytest
from entrepot.cli import main
from entrepot.errors import InvalidArgument, Timeout
from entrepot_pipes import open_import
from entrepot_pipes.learn.lesson import learned
from entrepot_pipes.learn.supervisor import Call, NoNotifications, run_supervised
from entrepot_pipes.profiles.model import Profile, read_profile, write_profile
from postgres_server import NoPostgres, programs_folder, run_server

WAIT = 60.0
Learn = Callable[..., Profile]


@pytest.fixture(autouse=True)
def notifications() -> None:
    """Skips the test where the kernel or a container has no notifications of calls."""
    try:
        assert run_supervised(["true"], "/nowhere", lambda call: None, WAIT) == 0
    except NoNotifications as error:
        pytest.skip(str(error))


@pytest.fixture
def learn(store: entrepot.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Learn:
    """``learn(script, pattern)``: the profile of a shell script's programs."""
    monkeypatch.chdir(tmp_path)

    def run(script: str, file: str = "rows.csv", timeout: float = WAIT) -> Profile:
        return learned(store, ["sh", "-ec", script], str(tmp_path / file), "engine", "1.0", timeout)

    return run


def python(code: str) -> str:
    return f"{sys.executable} -S -c '{code}'"


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 program is not on this machine")
def test_sqlite(learn: Learn) -> None:
    profile = learn(
        """
        rm -f a.db
        sqlite3 a.db "CREATE TABLE t(i, s); INSERT INTO t VALUES (1, 'a;b'), (2, 'q''x'); CREATE TABLE u(i, s)"
        sqlite3 -header a.db ".mode list" ".separator |" ".output rows.csv" "SELECT * FROM t"
        test -s rows.csv
        test "$(wc -l < rows.csv)" -eq 3
        sqlite3 a.db ".separator |" ".import --skip 1 rows.csv u"
        test -z "$(sqlite3 a.db 'SELECT i || s FROM t EXCEPT SELECT i || s FROM u')"
        """
    )
    assert profile.rung == "blocks"
    assert profile.reason == "blocks: passed with 1 exports and 2 imports through pipes"
    assert profile.dialect is not None
    assert (profile.dialect["delimiter"], profile.dialect["header"]) == ("|", True)
    assert profile.use.exporters == ["sqlite3"]
    assert set(profile.use.importers) >= {"sqlite3"}


@pytest.fixture(scope="module")
def psql() -> Iterator[str]:
    """The command that runs psql in a database of its own."""
    try:
        with run_server() as server:
            server.create("learning")
            host = server.url("learning").rpartition("host=")[2]
            yield f"{programs_folder() / 'psql'} -X -q -v ON_ERROR_STOP=1 -h {host} -U airflow -d learning -At"
    except NoPostgres as error:
        pytest.skip(str(error))


def test_psql(learn: Learn, psql: str) -> None:
    profile = learn(
        f"""
        P="{psql}"
        $P -c "DROP TABLE IF EXISTS t, u; CREATE TABLE t(i int, x float8, s text); CREATE TABLE u (LIKE t)"
        $P -c "INSERT INTO t VALUES (1, 0.5, 'a,b'), (2, 1e300, NULL)"
        $P -c "\\copy t TO 'rows.csv' WITH (FORMAT csv, HEADER)"
        $P -c "\\copy u FROM 'rows.csv' WITH (FORMAT csv, HEADER)"
        test -z "$($P -c 'SELECT * FROM t EXCEPT SELECT * FROM u')"
        test "$($P -c 'SELECT count(*) FROM u')" = 2
        """
    )
    assert (profile.rung, profile.use.exporters, profile.use.importers) == ("blocks", ["psql"], ["psql"])


def test_spelling_that_columns_lose_is_left_to_bytes(learn: Learn) -> None:
    profile = learn("""printf '"a","b"\n1,x\n' > rows.csv; test "$(head -n 1 rows.csv)" = '"a","b"'""")
    assert profile.rung == "bytes"
    assert profile.reason.startswith("blocks: exit code 1; bytes: passed")


def test_a_program_that_seeks_gets_a_file(learn: Learn) -> None:
    seeks = 'f = open("rows.csv", "rb"); f.seek(0, 2); assert f.tell() == 8'
    profile = learn(f"printf 'a,b\\n1,2\\n' > rows.csv; {python(seeks)}")
    assert profile.rung == "file"
    assert profile.use.seeks > 0


def test_appends_changes_and_double_opens_are_seen(learn: Learn) -> None:
    twice = 'open("rows.csv").read(); open("rows.csv").read(); open("rows.csv", "r+").close()'
    profile = learn(f"echo a,b > rows.csv; echo 1,2 >> rows.csv; {python(twice)}")
    assert (profile.use.appends, profile.use.opens_to_change, profile.use.double_opens) == (1, 1, 2)


def test_children_and_other_folders_and_patterns(learn: Learn) -> None:
    profile = learn(
        "mkdir -p d; (cd d; echo a > x.csv; cat x.csv | grep -q a); ! cat d/none.csv 2> /dev/null", "d/*.csv"
    )
    assert profile.rung == "blocks"


def test_a_reader_that_stops_early_is_no_error(learn: Learn) -> None:
    profile = learn('seq 1000000 > rows.csv; test "$(head -n 2 rows.csv | tail -n 1)" = 2')
    assert profile.rung == "blocks"


def test_a_file_that_is_removed_at_once(learn: Learn) -> None:
    assert learn("echo a > rows.csv; rm rows.csv; test ! -e rows.csv").rung == "blocks"


@pytest.mark.parametrize(
    ("script", "message"), [("exit 3", "exit code 3 without any pipe"), ("true", "open no file that matches")]
)
def test_tests_that_teach_nothing(script: str, message: str, learn: Learn) -> None:
    with pytest.raises(InvalidArgument, match=message):
        learn(script)


def test_tests_that_do_not_end_are_killed(learn: Learn, tmp_path: Path) -> None:
    with pytest.raises(Timeout, match="did not end within 1 s"):
        learn("echo $$ > pid; sleep 100", timeout=1.0)
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}")


def test_an_unknown_program(store: entrepot.Store) -> None:
    with pytest.raises(InvalidArgument, match="no program 'no-such-program'"):
        run_supervised(["no-such-program"], "/x", lambda call: None, WAIT)


def test_a_static_program_is_seen(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or pytest.skip("there is no C compiler")
    source, program, data = tmp_path / "s.c", tmp_path / "static", tmp_path / "data.csv"
    source.write_text(f'#include <fcntl.h>\nint main(void) {{ return open("{data}", O_RDONLY) < 0; }}\n')
    built = subprocess.run([compiler, "-static", "-o", program, source], capture_output=True, check=False)
    if built.returncode:
        pytest.skip("there is no static C library")
    data.write_text("a\n")
    programs: list[str] = []

    def answer(call: Call) -> None:
        if call.opens:
            programs.append(os.path.basename(call.program))

    assert run_supervised([str(program)], str(data), answer, WAIT) == 0
    assert programs == ["static"]


def test_the_command_writes_a_profile(
    store: entrepot.Store, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["pipe", "learn", "--address", store.address, "--output", "p.yaml", "rows.csv", "--"]
    assert main([*words, "sh", "-c", "echo 'a;b' > rows.csv; cat rows.csv > copy"]) == 0
    assert "sh: rung blocks" in capfd.readouterr().out
    profile = read_profile(tmp_path / "p.yaml")
    assert profile.use.importers == ["cat"]
    assert write_profile(profile, None) == (tmp_path / "p.yaml").read_text()
    assert main([*words]) == 1


def a_profile(path: Path, version: str, rung: str) -> None:
    use = "{exporters: [], importers: [], seeks: 0, double_opens: 0, appends: 0, opens_to_change: 0}"
    path.write_text(
        f"{{engine: t, versions: ['{version}'], rung: {rung}, reason: r, dialect: {{delimiter: '|'}}, use: {use}}}"
    )


@pytest.mark.parametrize("version", ["7.5", "7.6"])
def test_a_profile_says_the_dialect_of_its_version(version: str, store: entrepot.Store, tmp_path: Path) -> None:
    profile, program = tmp_path / "p.yaml", tmp_path / "program"
    a_profile(profile, version, "blocks")
    program.write_text("#!/bin/sh\nif [ \"$1\" = --version ]; then echo t 7.6; else echo 'a;b|c' > $1; fi\n")
    program.chmod(0o755)
    words = [str(program), "db://p"]
    run = [sys.executable, "-m", "entrepot.cli", "pipe", "run", "--profile", str(profile), "--export", "db://p", "--"]
    exporter = subprocess.Popen([*run, *words], stderr=subprocess.PIPE, text=True)
    with open_import("db://p", store=store, timeout=WAIT) as reader:
        names = reader.schema.names
        assert sum(batch.num_rows for batch in reader) == 0
    _, errors = exporter.communicate(timeout=WAIT)
    outside = version != "7.6"
    assert ("is version 7.6, and the profile of t is for 7.5" in errors) is outside
    assert names == (["a", "b|c"] if outside else ["a;b", "c"])


def test_a_profile_may_say_that_the_program_needs_a_file(
    store: entrepot.Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    a_profile(tmp_path / "p.yaml", "1", "file")
    words = ["pipe", "run", "--address", store.address, "--profile", str(tmp_path / "p.yaml"), "--", "true"]
    assert main(words) == 1
    assert "needs a file" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "engine: x", "\x00", "{engine: x, rung: none}"])
def test_what_is_no_profile(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(InvalidArgument, match="is no profile"):
        read_profile(tmp_path / "p.yaml")
