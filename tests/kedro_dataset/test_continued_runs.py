"""A run goes on with what an earlier one has computed, without being told its session."""

from __future__ import annotations

import gc
import logging
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import kedro_runs as runs
import pytest
from entrepot_io.connections import scope_store
from kedro.pipeline import Pipeline, node, pipeline
from kedro.runner import SequentialRunner, ThreadRunner

CATCH_ALL = {"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}
calls: list[str] = []
failing: set[str] = set()


@pytest.fixture(autouse=True)
def _fresh_state(in_scope_tests: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path / "events"))  # where the journal is
    calls.clear()
    failing.clear()


def step(name: str) -> Any:
    def run(*values: bytes) -> bytes:
        calls.append(name)
        if name in failing:
            raise RuntimeError(f"told to fail in {name}")
        return b"".join(values) + name.encode()

    return run


def job() -> Pipeline:
    return pipeline(
        [
            node(step("a"), None, "x", name="a"),
            node(step("b"), "x", "y", name="b"),
            node(step("c"), "y", "z", name="c"),
            node(step("d"), ["y", "z"], "result", name="d"),
        ]
    )


def failed_run(name: str, **params: Any) -> None:
    failing.add(name)
    with pytest.raises(RuntimeError, match=f"told to fail in {name}"):
        runs.run(job(), CATCH_ALL, **params)
    failing.clear()
    calls.clear()


def sessions() -> list[str]:
    return [info.session for info in scope_store(None, "tests").sessions() if info.session]


@pytest.mark.parametrize("runner", [SequentialRunner, ThreadRunner])
def test_only_missing_outputs_continues_a_failed_run(runner: Any) -> None:
    failed_run("d")
    outputs, _ = runs.run(job(), CATCH_ALL, runner=runner(), only_missing_outputs=True)
    assert calls == ["d"], "x was released after its last consumer, and nobody needs it"
    assert outputs["result"].load() == b"ababcd"
    del outputs, _
    gc.collect()
    assert sessions() == []


def test_a_continued_run_returns_what_the_failed_one_has_made() -> None:
    """Or it would be gone with the session, and nobody would have got it."""
    branches = job() + pipeline([node(step("e"), "y", "other", name="e")])
    failing.add("e")
    with pytest.raises(RuntimeError, match="told to fail in e"):
        runs.run(branches, CATCH_ALL, runner=SequentialRunner())
    made, failing_node = [*calls], failing.pop()
    calls.clear()
    outputs, _ = runs.run(branches, CATCH_ALL, only_missing_outputs=True)
    assert outputs.keys() == {"result", "other"}
    assert outputs["result"].load() == b"ababcd"
    assert outputs["other"].load() == b"abe"
    assert sorted(made + calls) == sorted(["a", "b", "c", "d", "e", failing_node])


def test_a_project_does_not_continue_another_ones_run_in_the_same_scope() -> None:
    failed_run("d", project_path="/projects/first")
    runs.run(job(), CATCH_ALL, only_missing_outputs=True, project_path="/projects/second")
    assert calls == ["a", "b", "c", "d"]
    calls.clear()
    runs.run(job(), CATCH_ALL, only_missing_outputs=True, project_path="/projects/first")
    assert calls == ["d"]


def test_the_durable_tier_of_a_continued_run_is_where_it_is_set_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("ENTREPOT_DURABLE", str(tmp_path / "first"))
    failed_run("d")
    before = sorted((tmp_path / "first").iterdir())
    monkeypatch.setenv("ENTREPOT_DURABLE", str(tmp_path / "second"))
    outputs, _ = runs.run(job(), CATCH_ALL, only_missing_outputs=True)
    assert outputs["result"].load() == b"ababcd"
    assert len(list((tmp_path / "second").glob("*/manifest.json"))) == 1, "of the result"
    assert sorted((tmp_path / "first").iterdir()) == before


@pytest.mark.parametrize("place", ["environment", "configuration file"])
def test_values_that_only_the_durable_tier_has_are_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    durable = tmp_path / "durable"
    if place == "environment":
        monkeypatch.setenv("ENTREPOT_DURABLE", str(durable))
    else:
        (tmp_path / "config.toml").write_text(f'durable = "{durable}"\n')
        monkeypatch.setenv("ENTREPOT_CONFIG", str(tmp_path / "config.toml"))
    failed_run("d")
    gc.collect()
    for session in sessions():  # as if the store had been lost
        scope_store(None, "tests").remove_session(session)
    outputs, _ = runs.run(job(), CATCH_ALL, only_missing_outputs=True)
    assert calls == ["d"]
    assert outputs["result"].load() == b"ababcd"


def test_a_run_whose_datasets_still_exist_is_continued() -> None:
    """As in a notebook, which keeps the last traceback, and with it the run's catalog."""
    failing.add("d")
    with pytest.raises(RuntimeError, match="told to fail") as failure:
        runs.run(job(), CATCH_ALL)
    catalogs = [
        frame.f_locals["catalog"]
        for frame, _ in traceback.walk_tb(failure.value.__traceback__)
        if "catalog" in frame.f_locals
    ]
    assert catalogs
    assert catalogs[0].exists("y")
    failing.clear()
    calls.clear()
    outputs, _ = runs.run(job(), CATCH_ALL, only_missing_outputs=True)
    assert calls == ["d"]
    assert outputs["result"].load() == b"ababcd"


def test_kedros_suggestion_works_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        failed_run("d")
    suggestion = re.search(
        r'--from-nodes "([^"]*)"\n?$', "\n".join(r.getMessage() for r in caplog.records if "kedro.runner" in r.name)
    )
    assert suggestion is not None, caplog.text
    assert suggestion[1] == "d"
    outputs, _ = runs.run(job().from_nodes(*suggestion[1].split(",")), CATCH_ALL)
    assert calls == ["d"]
    assert outputs["result"].load() == b"ababcd"


def test_datasets_of_the_allow_list_are_found_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENTREPOT_INTERMEDIATES", "*")
    context = runs.Context(str(tmp_path))
    failing.add("d")
    with pytest.raises(RuntimeError, match="told to fail"):
        runs.run(job(), context=context)
    failing.clear()
    calls.clear()
    with pytest.raises(ValueError, match=r"\{'x'\} not found"):  # it was released
        runs.run(job().only_nodes("b"), context=context)
    outputs, _ = runs.run(job().from_nodes("d"), context=context)
    assert calls == ["d"]
    assert outputs["result"].load() == b"ababcd"


def test_a_continued_run_that_fails_can_be_continued() -> None:
    failed_run("c")
    failing.add("d")
    with pytest.raises(RuntimeError, match="told to fail in d"):
        runs.run(job(), CATCH_ALL, only_missing_outputs=True)
    assert calls == ["c", "d"]
    failing.clear()
    calls.clear()
    outputs, _ = runs.run(job(), CATCH_ALL, only_missing_outputs=True)
    assert calls == ["d"]
    assert outputs["result"].load() == b"ababcd"


def test_another_environment_or_parameters_begin_anew() -> None:
    failed_run("d", env="base", runtime_params={"scale": 1})
    for env, scale in (("prod", 1), ("base", 2)):
        calls.clear()
        runs.run(job(), CATCH_ALL, only_missing_outputs=True, env=env, runtime_params={"scale": scale})
        assert calls == ["a", "b", "c", "d"]
    calls.clear()
    runs.run(job(), CATCH_ALL, only_missing_outputs=True, env="base", runtime_params={"scale": 1})
    assert calls == ["d"]


def test_a_run_that_needs_nothing_of_it_begins_anew() -> None:
    failed_run("d")
    outputs, _ = runs.run(job(), CATCH_ALL)
    assert calls == ["a", "b", "c", "d"]
    del outputs, _


def test_what_was_removed_is_computed_again() -> None:
    failed_run("d")
    (session,) = sessions()
    scope_store(None, "tests").remove_session(session)
    runs.run(job(), CATCH_ALL, only_missing_outputs=True)
    assert calls == ["a", "b", "c", "d"]


def test_a_continued_run_leaves_no_empty_session() -> None:
    failed_run("d")
    outputs, _ = runs.run(job().from_nodes("d"), CATCH_ALL)
    assert outputs["result"].load() == b"ababcd"
    del outputs, _
    gc.collect()
    assert sessions() == []


def test_what_is_read_under_another_transcoded_name_is_made() -> None:
    """Kedro's search for nodes to run takes ``y@first`` and ``y@second`` for two datasets."""
    transcoded = pipeline(
        [
            node(step("a"), None, "x@first", name="a"),
            node(step("b"), "x@second", "y@first", name="b"),
            node(step("c"), "y@second", None, name="c"),
        ]
    )
    failing.add("b")
    with pytest.raises(RuntimeError, match="told to fail in b"):
        runs.run(transcoded, CATCH_ALL)
    failing.clear()
    calls.clear()
    runs.run(transcoded, CATCH_ALL, only_missing_outputs=True)
    assert calls == ["b", "c"]


def test_missing_inputs_are_reported_if_no_run_has_them() -> None:
    failed_run("b")
    with pytest.raises(ValueError, match=r"\{'z'.*\} not found|\{.*'z'\} not found"):
        runs.run(job().from_nodes("d"), CATCH_ALL)


def test_a_run_that_was_killed_is_continued(tmp_path: Path) -> None:
    code = f"""
import os, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(runs.__file__).parent)]!r}
import kedro_runs as runs, test_continued_runs
from kedro.pipeline import node, pipeline
steps = [node_ for node_ in test_continued_runs.job().nodes if node_.name != "d"]
runs.run(pipeline([*steps, node(lambda *_: os.kill(os.getpid(), 9), ["y", "z"], "result", name="d")]),
         test_continued_runs.CATCH_ALL)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert process.returncode == -9, process.stderr
    outputs, _ = runs.run(job(), CATCH_ALL, only_missing_outputs=True)
    assert calls == ["d"]
    assert outputs["result"].load() == b"ababcd"


def test_what_a_run_returns_under_a_transcoded_name_can_be_loaded() -> None:
    """Without the node that reads it, which has an output already, ``x@pandas`` is an output of the run."""
    transcoded = pipeline(
        [
            node(step("a"), None, "x@pandas", name="a"),
            node(step("b"), "x@polars", "kept", name="b"),
            node(step("c"), None, "other", name="c"),
        ]
    )
    entries = CATCH_ALL | {"kept": {"type": "entrepot_kedro.EntrepotDataset", "session": ""}}
    runs.run(transcoded, entries)
    outputs, _ = runs.run(transcoded, entries, only_missing_outputs=True)
    assert {name: dataset.load() for name, dataset in outputs.items() if name != "kept"} == {
        "x@pandas": b"a",
        "other": b"c",
    }


def test_an_input_with_an_entry_is_missed_before_the_first_node() -> None:
    entries = {name: {"type": "entrepot_kedro.EntrepotDataset"} for name in ("x", "y", "z", "result")}
    runs.run(job(), entries)
    calls.clear()
    with pytest.raises(ValueError, match=r"Pipeline input\(s\) {'y'} not found .* deleted when it succeeds"):
        runs.run(job().from_nodes("c"), entries)
    assert calls == []
