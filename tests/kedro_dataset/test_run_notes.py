"""Which earlier run a new one resumes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from entrepot_kedro.run_notes import KEPT, RunNotes, identity_of

WRITER = """
import sys
from pathlib import Path
from entrepot_kedro.run_notes import RunNotes
RunNotes(Path(sys.argv[1])).write(sys.argv[2], "kedro/" + sys.argv[2], sys.argv[3])
"""


def killed_run(log: Path, run: str, identity: str = "same") -> None:
    """Record a run in a process that has ended."""
    subprocess.run([sys.executable, "-c", WRITER, str(log), run, identity], check=True, timeout=60)


def test_the_newest_run_that_did_not_end_well(tmp_path: Path) -> None:
    log = tmp_path / "scope.jsonl"
    killed_run(log, "run-1")
    killed_run(log, "run-2")
    killed_run(log, "run-3", "other")
    notes = RunNotes(log)
    assert notes.take("same") == "kedro/run-2"
    assert notes.take("same") == "kedro/run-1"
    assert notes.take("same") is None
    assert notes.take("other") == "kedro/run-3"


def test_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    notes = RunNotes(tmp_path / "scope.jsonl")
    notes.write("run-1", "kedro/run-1", "same")  # a run of this process, which is alive
    assert notes.take("same") is None
    notes.failed("run-1")
    assert notes.take("same") == "kedro/run-1"


def test_a_run_that_ended_well_leaves_nothing(tmp_path: Path) -> None:
    notes = RunNotes(tmp_path / "scope.jsonl")
    notes.write("2026-01-01T00.00.00.000Z", "kedro/x", "same")
    notes.remove("2026-01-01T00.00.00.000Z")
    notes.failed("2026-01-01T00.00.00.000Z")
    assert list((tmp_path / "scope.runs").iterdir()) == []


def test_notes_that_nobody_takes_are_bounded(tmp_path: Path) -> None:
    notes = RunNotes(tmp_path / "scope.jsonl")
    for number in range(KEPT + 10):
        notes.write(f"run-{number}", "kedro/x", "same")
    assert len(list((tmp_path / "scope.runs").iterdir())) == KEPT


def test_what_is_no_note_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "scope.runs"
    folder.mkdir()
    (folder / "a.json").write_text("{")
    (folder / "b.json").write_text("[]")
    (folder / "c.json").write_text('{"v": 99, "identity": "same", "session": "x"}')
    assert RunNotes(tmp_path / "scope.jsonl").take("same") is None


def test_a_folder_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    (tmp_path / "scope.runs").write_text("a file, where the folder would be")
    RunNotes(tmp_path / "scope.jsonl").write("run-1", "kedro/run-1", "same")


def test_identity_is_of_what_values_depend_on() -> None:
    base: dict[str, Any] = {"pipeline_names": None, "env": "base", "runtime_params": {}, "run_id": "1", "tags": None}
    assert identity_of(base) == identity_of(base | {"run_id": "2", "tags": ("a",), "pipeline_names": []})
    for other in ({"pipeline_names": ["x"]}, {"env": "prod"}, {"runtime_params": {"scale": 2}}):
        assert identity_of(base) != identity_of(base | other)
