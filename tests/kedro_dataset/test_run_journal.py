"""Choice of the earlier run that a new one resumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from entrepot.errors import InvalidArgument
from entrepot_kedro.policy.run_journal import MAX_ENTRIES, RunJournal, run_identity, run_request

WRITER = """
import sys
from pathlib import Path
from entrepot_kedro.policy.run_journal import RunJournal
RunJournal(Path(sys.argv[1])).write(sys.argv[2], "kedro/" + sys.argv[2], sys.argv[3])
"""


def record_killed_run(log_path: Path, run_id: str, identity: str = "same") -> None:
    """Record a run in a process that has ended."""
    subprocess.run([sys.executable, "-c", WRITER, str(log_path), run_id, identity], check=True, timeout=60)


def test_the_newest_failed_run_is_taken_first(tmp_path: Path) -> None:
    log = tmp_path / "scope.jsonl"
    record_killed_run(log, "run-1")
    record_killed_run(log, "run-2")
    record_killed_run(log, "run-3", "other")
    journal = RunJournal(log)
    assert journal.take_session("next", "same") == "kedro/run-2"
    assert journal.take_session("next", "same") == "kedro/run-1"
    assert journal.take_session("next", "same") is None
    assert journal.take_session("next", "other") == "kedro/run-3"


def test_a_live_run_is_not_taken(tmp_path: Path) -> None:
    journal = RunJournal(tmp_path / "scope.jsonl")
    journal.write("run-1", "kedro/run-1", "same")  # a run of this process, which is alive
    assert journal.take_session("next", "same") is None
    journal.mark_failed("run-1")
    assert journal.take_session("next", "same") == "kedro/run-1"


def test_two_runs_that_begin_in_the_same_millisecond_do_not_share_a_session(tmp_path: Path) -> None:
    log, run_id = tmp_path / "scope.jsonl", "2026-01-01T00.00.00.000Z"
    code = WRITER + "print('written', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(log), run_id, "same"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert "written\n" in iter(other.stdout.readline, "")  # after lines of Kedro's log
        with pytest.raises(
            InvalidArgument, match=f"process {other.pid} works on a run .* with the same ID, '{run_id}'"
        ):
            RunJournal(log).write(run_id, f"kedro/{run_id}", "same")
        assert [path.suffix for path in (tmp_path / "scope.runs").iterdir()] == [".json"]
        other.communicate("")
    RunJournal(log).write(run_id, f"kedro/{run_id}", "same")
    assert RunJournal(log).take_session("next", "same") is None, "a run of this process"


def test_a_file_system_without_hard_links_has_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no hard links here")

    log = tmp_path / "scope.jsonl"
    record_killed_run(log, "run-1")
    monkeypatch.setattr("entrepot_kedro.policy.run_journal.os.link", refuse)
    journal = RunJournal(log)
    journal.write("run-2", "kedro/run-2", "same")
    journal.mark_failed("run-2")
    journal.write("run-1", "kedro/run-1", "same")  # of a process that has ended
    journal.mark_failed("run-1")
    assert {journal.take_session("next", "same"), journal.take_session("next", "same")} == {
        "kedro/run-1",
        "kedro/run-2",
    }


def test_of_runs_that_begin_at_once_a_single_one_continues_an_earlier_one(tmp_path: Path) -> None:
    log = tmp_path / "scope.jsonl"
    record_killed_run(log, "run-1")
    record_killed_run(log, "run-2")
    first, second = RunJournal(log), RunJournal(log)
    seen_by_second = second.sessions("same")
    assert next(seen_by_second) == ("run-2", "kedro/run-2")
    assert first.take_session("next", "same") == "kedro/run-2"
    assert not second.remove("run-2")
    assert next(seen_by_second) == ("run-1", "kedro/run-1")
    assert second.remove("run-1")


def test_an_entry_that_cannot_be_removed_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    log = tmp_path / "scope.jsonl"
    record_killed_run(log, "run-1")
    monkeypatch.setattr(Path, "unlink", refuse)
    assert RunJournal(log).take_session("next", "same") is None
    assert "cannot remove" in caplog.text


def test_a_successful_run_leaves_nothing(tmp_path: Path) -> None:
    journal = RunJournal(tmp_path / "scope.jsonl")
    journal.write("2026-01-01T00.00.00.000Z", "kedro/x", "same")
    journal.remove("2026-01-01T00.00.00.000Z")
    journal.mark_failed("2026-01-01T00.00.00.000Z")
    assert list((tmp_path / "scope.runs").iterdir()) == []


def test_unclaimed_records_are_bounded(tmp_path: Path) -> None:
    journal = RunJournal(tmp_path / "scope.jsonl")
    for number in range(MAX_ENTRIES + 10):
        journal.write(f"run-{number}", "kedro/x", "same")
        journal.mark_failed(f"run-{number}")
    journal.write("last", "kedro/x", "same")
    assert len(list((tmp_path / "scope.runs").iterdir())) == MAX_ENTRIES


def test_invalid_records_are_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "scope.runs"
    folder.mkdir()
    (folder / "a.json").write_text("{")
    (folder / "b.json").write_text("[]")
    (folder / "c.json").write_text('{"v": 99, "identity": "same", "session": "x"}')
    assert RunJournal(tmp_path / "scope.jsonl").take_session("next", "same") is None


def test_an_unwritable_folder_stops_no_run(tmp_path: Path) -> None:
    (tmp_path / "scope.runs").write_text("a file, where the folder would be")
    journal = RunJournal(tmp_path / "scope.jsonl")
    journal.write("run-1", "kedro/run-1", "same")
    journal.mark_failed("run-1")
    assert journal.take_session("next", "same") is None
    assert (tmp_path / "scope.runs").read_text() == "a file, where the folder would be"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "scope.jsonl"
    record_killed_run(log, "run-1")
    os.mkfifo(tmp_path / "scope.runs" / "pipe.json")
    assert RunJournal(log).take_session("next", "same") == "kedro/run-1"
    assert "it is not a regular file" in caplog.text


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({1: "x", "a": 2}, {"a": 2, 1: "x"}, True),
        ({1: 5}, {"1": 5}, False),
        ({"tags": {"b", "a"}}, {"tags": {"a", "b"}}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
    ],
    ids=["order", "keys of other types", "sets", "lists"],
)
def test_parameters_that_python_code_may_pass(first: Any, second: Any, same: bool) -> None:
    identities = [run_identity({"runtime_params": {"p": value}}) for value in (first, second)]
    assert (identities[0] == identities[1]) == same


def test_identity_covers_what_values_depend_on() -> None:
    run_params: dict[str, Any] = {
        "pipeline_names": None,
        "env": "base",
        "runtime_params": {},
        "run_id": "1",
        "tags": None,
    }
    assert run_identity(run_params) == run_identity(run_params | {"run_id": "2", "tags": ("a",), "pipeline_names": []})
    assert run_identity(run_params) != run_identity(run_params | {"project_path": "/other"})
    for overrides in ({"pipeline_names": ["x"]}, {"env": "prod"}, {"runtime_params": {"scale": 2}}):
        assert run_identity(run_params) != run_identity(run_params | overrides)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        '{"v": 2}',
        *(
            '{"v": 2, "project": "/p", "run": "r", "session": "s", "identity": "same", "process": "", '
            + f'"request": {r}}}'
            for r in ("[]", '{"env": 1}', '{"tags": [1]}', '{"other": "x"}')
        ),
        '{"v": 2, "project": "/p", "run": 1, "session": "s", "identity": "same", "process": "", "request": {}}',
        *(f'{{"v": 2, "begun": {b}}}' for b in ("null", '"x"', "[1]", "NaN", "1e999")),
    ],
)
def test_files_that_somebody_has_changed_stop_no_run(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "scope.jsonl"
    record_killed_run(log, "run-1")
    changed = tmp_path / "scope.runs" / "bad.json"
    changed.write_text(text)
    journal = RunJournal(log)
    journal.write("run-2", "kedro/run-2", "other")
    assert journal.take_session("next", "same") == "kedro/run-1"
    warnings = [record.getMessage() for record in caplog.records if str(changed) in record.getMessage()]
    assert len(warnings) == 1, "it is reported, once"
    assert changed.exists()
    os.utime(changed, (0, 0))
    journal.write("run-3", "kedro/run-3", "other")
    assert not changed.exists()


def test_a_time_that_no_float_can_hold_stops_no_run(tmp_path: Path) -> None:
    log = tmp_path / "scope.jsonl"
    record_killed_run(log, "run-1")
    (entry,) = (tmp_path / "scope.runs").glob("*.json")
    content = json.loads(entry.read_text())
    entry.with_name("other.json").write_text(json.dumps(content | {"run": "other", "begun": 10**400}))
    journal = RunJournal(log)
    assert [run for run, _ in journal.sessions("same")] == ["run-1", "other"]
    journal.write("run-2", "kedro/run-2", "other")


def test_nothing_is_left_of_entries_that_could_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "scope.runs"
    folder.mkdir()
    of_killed_process = folder / "run.1234.new"
    of_killed_process.touch()
    os.utime(of_killed_process, (0, 0))
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"  # as on a full disk
    command = [sys.executable, "-c", limit + WRITER, str(tmp_path / "scope.jsonl"), "run-1", "same"]
    process = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert "it cannot be continued" in " ".join((process.stdout + process.stderr).split())
    assert list(folder.iterdir()) == []


def test_a_run_that_is_killed_as_it_continues_another_is_continued_in_turn(tmp_path: Path) -> None:
    log = tmp_path / "scope.jsonl"
    record_killed_run(log, "run-1")
    code = WRITER.replace(".write(sys.argv[2], ", ".take_over('run-1', sys.argv[2], ").replace(
        '"kedro/" + sys.argv[2]', '"kedro/run-1"'
    )
    subprocess.run([sys.executable, "-c", code, str(log), "run-2", "same"], check=True, timeout=60)
    journal = RunJournal(log)
    assert list(journal.sessions("same")) == [("run-2", "kedro/run-1")]
    assert not journal.take_over("run-1", "run-3", "kedro/run-1", "same"), "run-2 has been faster"
    assert list(journal.sessions("same")) == [("run-2", "kedro/run-1")]


def test_values_that_json_gives_back_are_resumed() -> None:
    parameters = {"a": [1, None, {"b": "c"}], "nan": float("nan")}
    assert run_request({"runtime_params": parameters}) == {"runtime_params": parameters}
    for value in ((1, 2), {1: 2}, Path("x")):
        assert run_request({"runtime_params": {"a": value}}) is None
