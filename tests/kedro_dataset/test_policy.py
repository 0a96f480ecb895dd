"""The policy under Kedro's runners in this process: lineage, retries, reruns, releases, the end of a run."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from entrepot import raw_objects
from entrepot_io.connections import close_all, scope_store
from entrepot_io.keys import kedro_key
from entrepot_kedro.catalog_names import named_entries
from entrepot_kedro.hooks import hooks
from entrepot_kedro.policy import policy_registry
from entrepot_policy.state import lineage
from entrepot_policy.state.events import log_file, read_events
from entrepot_policy.state.lineage import ObjectRef
from kedro.framework.hooks.manager import _create_hook_manager
from kedro.io import DataCatalog, DatasetError, MemoryDataset
from kedro.pipeline import Pipeline, node, pipeline
from kedro.runner import SequentialRunner, ThreadRunner

SCOPE = "tests"
RUN = "run-1"
SESSION = f"kedro/{RUN}"
CATALOG = {"{name}": {"type": "entrepot_kedro.EntrepotDataset"}}

RETRY = "failover: [{on: task_failed, do: [{retry: {attempts: 2, delay: 10ms}}]}]"
RERUN = "failover: [{on: object_lost, do: [rerun_upstream]}]"


@pytest.fixture
def policy(daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """``policy(text)``: put a policy without version line into effect; ``{root}`` is a directory for checkpoints."""
    monkeypatch.setenv("ENTREPOT_ADDRESS", daemon.address)
    monkeypatch.setenv("ENTREPOT_SCOPE", SCOPE)
    monkeypatch.setenv("ENTREPOT_EVENTS", str(tmp_path / "events"))
    monkeypatch.delenv("ENTREPOT_SESSION", raising=False)
    file = tmp_path / "entrepot.yaml"

    def write(text: str) -> Path:
        file.write_text(f"version: 1\n{text.replace('{root}', str(tmp_path / 'checkpoints'))}\n")
        monkeypatch.setenv("ENTREPOT_POLICY", str(file))
        policy_registry.reset()
        return file

    yield write
    policy_registry.reset()
    close_all()


def event_kinds(tmp_path: Path) -> list[str]:
    return [event.kind for event in read_events(log_file(SCOPE, tmp_path / "events"))]


def run_pipeline(
    job: Pipeline, catalog: DataCatalog | None = None, runner: Any = None, **params: Any
) -> dict[str, Any]:
    """Run a pipeline that no project registers, like ``KedroSession.run``."""
    manager = _create_hook_manager()
    manager.register(hooks)
    hook = manager.hook
    run_params: dict[str, Any] = {"run_id": RUN, "pipeline_names": None, **params}
    catalog = catalog or DataCatalog.from_config(named_entries(CATALOG))
    hook.before_pipeline_run(run_params=run_params, pipeline=job, catalog=catalog)
    missing = bool(run_params.get("only_missing_outputs"))
    try:
        outputs = (runner or SequentialRunner()).run(job, catalog, manager, str(run_params["run_id"]), missing)
    except Exception as error:
        hook.on_pipeline_error(error=error, run_params=run_params, pipeline=job, catalog=catalog)
        raise
    hook.after_pipeline_run(run_params=run_params, run_result=outputs, pipeline=job, catalog=catalog)
    return {name: dataset.load() for name, dataset in outputs.items()}


def object_ref(name: str) -> ObjectRef:
    return ObjectRef(SESSION, session_store().derive(kedro_key(name)), kedro_key(name))


def session_store() -> Any:
    return scope_store(None, SCOPE).session(SESSION)


def lose(*names: str) -> None:
    for name in names:
        assert session_store().exists(object_ref(name).id)
        raw_objects.discard(session_store(), object_ref(name).id)


class CallJournal:
    """Records which nodes' functions were called, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: list[str] = []

    def recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*inputs: Any) -> Any:
            with self._lock:
                self.calls.append(name)
            return function(*inputs)

        return call

    def node(self, name: str, function: Callable[..., Any], inputs: Any, outputs: Any) -> Any:
        return node(self.recorded(name, function), inputs, outputs, name=name)


def numbers() -> Any:
    return np.arange(20_000)


def chain(journal: CallJournal, before_last: Callable[[], object] = lambda: None) -> Pipeline:
    """numbers -> doubled -> total, and numbers -> few -> total; ``pause`` calls ``before_last`` before ``total``."""

    def pause(*_: Any) -> int:
        before_last()
        return 1

    return pipeline(
        [
            journal.node("make", numbers, None, "numbers"),
            journal.node("double", lambda values: values * 2, "numbers", "doubled"),
            journal.node("other", lambda values: int(values[:3].sum()), "numbers", "few"),
            journal.node("pause", pause, ["doubled", "few"], "paused"),
            journal.node("sum", lambda values, few, _: int(values.sum()) + few, ["doubled", "few", "paused"], "total"),
        ]
    )


TOTAL = int(np.arange(20_000).sum() * 2) + 3


def test_lineage_names_node_inputs_and_dataset(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    run_pipeline(chain(CallJournal()))
    record = lineage.read(session_store(), object_ref("total"))
    assert record is not None
    assert (record.task.orchestrator, record.task.pipeline, record.task.run, record.task.name) == (
        "kedro",
        "__default__",
        RUN,
        "sum",
    )
    assert {input_ref.id for input_ref in record.inputs} == {
        object_ref(name).id for name in ("doubled", "few", "paused")
    }
    assert record.dataset == "total"


@pytest.mark.parametrize("runner", [SequentialRunner, ThreadRunner, lambda: SequentialRunner(is_async=True)])
def test_lost_values_are_recomputed_by_exactly_their_nodes(policy: Callable[[str], Path], runner: Any) -> None:
    policy(RERUN)
    journal = CallJournal()
    assert run_pipeline(chain(journal, lambda: lose("doubled")), runner=runner()) == {"total": TOTAL}
    assert sorted(journal.calls[:4]) == ["double", "make", "other", "pause"]
    assert journal.calls[4:] == ["double", "sum"]


def test_several_lost_values_are_recomputed_in_order(policy: Callable[[str], Path], tmp_path: Path) -> None:
    policy(RERUN)
    journal = CallJournal()
    assert run_pipeline(chain(journal, lambda: lose("numbers", "doubled", "few"))) == {"total": TOTAL}
    assert journal.calls[4:] == ["make", "double", "other", "sum"]
    assert event_kinds(tmp_path).count("rerun_done") == 2


def test_intermediates_stay_until_the_end_of_the_run(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    exist: list[bool] = []
    names = ("numbers", "doubled", "few")
    job = chain(CallJournal(), lambda: exist.extend(session_store().exists(object_ref(name).id) for name in names))
    run_pipeline(job)
    assert exist == [True, True, True]
    assert [session_store().exists(object_ref(name).id) for name in (*names, "total")] == [False, False, False, True]


def test_memory_datasets_are_recomputed_too(policy: Callable[[str], Path]) -> None:
    """`scale` is in no store, and the runner released it after its last reader."""
    policy(RERUN)
    journal = CallJournal()

    def pause(_: Any) -> int:
        lose("scaled")
        return 1

    job = pipeline(
        [
            journal.node("make", numbers, None, "numbers"),
            journal.node("scale", lambda: 3, None, "scale"),
            journal.node("apply", lambda values, by: values * by, ["numbers", "scale"], "scaled"),
            journal.node("pause", pause, "scaled", "paused"),
            journal.node("sum", lambda values, _: int(values.sum()), ["scaled", "paused"], "total"),
        ]
    )
    catalog = DataCatalog.from_config(named_entries(CATALOG))
    catalog["scale"] = MemoryDataset()
    assert run_pipeline(job, catalog) == {"total": int(np.arange(20_000).sum() * 3)}
    assert sorted(journal.calls[4:6]) == ["apply", "scale"]
    assert journal.calls[6:] == ["sum"]


def test_many_readers_of_one_lost_value_recompute_it_once(policy: Callable[[str], Path], tmp_path: Path) -> None:
    """There are more readers than the rule has attempts, but their concurrent requests count as one."""
    policy(RERUN)
    journal, readers = CallJournal(), [f"reader{number}" for number in range(6)]
    barrier = threading.Barrier(len(readers), timeout=30)

    def pause(_: Any) -> int:
        lose("numbers")
        return 1

    def read(values: Any, _: Any) -> int:
        barrier.wait()  # every reader has loaded its inputs
        return int(values.sum())

    job = pipeline(
        [
            journal.node("make", numbers, None, "numbers"),
            journal.node("pause", pause, "numbers", "paused"),
            *(journal.node(name, read, ["numbers", "paused"], f"{name}_sum") for name in readers),
        ]
    )
    outputs = run_pipeline(job, runner=ThreadRunner(max_workers=len(readers)))
    assert set(outputs.values()) == {int(np.arange(20_000).sum())}
    assert journal.calls.count("make") == 2
    assert event_kinds(tmp_path).count("gave_up") == 0


def test_a_node_that_raises_is_tried_again_with_fresh_inputs(policy: Callable[[str], Path]) -> None:
    """The function modifies its input before it raises; the next attempt must not see that."""
    policy(RETRY)
    seen: list[int] = []

    def spoil(values: Any) -> int:
        seen.append(int(values[0]))
        values[:] = 7
        if len(seen) < 3:
            raise RuntimeError("not yet")
        return len(seen)

    job = pipeline([node(numbers, None, "numbers"), node(spoil, "numbers", "tries", name="spoil")])
    catalog = DataCatalog.from_config(
        named_entries({"numbers": {"type": "entrepot_kedro.EntrepotDataset", "copy": "always"}, **CATALOG})
    )
    assert run_pipeline(job, catalog) == {"tries": 3}
    assert seen == [0, 0, 0]
    assert all("run" not in vars(job_node) for job_node in job.nodes)


def test_retries_end_and_the_first_error_is_raised(
    policy: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy(RETRY)
    calls: list[int] = []

    def fail() -> int:
        calls.append(1)
        raise RuntimeError("never works")

    with caplog.at_level(logging.INFO, "kedro.entrepot"), pytest.raises(RuntimeError, match="never works"):
        run_pipeline(pipeline([node(fail, None, "x", name="failing")]))
    assert len(calls) == 3
    assert event_kinds(tmp_path) == ["task_failed", "retried"] * 2 + ["task_failed", "gave_up"]
    assert "Node 'failing' failed: gave up after 2 retries" in caplog.text


def test_without_a_rule_a_failure_is_kedros_own(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    calls: list[int] = []

    def fail() -> int:
        calls.append(1)
        raise RuntimeError("never works")

    with pytest.raises(RuntimeError, match="never works"):
        run_pipeline(pipeline([node(fail, None, "x", name="failing")]))
    assert len(calls) == 1


def test_a_rule_may_name_dataset_and_tag_when_lineage_is_gone(policy: Callable[[str], Path]) -> None:
    policy(
        "failover:\n"
        "  - {on: object_lost, match: {dataset: doubled, tag: dear}, do: [{fail: {reason: 'ask the data team'}}]}\n"
        "  - {on: object_lost, do: [rerun_upstream]}"
    )

    def lose_all(_: Any) -> int:
        lose("doubled")
        raw_objects.discard(session_store(), session_store().derive(lineage.record_key(object_ref("doubled").id)))
        assert lineage.read(session_store(), object_ref("doubled")) is None
        return 1

    job = pipeline(
        [
            node(numbers, None, "numbers", name="make"),
            node(lambda values: values * 2, "numbers", "doubled", name="double", tags=["dear"]),
            node(lose_all, "doubled", "paused", name="pause"),
            node(lambda values, _: int(values.sum()), ["doubled", "paused"], "total", name="sum"),
        ]
    )
    with pytest.raises(DatasetError, match="ask the data team"):
        run_pipeline(job)


def test_async_checkpoints_are_written_when_the_run_is_over(policy: Callable[[str], Path], tmp_path: Path) -> None:
    policy("checkpoint: {target: '{root}/{run}', mode: async, rules: [{match: {dataset: doubled}}]}")
    run_pipeline(chain(CallJournal()))
    assert event_kinds(tmp_path).count("checkpoint_written") == 1
    assert list((tmp_path / "checkpoints" / RUN).iterdir())


def test_an_unwritable_target_fails_before_the_first_node(policy: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file, where the folder would be")
    file = policy("checkpoint: {target: '{root}/{run}', rules: [{match: '*'}]}")
    journal = CallJournal()
    with pytest.raises(ValueError, match=f"{file}:2:"):
        run_pipeline(chain(journal))
    assert journal.calls == []


def test_only_missing_outputs_resumes_a_failed_run(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    journal, errors = CallJournal(), [RuntimeError("told to fail")]

    def pause() -> None:
        if errors:
            raise errors.pop()

    job = chain(journal, pause)
    with pytest.raises(RuntimeError, match="told to fail"):
        run_pipeline(job)
    call_count = len(journal.calls)
    lose("few")
    assert run_pipeline(job, run_id="run-2", only_missing_outputs=True) == {"total": TOTAL}
    assert journal.calls[call_count:] == ["other", "pause", "sum"], "existing values are not recomputed"


def test_a_failed_run_without_values_is_not_the_one_to_continue(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    journal, errors = CallJournal(), [RuntimeError("told to fail late")]

    def pause() -> None:
        if errors:
            raise errors.pop()

    def make() -> Any:
        raise RuntimeError("told to fail at once")

    job = chain(journal, pause)
    with pytest.raises(RuntimeError, match="late"):
        run_pipeline(job)
    call_count = len(journal.calls)
    with pytest.raises(RuntimeError, match="at once"):
        run_pipeline(pipeline([node(make, None, "numbers", name="make")]), run_id="run-2")
    assert run_pipeline(job, run_id="run-3", only_missing_outputs=True) == {"total": TOTAL}
    assert journal.calls[call_count:] == ["pause", "sum"]


def test_other_parameters_are_another_run(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    journal, errors = CallJournal(), [RuntimeError("told to fail")]

    def pause() -> None:
        if errors:
            raise errors.pop()

    job = chain(journal, pause)
    with pytest.raises(RuntimeError, match="told to fail"):
        run_pipeline(job, runtime_params={"scale": 1})
    call_count = len(journal.calls)
    outputs = run_pipeline(job, run_id="run-2", only_missing_outputs=True, runtime_params={"scale": 2})
    assert outputs == {"total": TOTAL}
    assert sorted(journal.calls[call_count:]) == ["double", "make", "other", "pause", "sum"]


def test_a_value_that_nobody_wrote_is_not_lost(policy: Callable[[str], Path], tmp_path: Path) -> None:
    policy(RERUN)
    job = pipeline([node(lambda values: values, "elsewhere", "copy")])
    with pytest.raises(ValueError, match=r"Pipeline input\(s\) \{'elsewhere'\} not found"):
        run_pipeline(job)
    assert event_kinds(tmp_path) == []


def test_without_a_policy_no_policy_module_is_imported(daemon: Any, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from entrepot_kedro.hooks import hooks\n"
        "packages = ('entrepot', 'entrepot_io', 'entrepot_checkpoints', 'entrepot_policy')\n"
        "ours = {name for name in sys.modules if name.split('.')[0] in packages}\n"
        "assert ours <= {'entrepot', 'entrepot.lazy_imports'}, ours\n"
        "from entrepot_kedro import EntrepotDataset\n"
        "dataset = EntrepotDataset(name='x', scope='tests')\n"
        "dataset.save({'a': 1})\n"
        "assert dataset.exists() and dataset.load() == {'a': 1}\n"
        "dataset.release()\n"
        "assert not [name for name in sys.modules if name.startswith('entrepot_policy')]\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "ENTREPOT_ADDRESS": daemon.address, "ENTREPOT_POLICY": ""},
        timeout=60,
    )
