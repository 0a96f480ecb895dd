"""The command line: policy check, explain and schema; events."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from entrepot.cli import main
from entrepot_policy import PolicyError, PolicyRuntime
from entrepot_policy.state.events import EventLog

TEXT = """\
version: 1
checkpoint:
  target: {root}/{{pipeline}}/{{run}}
  rules:
    - {{match: "train_*", mode: async, keep: 2}}
    - {{match: {{size: ">1MiB"}}, when: auto}}
failover:
  - {{on: object_lost, match: "train_*", do: [reload_checkpoint, {{fail: {{reason: ask Ada}}}}]}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "entrepot.yaml"
    path.write_text(TEXT.format(root=tmp_path / "root"))
    return path


def test_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", str(file)]) == 0
    assert "2 checkpoint rules, 1 failover rule, 1 target; no problems found" in capsys.readouterr().out
    file.write_text("version: 1\nnope: 2\ncheckpoint: 3\n")
    assert main(["policy", "check", str(file)]) == 1
    output = capsys.readouterr().err
    first, second = output.splitlines()
    assert first.startswith(f"{file}:2:1: ")
    assert second.startswith(f"{file}:3:13: ")
    assert main(["policy", "explain", "a", "--file", str(file)]) == 1
    assert capsys.readouterr().err == output


def test_check_finds_a_policy_by_the_environment(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["policy", "check"]) == 1
    assert "pass its file, or set ENTREPOT_POLICY" in capsys.readouterr().err
    assert main(["policy", "explain", "a"]) == 1
    assert "pass --file FILE, or set ENTREPOT_POLICY" in capsys.readouterr().err
    monkeypatch.setenv("ENTREPOT_POLICY", str(file))
    assert main(["policy", "check"]) == 0


def test_check_tries_the_targets(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", "--probe", str(file)]) == 0
    assert not (tmp_path / "root").exists(), "what the probe created is removed"
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "kept").touch()
    assert main(["policy", "check", "--probe", str(file)]) == 0
    assert [path.name for path in (tmp_path / "root").rglob("*")] == ["kept"]
    (tmp_path / "blocked").write_text("a file, and no folder")
    file.write_text(TEXT.format(root=tmp_path / "blocked"))
    capsys.readouterr()
    assert main(["policy", "check", "--probe", str(file)]) == 1
    assert f"{file}:3:3: checkpoints cannot be written to this target" in capsys.readouterr().err


def test_a_run_can_probe_its_targets_first(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_POLICY", str(file))
    assert PolicyRuntime.of_environment(scope="tests", probe=True) is not None
    (tmp_path / "root").rename(tmp_path / "away")
    (tmp_path / "root").write_text("a file, and no folder")
    assert PolicyRuntime.of_environment(scope="tests") is not None
    with pytest.raises(PolicyError, match=f"{file}:3:3: checkpoints cannot be written to this target"):
        PolicyRuntime.of_environment(scope="tests", probe=True)
    monkeypatch.delenv("ENTREPOT_POLICY")
    assert PolicyRuntime.of_environment(scope="tests", probe=True) is None


def test_explain(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "explain", "train_a", "--file", str(file)]) == 0
    output = capsys.readouterr().out
    assert f"checkpoint: always  [{file}:5, matches task: train_*]" in output
    assert "mode async" in output
    assert "the last 2 checkpoints" in output
    assert (
        "on store_full: evict, then retry up to 3 times, first after 1 s; at most 3 passes through these steps, the "
        "second after 1 s  [default]" in output
    )
    assert f"on object_lost: reload_checkpoint, then fail (ask Ada)  [{file}:8]" in output
    with file.open("a") as text:
        text.write("  - {on: task_failed, do: {retry: {attempts: 2, delay: 10s}}}\n")
        text.write("  - {on: object_lost, max_attempts: 1, do: rerun_upstream}\n")
    assert main(["policy", "explain", "b", "--file", str(file)]) == 0
    output = capsys.readouterr().out
    assert f"on task_failed: retry up to 2 times, first after 10 s  [{file}:9]" in output
    assert f"on object_lost: rerun_upstream (at most 1 time a day for an object)  [{file}:10]" in output
    assert main(["policy", "explain", "load", "--file", str(file)]) == 0
    assert "rules with a size may match its outputs" in capsys.readouterr().out
    assert main(["policy", "explain", "load", "--file", str(file), "--size", "2000000"]) == 0
    assert "if a loss is expected to cost more" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--orchestrator", "--host"])
def test_explain_takes_the_orchestrator_by_either_name(
    file: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    file.write_text("version: 1\ncheckpoint: {target: /x, rules: [{match: {orchestrator: kedro}}]}\n")
    assert main(["policy", "explain", "a", "--file", str(file), option, "kedro"]) == 0
    assert "matches orchestrator: kedro]" in capsys.readouterr().out
    assert main(["policy", "explain", "a", "--file", str(file)]) == 0
    assert "no rule matches" in capsys.readouterr().out


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Entrepot policy"


def test_events(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for scope in ("one", "two"):
        log = EventLog(scope)
        log.add("reloaded", key=f"of {scope}", rule="p.yaml:3", seconds=0.5)
        log.add("gave_up", key=f"of {scope}")
    assert main(["events"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main(["events", "--scope", "two", "--json", "--kind", "reloaded"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    event = json.loads(line)
    assert (event["key"], event["rule"], event["seconds"], event["pid"]) == ("of two", "p.yaml:3", 0.5, os.getpid())
    assert main(["events", "--follow"]) == 1
    assert "--scope" in capsys.readouterr().err
    monkeypatch.setenv("ENTREPOT_SCOPE", "one")
    assert main(["events"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
