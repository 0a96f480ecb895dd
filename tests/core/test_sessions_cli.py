"""Sessions in the command line: listing, gc, ls over all sessions."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import entrepot
import pytest
from entrepot import _garbage, _launcher, ended_runs
from entrepot.cli import main


class Cli:
    """Run a subcommand in this process."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._address, self._capsys = address, capsys
        self.error = ""

    def __call__(self, *words: object, code: int = 0) -> str:
        self._capsys.readouterr()
        returned = main([*map(str, words), "--address", self._address])
        said = self._capsys.readouterr()
        self.error = said.err
        assert returned == code, said
        return said.out

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))


@pytest.fixture(autouse=True)
def _folders(socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Separate runtime and spill directories, so that no one else's stores are found or removed."""
    (socket_folder / "run" / "entrepot").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(socket_folder / "run"))
    monkeypatch.setattr(_garbage, "default_spill_folder", lambda: socket_folder / "spill")


@pytest.fixture
def cli(daemon: Any, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(daemon.address, capsys)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Sessions that the orchestrator ``airflow`` reports as finished; modified by the test."""
    over: dict[str, str] = {}

    class Entry:
        name = "airflow"

        def load(self) -> ended_runs.Provider:
            def provide(store: entrepot.Store, scope: str, sessions: Sequence[str]) -> Mapping[str, str]:
                assert scope == "deployment"
                assert all(one.startswith("airflow/") for one in sessions)
                if "elsewhere" in over:
                    raise ended_runs.NotLookedAt(over["elsewhere"])
                if "raise" in over:
                    raise OSError(over["raise"])
                return over

            return provide

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry()] if group == "entrepot.ended_runs" else [])
    return over


def _put(daemon: Any, session: str, scope: str = "deployment", ttl: float | None = None) -> None:
    with entrepot.connect(daemon.address, scope=scope) as store, store.session(session, ttl=ttl) as run:
        run.put(b"x" * 100_000, name="value")


def test_sessions_of_all_scopes_are_listed(cli: Cli, daemon: Any, runs: dict[str, str]) -> None:
    _put(daemon, "airflow/etl/manual__1", ttl=3600)
    _put(daemon, "own", scope="other")
    with entrepot.connect(daemon.address, scope="deployment", session="open"):
        found = {one["session"]: one for one in cli.json("sessions")}
        said = cli("sessions")
    told = found["airflow/etl/manual__1"]
    assert (told["scope"], told["objects"], told["nbytes"]) == ("deployment", 1, 100_000)
    assert (told["ttl_seconds"], told["opened_by"], told["owner"]) == (3600, 0, "airflow")
    assert found["own"]["owner"] == ""
    assert found["open"]["opened_by"] == 1
    assert "97.7 KiB" in said
    assert "3600 s" in said
    assert "default" not in said, "the session that looking opens is not told of"
    assert [one["session"] for one in cli.json("sessions", "--scope", "other")] == ["", "own"]


def test_a_session_is_removed_unless_somebody_has_it_open(cli: Cli, daemon: Any) -> None:
    _put(daemon, "run")
    assert "97.7 KiB in 1 objects" in cli("sessions", "rm", "run")
    cli("sessions", "rm", "run", code=1)
    assert "no session 'run'" in cli.error
    with entrepot.connect(daemon.address, scope="deployment", session="run") as store:
        oid = store.put(1)
        cli("sessions", "rm", "run", code=1)
        assert "1 processes have it open; --force" in cli.error
        assert store.exists(oid)
        cli("sessions", "rm", "run", "--force")
        assert not store.exists(oid)


def test_a_name_that_several_scopes_have_needs_the_scope(cli: Cli, daemon: Any) -> None:
    _put(daemon, "run")
    _put(daemon, "run", scope="other")
    cli("sessions", "rm", "run", code=1)
    assert "'deployment', 'other'" in cli.error
    cli("sessions", "rm", "run", "--scope", "other")
    assert [one["scope"] for one in cli.json("sessions") if one["session"]] == ["deployment"]


def test_a_time_to_live_is_set(cli: Cli, daemon: Any) -> None:
    _put(daemon, "run")
    cli("sessions", "ttl", "run", 90)
    assert [one["ttl_seconds"] for one in cli.json("sessions") if one["session"] == "run"] == [90]
    cli("sessions", "ttl", "none", 90, code=1)
    assert "no session 'none'" in cli.error
    cli("sessions", "ttl", "run", "nan", code=1)
    assert "but got nan" in cli.error
    assert [one["session"] for one in cli.json("sessions") if one["session"]] == ["run"], "none was made"


def test_ls_over_sessions(cli: Cli, daemon: Any) -> None:
    _put(daemon, "run")
    _put(daemon, "another")
    _put(daemon, "run", scope="other")
    assert {(one["scope"], one["session"]) for one in cli.json("ls", "--all")} == {
        ("deployment", "run"),
        ("deployment", "another"),
        ("other", "run"),
    }
    assert {one["session"] for one in cli.json("ls", "--scope", "deployment")} == {"run", "another"}
    assert "deployment: another" in cli("ls", "--all", "val*")
    assert len(cli.json("ls", "--scope", "deployment", "--session", "run")) == 1
    assert cli.json("ls", "--all", "no*") == []
    cli("ls", "--all", "--session", "run", code=1)
    assert "leave one of them out" in cli.error


def test_gc_removes_what_it_showed_and_nothing_else(cli: Cli, daemon: Any, runs: dict[str, str]) -> None:
    for name in ("airflow/etl/over", "airflow/etl/open", "airflow/etl/runs", "mine"):
        _put(daemon, name)
    runs |= dict.fromkeys(("airflow/etl/over", "airflow/etl/open", "mine"), "its run was deleted")
    with entrepot.connect(daemon.address, scope="deployment", session="airflow/etl/open") as store:
        shown = cli.json("gc", "--dry-run")
        assert [(one["kind"], one["name"]) for one in shown["removed"]] == [
            ("session", "airflow/etl/over (deployment)")
        ]
        assert (shown["removed"][0]["nbytes"], shown["removed"][0]["why"]) == (100_000, "its run was deleted")
        assert len(cli.json("sessions")) == 5, "a dry run removes nothing"
        said = cli("gc")
        assert "its run was deleted" in said
        assert "1 removed, 97.7 KiB" in said
        left = {one["session"] for one in cli.json("sessions")}
        assert left == {"", "airflow/etl/open", "airflow/etl/runs", "mine"}
        assert len(store.list()) == 1
    assert cli.json("gc")["removed"][0]["name"] == "airflow/etl/open (deployment)"
    assert "0 removed" in cli("gc")


def test_gc_says_whose_runs_it_looked_at(cli: Cli, daemon: Any, runs: dict[str, str]) -> None:
    assert "looked at" not in cli("gc"), "there is nobody's session"
    _put(daemon, "airflow/etl/run")
    assert "looked at the runs of airflow\n0 removed" in cli("gc")
    runs["elsewhere"] = "AIRFLOW_HOME does not name it"
    said = cli("gc", "--dry-run")
    assert "did not look at the runs of airflow in scope 'deployment' (AIRFLOW_HOME does not name it)" in said


def test_what_a_host_cannot_say_is_kept_and_told(cli: Cli, daemon: Any, runs: dict[str, str]) -> None:
    _put(daemon, "airflow/etl/run")
    runs["raise"] = "no database"
    cli("gc", code=1)
    assert "airflow cannot say which runs of scope 'deployment' ended: OSError: no database" in cli.error
    assert [one["session"] for one in cli.json("sessions") if one["session"]] == ["airflow/etl/run"]


def test_a_session_that_was_used_since_it_was_shown_stays(daemon: Any, runs: dict[str, str]) -> None:
    _put(daemon, "airflow/etl/run")
    runs["airflow/etl/run"] = "its run was deleted"
    with entrepot.connect(daemon.address, scope="tests") as store:
        (shown,) = _garbage.in_store(store).garbage
        with entrepot.connect(daemon.address, scope="deployment", session="airflow/etl/run"):
            assert _garbage.remove(store, shown) == "1 processes have it open"
        assert _garbage.remove(store, shown) == "it was used meanwhile"
        (shown,) = _garbage.in_store(store).garbage
        assert _garbage.remove(store, shown) == ""
        assert _garbage.remove(store, shown) == "", "it is gone, whoever removed it"
        with pytest.raises(entrepot.ObjectNotFound):
            _garbage.remove_session(store, "deployment", "airflow/etl/run")


def test_sockets_of_dead_stores_go_and_others_stay(cli: Cli, socket_folder: Path) -> None:
    folder = socket_folder / "run" / "entrepot"
    dead, alive = folder / "store.sock", folder / "other.sock"
    with socket.socket(socket.AF_UNIX) as gone, socket.socket(socket.AF_UNIX) as listening:
        gone.bind(str(dead))
        gone.close()
        (folder / "store.sock.lock").touch()
        (folder / "start.lock").touch()
        listening.bind(str(alive))
        listening.listen()
        shown = cli.json("gc", "--dry-run")["removed"]
        assert [(one["kind"], one["name"]) for one in shown] == [("socket", str(dead))]
        assert dead.exists()
        assert cli.json("gc")["removed"] == shown
        assert sorted(one.name for one in folder.iterdir()) == ["other.sock", "start.lock"]


def test_spill_folders_of_dead_stores_go_and_those_of_living_ones_stay(
    new_daemon: Callable[..., Any], capsys: pytest.CaptureFixture[str], socket_folder: Path, wait_until: Any
) -> None:
    folder = socket_folder / "spill"
    daemon = new_daemon("64MiB", "--spill-path", str(folder))
    cli = Cli(daemon.address, capsys)
    with entrepot.connect(daemon.address, scope="tests") as store:
        oid = store.put(b"x" * (8 << 20))
        store.evict(oid)
        wait_until(lambda: store.info(oid).state == "spilled", "the object is on disk")
        status = store.status()
    (own,) = folder.iterdir()
    stranger = folder / "0123456789abcdef"
    stranger.mkdir()
    (stranger / "somebody's").write_text("kept")
    (stranger / "lock").touch()
    assert cli.json("gc", "--older-than", "1e9", "--dry-run")["removed"] == []
    shown = cli.json("gc", "--older-than", "0", "--dry-run")["removed"]
    assert [one["name"] for one in shown] == [str(stranger)], "the living store's own stays"
    os.kill(status["keeper_pid"], signal.SIGKILL)
    os.kill(status["pid"], signal.SIGKILL)
    wait_until(lambda: not _launcher.runs(status["pid"]), "the daemon is gone")
    daemon.was_killed(status["pid"])

    def found() -> dict[Any, _garbage.Garbage]:
        return {one.name: one for one in _garbage.on_disk([folder], 0.0).garbage}

    wait_until(lambda: own in found(), "what is left of the daemon lets go of its lock")
    assert found()[own].nbytes >= 8 << 20
    assert "its store is gone" in found()[own].why
    assert _garbage.remove(None, found()[own]) == ""
    assert not own.exists()
