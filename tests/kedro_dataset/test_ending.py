"""What a run leaves in the store: nothing if it succeeded, what resuming needs if it failed."""

from __future__ import annotations

import gc
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from entrepot_io.connections import close_all, scope_store
from entrepot_kedro import EntrepotDataset, ending
from entrepot_kedro.ended_runs import ENDED, ended_runs
from entrepot_kedro.hooks import EntrepotHooks
from kedro.io import DataCatalog, MemoryDataset
from kedro.pipeline import Pipeline, node, pipeline
from kedro.runner import SequentialRunner

SCOPE = "tests"
SIZE = 100_000


@pytest.fixture(autouse=True)
def _environment(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.setenv("ENTREPOT_SCOPE", SCOPE)
    monkeypatch.delenv("ENTREPOT_SESSION", raising=False)
    yield
    close_all()


def left() -> dict[str, int]:
    """Number of objects by named session."""
    return {one.session: one.objects for one in scope_store(None, SCOPE).sessions() if one.session}


def make() -> bytes:
    return b"x" * SIZE


def same(value: bytes) -> bytes:
    return value


def fail(*values: Any) -> None:
    raise RuntimeError("told to fail")


JOB = pipeline(
    [
        node(make, None, "raw", name="make"),
        node(same, "raw", "clean", name="clean"),
        node(same, "clean", "kept", name="keep"),
        node(same, "clean", "result", name="last"),
    ]
)


def _catalog(version: str, **more: Any) -> DataCatalog:
    """A catalog as ``kedro run`` creates it: all datasets of a run use the run's session."""
    catalog = DataCatalog.from_config(
        {
            "{name}": {"type": "entrepot_kedro.EntrepotDataset"},
            "kept": {"type": "entrepot_kedro.EntrepotDataset", "session": "mine"},
        },
        save_version=version,
    )
    for name, dataset in more.items():
        catalog[name] = dataset
    return catalog


def run(version: str, job: Pipeline = JOB, **more: Any) -> Any:
    """Run a pipeline with the hooks, like ``kedro run``; returns its outputs."""
    from kedro.framework.hooks.manager import _create_hook_manager
    from pluggy import PluginManager

    manager: PluginManager = _create_hook_manager()
    manager.register(EntrepotHooks())
    catalog = _catalog(version, **more)
    said = {"run_params": {"run_id": version}, "pipeline": job, "catalog": catalog}
    manager.hook.before_pipeline_run(**said)
    try:
        found = SequentialRunner().run(job, catalog, hook_manager=manager)
    except Exception as error:
        manager.hook.on_pipeline_error(error=error, **said)
        raise
    manager.hook.after_pipeline_run(run_result=found, **said)
    return found


def test_runs_that_ended_well_leave_what_a_catalog_entry_keeps() -> None:
    for number in range(5):
        run(f"run-{number}")
        gc.collect()
    assert left() == {"mine": 1}


def test_outputs_stay_while_somebody_holds_them() -> None:
    outputs = run("run-1")
    gc.collect()
    assert outputs["result"].load() == b"x" * SIZE
    assert "kedro/run-1" in left()
    del outputs
    gc.collect()
    assert left() == {"mine": 1}


def test_a_failed_run_keeps_what_resuming_needs_and_says_how(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = pipeline([*JOB.nodes, node(fail, ["result", "clean"], "report", name="report")])
    caplog.set_level(logging.WARNING, logger="kedro.entrepot")
    with pytest.raises(RuntimeError, match="told to fail"):
        run("run-1", job)
    gc.collect()
    assert left()["kedro/run-1"] >= 2
    said = re.search(
        r'\((\S+ \S+)\) is kept.*ENTREPOT_SESSION=(\S+) and --from-nodes "(.*)"; to drop it: (.*)\. Use this '
        "instead of the --from-nodes that Kedro suggests",
        caplog.text,
    )
    assert said is not None, caplog.text
    assert said.groups() == ("195.3 KiB", "kedro/run-1", "report", "entrepot sessions rm kedro/run-1")
    # The advice works: the resumed run succeeds, and nothing is left of either run.
    monkeypatch.setenv("ENTREPOT_SESSION", said[2])
    good = pipeline([*JOB.nodes, node(lambda *_: 1, ["result", "clean"], "report", name="report")])
    outputs = run("run-2", good.from_nodes(*said[3].split(",")))
    assert outputs["report"].load() == 1
    del outputs
    gc.collect()
    assert left() == {"mine": 1}


def test_a_run_that_saved_nothing_leaves_no_session(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match=r"'mistyped'} not found in the"):
        run("run-1", pipeline([node(same, "mistyped", "clean", name="clean")]))
    assert left() == {}
    with pytest.raises(RuntimeError, match="told to fail"):
        run("run-2", pipeline([node(fail, None, "raw", name="make")]))
    assert left() == {}
    assert "is kept" not in caplog.text


def test_a_run_that_went_on_says_the_first_nodes_only() -> None:
    def stored(*names: str) -> dict[str, EntrepotDataset]:
        return {name: EntrepotDataset(name=name, session="run") for name in names}

    ending.begun()
    datasets = stored("raw", "clean", "kept", "result")
    catalog = DataCatalog(dict(datasets))
    assert ending.nodes_to_run(JOB, catalog, datasets) == ["make"]
    datasets["clean"].save(b"x")  # raw is gone, but no longer needed
    assert ending.nodes_to_run(JOB, catalog, datasets) == ["keep", "last"]
    datasets["kept"].save(b"x")
    assert ending.nodes_to_run(JOB, catalog, datasets) == ["last"]
    # A value kept only in memory is recomputed, together with its inputs.
    beside = DataCatalog({**stored("raw", "kept", "result"), "clean": MemoryDataset()})
    assert ending.nodes_to_run(JOB, beside, stored("raw", "kept", "result")) == ["make"]
    ending.node_ended("clean")
    assert ending.nodes_to_run(JOB, beside, stored("raw", "kept", "result")) == ["make"]
    ending.begun()


def test_datasets_of_a_process_end_with_it(daemon: Any) -> None:
    code = """
import entrepot_kedro, entrepot, os
d = entrepot_kedro.EntrepotDataset(name="x")
d.save(b"x" * 100_000)
assert d.load() == b"x" * 100_000
if os.fork() == 0:
    raise SystemExit(0)
os.wait()
assert d.load() == b"x" * 100_000
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert left() == {}


def test_gc_knows_a_run_whose_process_was_killed_after_its_end(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import test_ending
outputs = test_ending.run("run-1")
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code, __file__], capture_output=True, text=True, timeout=100)
    assert done.returncode == -9, done.stderr
    run("run-2")
    held = run("run-3")
    store = scope_store(None, SCOPE)
    assert set(left()) == {"mine", "kedro/run-1", "kedro/run-3"}
    assert ended_runs(store, SCOPE, ["kedro/run-1", "kedro/run-3", "kedro/none"]) == {"kedro/run-1": ENDED}
    # Marks of processes in other containers are not judged, because those processes are not visible from here.
    monkeypatch.setattr("entrepot_kedro.ended_runs._namespace", lambda: "pid:[1]")
    assert ended_runs(store, SCOPE, ["kedro/run-1", "kedro/run-3"]) == {}
    del held


def test_nothing_of_kedro_is_imported_to_ask() -> None:
    code = "import sys, entrepot_kedro.ended_runs; assert 'kedro' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=os.environ)
    assert done.returncode == 0, done.stderr
