"""A successful run leaves nothing in the store; a failed one leaves what resuming needs."""

from __future__ import annotations

import gc
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from entrepot_io.connections import scope_store
from entrepot_kedro import EntrepotDataset, catalog_config, session_cleanup
from entrepot_kedro.ended_runs import ENDED, ended_runs
from entrepot_kedro.hooks import EntrepotHooks
from kedro.io import DataCatalog, MemoryDataset
from kedro.pipeline import Pipeline, node, pipeline
from kedro.runner import SequentialRunner

pytestmark = pytest.mark.usefixtures("in_scope_tests")

SCOPE = "tests"
SIZE = 100_000


def remaining_objects() -> dict[str, int]:
    """Number of objects by named session."""
    return {info.session: info.objects for info in scope_store(None, SCOPE).sessions() if info.session}


def make() -> bytes:
    return b"x" * SIZE


def identity(value: bytes) -> bytes:
    return value


def fail(*values: Any) -> None:
    raise RuntimeError("told to fail")


JOB = pipeline(
    [
        node(make, None, "raw", name="make"),
        node(identity, "raw", "clean", name="clean"),
        node(identity, "clean", "kept", name="keep"),
        node(identity, "clean", "result", name="last"),
    ]
)


def _catalog(version: str, **datasets: Any) -> DataCatalog:
    """A catalog as ``kedro run`` creates it: all datasets of a run use the run's session."""
    catalog = DataCatalog.from_config(
        catalog_config(
            {
                "{name}": {"type": "entrepot_kedro.EntrepotDataset"},
                "kept": {"type": "entrepot_kedro.EntrepotDataset", "session": "mine"},
            },
            run_id=version,
        )
    )
    for name, dataset in datasets.items():
        catalog[name] = dataset
    return catalog


def run(version: str, job: Pipeline = JOB, **datasets: Any) -> Any:
    """Run a pipeline with the hooks, like ``kedro run``; returns its outputs."""
    from kedro.framework.hooks.manager import _create_hook_manager
    from pluggy import PluginManager

    manager: PluginManager = _create_hook_manager()
    manager.register(EntrepotHooks())
    catalog = _catalog(version, **datasets)
    hook_arguments = {"run_params": {"run_id": version}, "pipeline": job, "catalog": catalog}
    manager.hook.before_pipeline_run(**hook_arguments)
    try:
        outputs = SequentialRunner().run(job, catalog, hook_manager=manager)
    except Exception as error:
        manager.hook.on_pipeline_error(error=error, **hook_arguments)
        raise
    manager.hook.after_pipeline_run(run_result=outputs, **hook_arguments)
    return outputs


def test_successful_runs_leave_only_persistent_entries() -> None:
    for number in range(5):
        run(f"run-{number}")
        gc.collect()
    assert remaining_objects() == {"mine": 1}


def test_outputs_stay_while_referenced() -> None:
    outputs = run("run-1")
    gc.collect()
    assert outputs["result"].load() == b"x" * SIZE
    assert "kedro/run-1" in remaining_objects()
    del outputs
    gc.collect()
    assert remaining_objects() == {"mine": 1}


def test_a_failed_run_keeps_what_resuming_needs_and_says_how(caplog: pytest.LogCaptureFixture) -> None:
    job = pipeline([*JOB.nodes, node(fail, ["result", "clean"], "report", name="report")])
    caplog.set_level(logging.WARNING, logger="kedro.entrepot")
    with pytest.raises(RuntimeError, match="told to fail"):
        run("run-1", job)
    gc.collect()
    assert remaining_objects()["kedro/run-1"] >= 2
    advice = re.search(
        r'\((\S+ \S+)\) are kept.*with --from-nodes "(.*)", or with --only-missing-outputs; to drop them: (.*)',
        caplog.text,
    )
    assert advice is not None, caplog.text
    assert advice.groups() == ("195.3 KiB", "report", "entrepot sessions rm kedro/run-1")
    # The advice works: the resumed run succeeds, and nothing is left of either run.
    repaired = pipeline([*JOB.nodes, node(lambda *_: 1, ["result", "clean"], "report", name="report")])
    outputs = run("run-2", repaired.from_nodes(*advice[2].split(",")))
    assert outputs["report"].load() == 1
    del outputs
    gc.collect()
    assert remaining_objects() == {"mine": 1}


def test_a_failed_run_says_which_results_of_earlier_runs_would_be_left_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run("run-1")  # makes `kept`, which outlives runs
    job = pipeline([node(make, None, "raw"), node(fail, "raw", "kept", name="keep"), node(identity, "kept", "result")])
    caplog.set_level(logging.WARNING, logger="kedro.entrepot")
    with pytest.raises(RuntimeError, match="told to fail"):
        run("run-2", job)
    assert "--only-missing-outputs (which leaves as it is what exists already: kept); to drop" in caplog.text
    assert '--from-nodes "keep"' in caplog.text


def test_a_value_that_stays_in_memory_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    job = pipeline(
        [
            node(make, None, "raw", name="make"),
            node(lambda _: lambda value: value, "raw", "function", name="closure"),
            node(lambda function, raw: function(raw), ["function", "raw"], "result", name="call"),
            node(fail, ["result", "function"], "report", name="report"),
        ]
    )
    caplog.set_level(logging.WARNING, logger="kedro.entrepot")
    with pytest.raises(RuntimeError, match="told to fail"):
        run("run-1", job)
    assert '--from-nodes "make"' in caplog.text  # as `raw` has had its last consumer, too


def test_a_run_that_saved_nothing_leaves_no_session(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match=r"'mistyped'} not found in the"):
        run("run-1", pipeline([node(identity, "mistyped", "clean", name="clean")]))
    assert remaining_objects() == {}
    with pytest.raises(RuntimeError, match="told to fail"):
        run("run-2", pipeline([node(fail, None, "raw", name="make")]))
    assert remaining_objects() == {}
    assert "is kept" not in caplog.text


def test_resuming_names_the_first_nodes_only() -> None:
    def run_datasets(*names: str) -> dict[str, EntrepotDataset]:
        return {name: EntrepotDataset(name=name, session="run") for name in names}

    datasets = run_datasets("raw", "clean", "kept", "result")
    catalog = DataCatalog(dict(datasets))
    assert session_cleanup.nodes_to_run(JOB, catalog, datasets) == ["make"]
    datasets["clean"].save(b"x")  # raw is gone, but no longer needed
    assert session_cleanup.nodes_to_run(JOB, catalog, datasets) == ["keep", "last"]
    datasets["kept"].save(b"x")
    assert session_cleanup.nodes_to_run(JOB, catalog, datasets) == ["last"]
    # A value kept only in memory is recomputed, together with its inputs.
    memory_catalog = DataCatalog({**run_datasets("raw", "kept", "result"), "clean": MemoryDataset()})
    assert session_cleanup.nodes_to_run(JOB, memory_catalog, run_datasets("raw", "kept", "result")) == ["make"]
    in_run = run_datasets("raw", "kept", "result")
    assert session_cleanup.nodes_to_run(JOB, memory_catalog, in_run, finished={"clean"}) == ["make"]


def test_resuming_makes_released_inputs_of_nodes_that_come_after_the_first_ones() -> None:
    """Kedro runs all nodes after those that it is told, also those that are done."""
    branches = pipeline(
        [
            node(make, None, "left", name="left"),
            node(make, None, "right", name="right"),
            node(fail, ["left", "right"], "both", name="both"),
            node(fail, ["left", "both"], "last", name="last"),
        ]
    )
    datasets = {name: EntrepotDataset(name=name, session="run") for name in ("left", "right", "both", "last")}
    catalog = DataCatalog(dict(datasets))
    datasets["both"].save(b"x")  # both inputs are gone: `left` was lost, `right` was released after its last reader
    assert session_cleanup.nodes_to_run(branches, catalog, datasets) == ["left", "right"]


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
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert process.returncode == 0, process.stderr
    assert remaining_objects() == {}


CATALOG_IN_PYTHON = """
import os, sys
from entrepot_kedro import catalog_config
from kedro.io import DataCatalog
from kedro.pipeline import node, pipeline
from kedro.runner import SequentialRunner

catalog = DataCatalog.from_config(
    catalog_config({"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}, run_id=sys.argv[1] or None)
)
job = pipeline([node(lambda: b"x" * 100_000, None, "raw"), node(lambda raw: raw.upper(), "raw", "upper")])
outputs = SequentialRunner().run(job, catalog)
assert outputs["upper"].load() == b"X" * 100_000
if os.fork() == 0:
    raise SystemExit(0)
os.wait()
assert outputs["upper"].load() == b"X" * 100_000
"""


@pytest.mark.parametrize(("run_id", "left"), [("", {}), ("mine", {"kedro/mine": 1})])
def test_a_catalog_in_python_ends_with_its_process_unless_it_has_a_run(run_id: str, left: dict[str, int]) -> None:
    code = [sys.executable, "-c", CATALOG_IN_PYTHON, run_id]
    process = subprocess.run(code, capture_output=True, text=True, timeout=100)
    assert process.returncode == 0, process.stderr
    assert remaining_objects() == left


FORKED = """
import multiprocessing, os, sys
from entrepot_kedro import EntrepotDataset, catalog_config
from kedro.io import DataCatalog

parents = EntrepotDataset(name="x")
parents.save("parent")


def child(number, results):
    own = EntrepotDataset(name="x")
    own.save(number)
    barrier.wait()
    catalog = DataCatalog.from_config(catalog_config({"x": {"type": "entrepot_kedro.EntrepotDataset"}}))
    catalog.save("x", number)
    results.put((number, own.load(), catalog.load("x"), parents.load()))


context = multiprocessing.get_context("fork")
barrier, results = context.Barrier(3), context.Queue()
children = [context.Process(target=child, args=(number, results)) for number in range(3)]
for each in children:
    each.start()
for each in children:
    assert (got := results.get())[:3] == (got[0],) * 3 and got[3] == "parent", got
for each in children:
    each.join()
assert parents.load() == "parent"
sessions = {info.session: info.objects for info in parents.store().sessions() if info.objects}
assert len(sessions) == 1, sessions
"""


def test_each_fork_has_values_of_its_own_which_end_with_it() -> None:
    process = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=100)
    assert process.returncode == 0, process.stderr
    assert remaining_objects() == {}


def test_gc_knows_a_run_whose_process_was_killed_after_its_end(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import test_session_cleanup
outputs = test_session_cleanup.run("run-1")
os.kill(os.getpid(), 9)
"""
    process = subprocess.run([sys.executable, "-c", code, __file__], capture_output=True, text=True, timeout=100)
    assert process.returncode == -9, process.stderr
    run("run-2")
    live_outputs = run("run-3")
    store = scope_store(None, SCOPE)
    assert set(remaining_objects()) == {"mine", "kedro/run-1", "kedro/run-3"}
    assert ended_runs(store, SCOPE, ["kedro/run-1", "kedro/run-3", "kedro/none"]) == {"kedro/run-1": ENDED}
    # Marks of processes in other containers are not judged, because those processes are not visible from here.
    monkeypatch.setattr("entrepot_kedro.ended_runs._namespace", lambda: "pid:[1]")
    assert ended_runs(store, SCOPE, ["kedro/run-1", "kedro/run-3"]) == {}
    del live_outputs


def test_ended_runs_import_nothing_of_kedro() -> None:
    code = "import sys, entrepot_kedro.ended_runs; assert 'kedro' not in sys.modules"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env=os.environ)
    assert process.returncode == 0, process.stderr
