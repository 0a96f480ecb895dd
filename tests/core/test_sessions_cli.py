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
from entrepot import ended_runs
from entrepot._cleanup import cleanup
from entrepot._cli.common import human_bytes
from entrepot._daemon import launcher
from entrepot.cli import main


class Cli:
    """Run a subcommand in this process."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._address, self._capsys = address, capsys
        self.error = ""

    def __call__(self, *words: object, code: int = 0) -> str:
        self._capsys.readouterr()
        returned = main([*map(str, words), "--address", self._address])
        captured = self._capsys.readouterr()
        self.error = captured.err
        assert returned == code, captured
        return captured.out

    def refused(self, *words: object) -> None:
        self._capsys.readouterr()
        with pytest.raises(SystemExit, match=r"^2$"):
            main(list(map(str, words)))
        self.error = self._capsys.readouterr().err

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))


@pytest.fixture(autouse=True)
def _folders(socket_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Separate runtime and spill directories, so that no one else's stores are found or removed."""
    (socket_folder / "run" / "entrepot").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(socket_folder / "run"))
    monkeypatch.setattr(cleanup, "default_spill_folder", lambda: socket_folder / "spill")


@pytest.fixture
def cli(daemon: Any, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(daemon.address, capsys)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Sessions that the orchestrator ``airflow`` reports as finished; modified by the test."""
    ended: dict[str, str] = {}

    class Entry:
        name = "airflow"

        def load(self) -> ended_runs.Provider:
            def provide(store: entrepot.Store, scope: str, sessions: Sequence[str]) -> Mapping[str, str]:
                assert scope == "deployment" or "elsewhere" in ended
                assert all(session.startswith("airflow/") for session in sessions)
                if "elsewhere" in ended:
                    raise ended_runs.NotLookedAt(ended["elsewhere"])
                if "raise" in ended:
                    raise OSError(ended["raise"])
                return ended

            return provide

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry()] if group == "entrepot.ended_runs" else [])
    return ended


def _put(daemon: Any, session: str, scope: str = "deployment", ttl: float | None = None) -> None:
    with entrepot.connect(daemon.address, scope=scope) as store, store.session(session, ttl=ttl) as run:
        run.put(b"x" * 100_000, name="value")


def test_sessions_of_all_scopes_are_listed(cli: Cli, daemon: Any, runs: dict[str, str]) -> None:
    _put(daemon, "airflow/etl/manual__1", ttl=3600)
    _put(daemon, "own", scope="other")
    with entrepot.connect(daemon.address, scope="deployment", session="open"):
        rows = {row["session"]: row for row in cli.json("sessions")}
        output = cli("sessions")
    airflow_row = rows["airflow/etl/manual__1"]
    assert (airflow_row["scope"], airflow_row["objects"], airflow_row["nbytes"]) == ("deployment", 1, 100_000)
    assert (airflow_row["ttl_seconds"], airflow_row["opened_by"], airflow_row["owner"]) == (3600, 0, "airflow")
    assert rows["own"]["owner"] == ""
    assert rows["open"]["opened_by"] == 1
    assert "97.7 KiB" in output
    assert "1 h" in output
    assert "default" not in output, "the session that the command itself opens is not listed"
    assert [row["session"] for row in cli.json("sessions", "--scope", "other")] == ["", "own"]


def test_small_values_count_as_in_the_list_of_objects(cli: Cli, daemon: Any, runs: dict[str, str]) -> None:
    with entrepot.connect(daemon.address, scope="deployment", session="airflow/etl/run") as store:
        store.put(b"x" * 1000)
        store.put([b"y" * 2000, b"z" * 50_000])
    listed = sum(row["nbytes"] for row in cli.json("ls", "--all"))
    assert listed >= 53_000
    (row,) = (row for row in cli.json("sessions") if row["session"])
    assert row["nbytes"] == listed
    runs["airflow/etl/run"] = "its run was deleted"
    assert cli.json("gc", "--dry-run")["removed"][0]["nbytes"] == listed
    assert f"{human_bytes(listed)} in 2 objects removed" in cli("sessions", "rm", "airflow/etl/run")


def test_a_session_is_removed_unless_somebody_has_it_open(cli: Cli, daemon: Any) -> None:
    _put(daemon, "run")
    assert "97.7 KiB in 1 object removed" in cli("sessions", "rm", "run")
    cli("sessions", "rm", "run", code=1)
    assert "no session 'run'" in cli.error
    with entrepot.connect(daemon.address, scope="deployment", session="run") as store:
        oid = store.put(1)
        cli("sessions", "rm", "run", code=1)
        assert "1 process has it open; use --force" in cli.error
        assert store.exists(oid)
        cli("sessions", "rm", "run", "--force")
        assert not store.exists(oid)


def test_a_name_that_several_scopes_have_needs_the_scope(cli: Cli, daemon: Any) -> None:
    _put(daemon, "run")
    _put(daemon, "run", scope="other")
    cli("sessions", "rm", "run", code=1)
    assert "'deployment', 'other'" in cli.error
    cli("sessions", "rm", "run", "--scope", "other")
    assert [row["scope"] for row in cli.json("sessions") if row["session"]] == ["deployment"]


def test_a_time_to_live_is_set(cli: Cli, daemon: Any) -> None:
    _put(daemon, "run")
    for text, seconds in (("90", 90), ("1h", 3600), ("0.5", 1), ("0", 0)):
        cli("sessions", "ttl", "run", text)
        assert [row["ttl_seconds"] for row in cli.json("sessions") if row["session"] == "run"] == [seconds]
    cli("sessions", "ttl", "none", 90, code=1)
    assert "no session 'none'" in cli.error
    for wrong in ("nan", "1 h", "-1", "1e999"):
        cli.refused("sessions", "ttl", "run", "--", wrong)
        assert f"but got '{wrong}'" in cli.error
    assert [row["session"] for row in cli.json("sessions") if row["session"]] == ["run"], "none was made"


def test_ls_over_sessions(cli: Cli, daemon: Any) -> None:
    _put(daemon, "run")
    _put(daemon, "another")
    _put(daemon, "run", scope="other")
    assert {(row["scope"], row["session"]) for row in cli.json("ls", "--all")} == {
        ("deployment", "run"),
        ("deployment", "another"),
        ("other", "run"),
    }
    assert {row["session"] for row in cli.json("ls", "--scope", "deployment")} == {"run", "another"}
    assert "deployment: another" in cli("ls", "--all", "val*")
    assert len(cli.json("ls", "--scope", "deployment", "--session", "run")) == 1
    assert cli.json("ls", "--all", "no*") == []
    cli("ls", "--all", "--session", "run", code=1)
    assert "use only one of these options" in cli.error


def test_gc_removes_what_it_showed_and_nothing_else(cli: Cli, daemon: Any, runs: dict[str, str]) -> None:
    for name in ("airflow/etl/over", "airflow/etl/open", "airflow/etl/runs", "mine"):
        _put(daemon, name)
    runs |= dict.fromkeys(("airflow/etl/over", "airflow/etl/open", "mine"), "its run was deleted")
    with entrepot.connect(daemon.address, scope="deployment", session="airflow/etl/open") as store:
        shown = cli.json("gc", "--dry-run")
        assert [(row["kind"], row["name"]) for row in shown["removed"]] == [
            ("session", "airflow/etl/over (deployment)")
        ]
        assert (shown["removed"][0]["nbytes"], shown["removed"][0]["why"]) == (100_000, "its run was deleted")
        assert len(cli.json("sessions")) == 5, "a dry run removes nothing"
        output = cli("gc")
        assert "its run was deleted" in output
        assert "1 removed, 97.7 KiB" in output
        remaining = {row["session"] for row in cli.json("sessions")}
        assert remaining == {"", "airflow/etl/open", "airflow/etl/runs", "mine"}
        assert len(store.list()) == 1
    assert cli.json("gc")["removed"][0]["name"] == "airflow/etl/open (deployment)"
    assert "0 removed" in cli("gc")


def test_gc_says_whose_runs_it_looked_at(cli: Cli, daemon: Any, runs: dict[str, str]) -> None:
    assert "checked the runs" not in cli("gc"), "there is nobody's session"
    _put(daemon, "airflow/etl/run")
    assert "checked the runs of airflow\n0 removed" in cli("gc")
    runs["elsewhere"] = "AIRFLOW_HOME is not set"
    output = cli("gc", "--dry-run")
    assert "did not check the runs of airflow in scope 'deployment' (AIRFLOW_HOME is not set)\n" in output
    for number in range(4):
        _put(daemon, "airflow/etl/run", scope=f"s{number}")
    output = cli("gc", "--dry-run")
    assert "in the scopes 'deployment', 's0', 's1' and 2 more (AIRFLOW_HOME is not set)\n" in output
    assert output.count("AIRFLOW_HOME") == 1


def test_runs_that_an_orchestrator_cannot_report_are_kept(cli: Cli, daemon: Any, runs: dict[str, str]) -> None:
    _put(daemon, "airflow/etl/run")
    runs["raise"] = "no database"
    cli("gc", code=1)
    assert "airflow cannot tell which runs of scope 'deployment' ended: OSError: no database" in cli.error
    assert [row["session"] for row in cli.json("sessions") if row["session"]] == ["airflow/etl/run"]


def test_a_session_that_was_used_since_it_was_shown_stays(daemon: Any, runs: dict[str, str]) -> None:
    _put(daemon, "airflow/etl/run")
    runs["airflow/etl/run"] = "its run was deleted"
    with entrepot.connect(daemon.address, scope="tests") as store:
        (shown,) = cleanup.find_in_store(store).garbage
        with entrepot.connect(daemon.address, scope="deployment", session="airflow/etl/run"):
            assert cleanup.remove(store, shown) == "1 process has it open"
        assert cleanup.remove(store, shown) == "it has been used in the meantime"
        (shown,) = cleanup.find_in_store(store).garbage
        assert cleanup.remove(store, shown) == ""
        assert cleanup.remove(store, shown) == "", "it is gone, whoever removed it"
        with pytest.raises(entrepot.ObjectNotFound):
            cleanup.remove_session(store, "deployment", "airflow/etl/run")


def test_sockets_of_dead_stores_go_and_others_stay(cli: Cli, socket_folder: Path) -> None:
    folder = socket_folder / "run" / "entrepot"
    dead, alive = folder / "store.sock", folder / "other.sock"
    with socket.socket(socket.AF_UNIX) as dead_socket, socket.socket(socket.AF_UNIX) as live_socket:
        dead_socket.bind(str(dead))
        dead_socket.close()
        (folder / "store.sock.lock").touch()
        (folder / "start.lock").touch()
        live_socket.bind(str(alive))
        live_socket.listen()
        shown = cli.json("gc", "--dry-run")["removed"]
        assert [(item["kind"], item["name"]) for item in shown] == [("socket", str(dead))]
        assert dead.exists()
        assert cli.json("gc")["removed"] == shown
        assert sorted(item.name for item in folder.iterdir()) == ["other.sock", "start.lock"]


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
    (spill_folder,) = folder.iterdir()
    foreign_folder = folder / "0123456789abcdef"
    foreign_folder.mkdir()
    (foreign_folder / "somebody's").write_text("kept")
    (foreign_folder / "lock").touch()
    assert cli.json("gc", "--older-than", "1e9", "--dry-run")["removed"] == []
    shown = cli.json("gc", "--older-than", "0", "--dry-run")["removed"]
    assert [item["name"] for item in shown] == [str(foreign_folder)], "the living store's own stays"
    os.kill(status["keeper_pid"], signal.SIGKILL)
    os.kill(status["pid"], signal.SIGKILL)
    wait_until(lambda: not launcher.is_running(status["pid"]), "the daemon is gone")
    daemon.was_killed(status["pid"])

    def garbage_by_name() -> dict[Any, cleanup.Garbage]:
        return {item.name: item for item in cleanup.find_on_disk([folder], 0.0).garbage}

    wait_until(lambda: spill_folder in garbage_by_name(), "what is left of the daemon lets go of its lock")
    assert garbage_by_name()[spill_folder].nbytes >= 8 << 20
    assert "its store is gone" in garbage_by_name()[spill_folder].why
    assert cleanup.remove(None, garbage_by_name()[spill_folder]) == ""
    assert not spill_folder.exists()
