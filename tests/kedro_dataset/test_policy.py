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
from entrepot import parts
from entrepot_io.connections import close_all, scope_store
from entrepot_io.keys import kedro_key
from entrepot_io.policy import lineage
from entrepot_io.policy.events import log_file, read_events
from entrepot_io.policy.lineage import ObjectRef
from entrepot_kedro import policies
from entrepot_kedro.hooks import hooks
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
        policies.forget()
        return file

    yield write
    policies.forget()
    close_all()


def kinds(tmp_path: Path) -> list[str]:
    return [event.kind for event in read_events(log_file(SCOPE, tmp_path / "events"))]


def session(job: Pipeline, catalog: DataCatalog | None = None, runner: Any = None, **params: Any) -> dict[str, Any]:
    """Run a pipeline that no project registers, like ``KedroSession.run``."""
    manager = _create_hook_manager()
    manager.register(hooks)
    called = manager.hook
    said: dict[str, Any] = {"run_id": RUN, "pipeline_names": None, **params}
    catalog = catalog or DataCatalog.from_config(CATALOG, save_version=str(said["run_id"]))
    called.before_pipeline_run(run_params=said, pipeline=job, catalog=catalog)
    missing = bool(said.get("only_missing_outputs"))
    try:
        outputs = (runner or SequentialRunner()).run(job, catalog, manager, str(said["run_id"]), missing)
    except Exception as error:
        called.on_pipeline_error(error=error, run_params=said, pipeline=job, catalog=catalog)
        raise
    called.after_pipeline_run(run_params=said, run_result=outputs, pipeline=job, catalog=catalog)
    return {name: dataset.load() for name, dataset in outputs.items()}


def ref(name: str) -> ObjectRef:
    return ObjectRef(SESSION, store().derive(kedro_key(name)), kedro_key(name))


def store() -> Any:
    return scope_store(None, SCOPE).session(SESSION)


def lose(*names: str) -> None:
    for name in names:
        assert store().exists(ref(name).id)
        parts.discard(store(), ref(name).id)


class Journal:
    """Records which nodes' functions were called, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: list[str] = []

    def noted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*inputs: Any) -> Any:
            with self._lock:
                self.calls.append(name)
            return function(*inputs)

        return call

    def node(self, name: str, function: Callable[..., Any], inputs: Any, outputs: Any) -> Any:
        return node(self.noted(name, function), inputs, outputs, name=name)


def numbers() -> Any:
    return np.arange(20_000)


def chain(journal: Journal, before_last: Callable[[], object] = lambda: None) -> Pipeline:
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
    session(chain(Journal()))
    known = lineage.read(store(), ref("total"))
    assert known is not None
    assert (known.task.host, known.task.pipeline, known.task.run, known.task.name) == (
        "kedro",
        "__default__",
        RUN,
        "sum",
    )
    assert {one.id for one in known.inputs} == {ref(name).id for name in ("doubled", "few", "paused")}
    assert known.dataset == "total"


@pytest.mark.parametrize("runner", [SequentialRunner, ThreadRunner, lambda: SequentialRunner(is_async=True)])
def test_lost_values_are_made_again_by_exactly_their_nodes(policy: Callable[[str], Path], runner: Any) -> None:
    policy(RERUN)
    journal = Journal()
    assert session(chain(journal, lambda: lose("doubled")), runner=runner()) == {"total": TOTAL}
    assert sorted(journal.calls[:4]) == ["double", "make", "other", "pause"]
    assert journal.calls[4:] == ["double", "sum"]


def test_several_losses_are_made_in_order(policy: Callable[[str], Path], tmp_path: Path) -> None:
    policy(RERUN)
    journal = Journal()
    assert session(chain(journal, lambda: lose("numbers", "doubled", "few"))) == {"total": TOTAL}
    assert journal.calls[4:] == ["make", "double", "other", "sum"]
    assert kinds(tmp_path).count("rerun_done") == 2


def test_intermediates_stay_until_the_end_of_the_run(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    there: list[bool] = []
    names = ("numbers", "doubled", "few")
    job = chain(Journal(), lambda: there.extend(store().exists(ref(name).id) for name in names))
    session(job)
    assert there == [True, True, True]
    assert [store().exists(ref(name).id) for name in (*names, "total")] == [False, False, False, True]


def test_what_kedro_holds_in_memory_is_made_again_too(policy: Callable[[str], Path]) -> None:
    """`scale` is in no store, and the runner released it after its last reader."""
    policy(RERUN)
    journal = Journal()

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
    catalog = DataCatalog.from_config(CATALOG, save_version=RUN)
    catalog["scale"] = MemoryDataset()
    assert session(job, catalog) == {"total": int(np.arange(20_000).sum() * 3)}
    assert sorted(journal.calls[4:6]) == ["apply", "scale"]
    assert journal.calls[6:] == ["sum"]


def test_many_readers_of_one_lost_value_have_it_made_once(policy: Callable[[str], Path], tmp_path: Path) -> None:
    """There are more readers than the rule has attempts, but their concurrent requests count as one."""
    policy(RERUN)
    journal, readers = Journal(), [f"reader{number}" for number in range(6)]
    together = threading.Barrier(len(readers), timeout=30)

    def pause(_: Any) -> int:
        lose("numbers")
        return 1

    def read(values: Any, _: Any) -> int:
        together.wait()  # every reader has loaded its inputs
        return int(values.sum())

    job = pipeline(
        [
            journal.node("make", numbers, None, "numbers"),
            journal.node("pause", pause, "numbers", "paused"),
            *(journal.node(name, read, ["numbers", "paused"], f"{name}_sum") for name in readers),
        ]
    )
    found = session(job, runner=ThreadRunner(max_workers=len(readers)))
    assert set(found.values()) == {int(np.arange(20_000).sum())}
    assert journal.calls.count("make") == 2
    assert kinds(tmp_path).count("gave_up") == 0


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
        {"numbers": {"type": "entrepot_kedro.EntrepotDataset", "copy": "always"}, **CATALOG}, save_version=RUN
    )
    assert session(job, catalog) == {"tries": 3}
    assert seen == [0, 0, 0]
    assert all("run" not in vars(one) for one in job.nodes)


def test_retries_end_and_the_first_error_is_raised(
    policy: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy(RETRY)
    calls: list[int] = []

    def fail() -> int:
        calls.append(1)
        raise RuntimeError("never works")

    with caplog.at_level(logging.INFO, "kedro.entrepot"), pytest.raises(RuntimeError, match="never works"):
        session(pipeline([node(fail, None, "x", name="failing")]))
    assert len(calls) == 3
    assert kinds(tmp_path) == ["task_failed", "retried"] * 2 + ["task_failed", "gave_up"]
    assert "Node 'failing' failed: 2 retries were tried" in caplog.text


def test_without_a_rule_a_failure_is_kedros_own(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    calls: list[int] = []

    def fail() -> int:
        calls.append(1)
        raise RuntimeError("never works")

    with pytest.raises(RuntimeError, match="never works"):
        session(pipeline([node(fail, None, "x", name="failing")]))
    assert len(calls) == 1


def test_a_rule_may_name_dataset_and_tag_when_lineage_is_gone(policy: Callable[[str], Path]) -> None:
    policy(
        "failover:\n"
        "  - {on: object_lost, match: {dataset: doubled, tag: dear}, do: [{fail: {reason: 'ask the data team'}}]}\n"
        "  - {on: object_lost, do: [rerun_upstream]}"
    )

    def lose_all(_: Any) -> int:
        lose("doubled")
        parts.discard(store(), store().derive(lineage.key_of(ref("doubled").id)))
        assert lineage.read(store(), ref("doubled")) is None
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
        session(job)


def test_async_checkpoints_are_written_when_the_run_is_over(policy: Callable[[str], Path], tmp_path: Path) -> None:
    policy("checkpoint: {target: '{root}/{run}', mode: async, rules: [{match: {dataset: doubled}}]}")
    session(chain(Journal()))
    assert kinds(tmp_path).count("checkpoint_written") == 1
    assert list((tmp_path / "checkpoints" / RUN).iterdir())


def test_a_target_that_cannot_be_written_is_said_before_the_first_node(
    policy: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "checkpoints").write_text("a file, where the folder would be")
    file = policy("checkpoint: {target: '{root}/{run}', rules: [{match: '*'}]}")
    journal = Journal()
    with pytest.raises(ValueError, match=f"{file}:2:"):
        session(chain(journal))
    assert journal.calls == []


def test_only_missing_outputs_goes_on_with_a_run_that_failed(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    journal, trouble = Journal(), [RuntimeError("told to fail")]

    def pause() -> None:
        if trouble:
            raise trouble.pop()

    job = chain(journal, pause)
    with pytest.raises(RuntimeError, match="told to fail"):
        session(job)
    done = len(journal.calls)
    lose("few")
    assert session(job, run_id="run-2", only_missing_outputs=True) == {"total": TOTAL}
    assert journal.calls[done:] == ["other", "pause", "sum"], "what is there is not made again"


def test_other_parameters_are_another_run(policy: Callable[[str], Path]) -> None:
    policy(RERUN)
    journal, trouble = Journal(), [RuntimeError("told to fail")]

    def pause() -> None:
        if trouble:
            raise trouble.pop()

    job = chain(journal, pause)
    with pytest.raises(RuntimeError, match="told to fail"):
        session(job, runtime_params={"scale": 1})
    done = len(journal.calls)
    found = session(job, run_id="run-2", only_missing_outputs=True, runtime_params={"scale": 2})
    assert found == {"total": TOTAL}
    assert sorted(journal.calls[done:]) == ["double", "make", "other", "pause", "sum"]


def test_a_value_that_nobody_wrote_is_not_lost(policy: Callable[[str], Path], tmp_path: Path) -> None:
    policy(RERUN)
    job = pipeline([node(lambda values: values, "elsewhere", "copy")])
    with pytest.raises(ValueError, match=r"Pipeline input\(s\) \{'elsewhere'\} not found"):
        session(job)
    assert kinds(tmp_path) == []


def test_without_a_policy_nothing_of_it_is_imported(daemon: Any, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from entrepot_kedro.hooks import hooks\n"
        "ours = {name for name in sys.modules if name.split('.')[0] in ('entrepot', 'entrepot_io')}\n"
        "assert ours <= {'entrepot', 'entrepot.lazy'}, ours\n"
        "from entrepot_kedro import EntrepotDataset\n"
        "dataset = EntrepotDataset(name='x', scope='tests')\n"
        "dataset.save({'a': 1})\n"
        "assert dataset.exists() and dataset.load() == {'a': 1}\n"
        "dataset.release()\n"
        "assert not [name for name in sys.modules if name.startswith('entrepot_io.policy')]\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "ENTREPOT_ADDRESS": daemon.address, "ENTREPOT_POLICY": ""},
        timeout=60,
    )
