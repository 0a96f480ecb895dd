"""Ops and jobs: in this process, and with Dagster's multiprocess executor."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dagster import (
    DagsterEventType,
    DagsterInstance,
    In,
    JobExecutionResult,
    Nothing,
    OpExecutionContext,
    ReexecutionOptions,
    execute_job,
    job,
    op,
)
from dagster._core.definitions.reconstruct import ReconstructableJob
from entrepot.errors import InvalidArgument, ObjectLost, ObjectNotFound, StoreUnavailable
from entrepot_dagster import EntrepotIOManager
from entrepot_dagster.values.keys import default_scope, key_of_output
from entrepot_io.connections import close_all, session_store
from entrepot_io.reference import Reference

# Each step is a new interpreter: on a busy machine, a job of three steps takes two minutes.
pytestmark = [pytest.mark.usefixtures("own_store"), pytest.mark.timeout(400)]

JOBS = str(Path(__file__).with_name("jobs.py"))


def metadata_of(event: Any) -> dict[str, Any]:
    """Metadata of a HANDLED_OUTPUT event."""
    return dict(event.event_specific_data.metadata)


def references(result: Any) -> dict[str, Reference]:
    """References recorded by the IO manager, by step and output."""
    by_output = {}
    for event in result.all_events:
        if event.event_type == DagsterEventType.HANDLED_OUTPUT:
            data = event.event_specific_data
            by_output[f"{event.step_key}.{data.output_name}"] = Reference.parse(
                metadata_of(event)["entrepot/reference"].data
            )
    return by_output


def cause_message(event: Any, error_class: type[BaseException]) -> str:
    """Message of the error of class ``error_class`` in a failed step's chain of causes."""
    error = event.step_failure_data.error
    while error is not None:
        if error.cls_name == error_class.__name__:
            return str(error.message)
        error = error.cause
    raise AssertionError(f"no {error_class.__name__} in {event.step_failure_data.error}")


@op
def numbers() -> np.ndarray:
    return np.arange(10_000)


@op
def add(values: np.ndarray) -> int:
    return int(values.sum())


@job(resource_defs={"io_manager": EntrepotIOManager()})
def small() -> None:
    add(numbers())


def test_in_process(instance: DagsterInstance) -> None:
    result = small.execute_in_process(instance=instance)
    assert result.success
    assert result.output_for_node("add") == 10_000 * 9_999 // 2
    recorded = references(result)
    assert recorded["numbers.result"].type == "numpy.ndarray"
    assert recorded["numbers.result"].shape == (10_000,)
    assert recorded["numbers.result"].session == f"dagster/{result.run_id}"
    assert recorded["numbers.result"].key == "op:numbers/result"


def test_metadata_is_readable(instance: DagsterInstance) -> None:
    result = small.execute_in_process(instance=instance)
    event = next(e for e in result.all_events if e.event_type == DagsterEventType.HANDLED_OUTPUT)
    metadata = {label: entry.value for label, entry in metadata_of(event).items()}
    assert metadata["entrepot/type"] == "numpy.ndarray"
    assert metadata["entrepot/shape"] == "10000"
    assert metadata["entrepot/bytes"] >= 80_000
    assert metadata["entrepot/id"] == metadata["entrepot/reference"]["id"]
    assert len(str(metadata)) < 1500


def test_metadata_says_the_size_of_small_values(instance: DagsterInstance) -> None:
    result = small.execute_in_process(instance=instance)
    (event,) = [e for e in result.all_events if e.event_type == DagsterEventType.HANDLED_OUTPUT and e.step_key == "add"]
    metadata = {label: entry.value for label, entry in metadata_of(event).items()}
    assert (metadata["entrepot/type"], metadata["entrepot/bytes"]) == ("int", 5)
    assert metadata["entrepot/reference"]["nbytes"] == 5


def run_job(name: str, instance: DagsterInstance, executor: str = "multiprocess") -> JobExecutionResult:
    """Run a job of jobs.py, by default with the multiprocess executor, Dagster's default."""
    settings: dict[str, Any] = {"multiprocess": {"max_concurrent": 2}, "in_process": {}}
    run_config = {"execution": {"config": {executor: settings[executor]}}}
    return execute_job(ReconstructableJob.for_file(JOBS, name), instance=instance, run_config=run_config)


@pytest.mark.slow
@pytest.mark.e2e
def test_processes_hand_over(instance: DagsterInstance) -> None:
    with run_job("handoff", instance) as result:
        assert result.success
        answer = result.output_for_node("report")
    assert answer["model"] == "Model"
    assert len({*answer["processes"], os.getpid()}) == 3


@pytest.mark.slow
@pytest.mark.e2e
def test_dynamic_outputs(instance: DagsterInstance) -> None:
    with run_job("dynamic", instance) as result:
        assert result.success
        assert result.output_for_node("total") == 2 * 10_000 * (0 + 1 + 2)


@pytest.mark.slow
@pytest.mark.e2e
def test_a_retry_writes_the_same_object(instance: DagsterInstance) -> None:
    with run_job("retried", instance) as result:
        assert result.success
        assert result.output_for_node("check_attempt") == 1
        attempts = [
            Reference.parse(metadata_of(event)["entrepot/reference"].data)
            for event in result.all_events
            if event.event_type == DagsterEventType.HANDLED_OUTPUT and event.step_key == "flaky"
        ]
    first = [reference for reference in attempts if reference.key == "op:flaky/first"]
    assert len(first) == 2
    assert first[0].id == first[1].id
    assert first[0].generation != first[1].generation


@pytest.mark.slow
@pytest.mark.e2e
def test_a_lost_input_fails_the_step(instance: DagsterInstance) -> None:
    with run_job("lost", instance) as result:
        assert not result.success
        failed = [event for event in result.all_events if event.is_step_failure]
        assert [event.step_key for event in failed] == ["consume"]
        assert "is no longer in the store" in cause_message(failed[0], ObjectLost)
        # Its retry policy is left alone: no retry could read what is gone.
        assert [event for event in result.all_events if event.event_type is DagsterEventType.STEP_UP_FOR_RETRY] == []


@op
def boom(values: np.ndarray, fail: bool) -> int:
    if fail:
        raise RuntimeError("told to fail")
    return int(values.sum())


@op
def whether() -> bool:
    return not os.environ.get("GO_ON")


@job(resource_defs={"io_manager": EntrepotIOManager()})
def resumable() -> None:
    boom(numbers(), whether())


@pytest.mark.slow
@pytest.mark.e2e
def test_reexecution_reads_what_the_parent_run_wrote(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = resumable.execute_in_process(instance=instance, raise_on_error=False)
    assert not failed.success
    monkeypatch.setenv("GO_ON", "1")
    options = ReexecutionOptions(parent_run_id=failed.run_id, step_selection=["whether", "boom"])
    with execute_job(
        ReconstructableJob.for_file(__file__, "resumable"), instance=instance, reexecution_options=options
    ) as result:
        assert result.success
        assert result.output_for_node("boom") == 10_000 * 9_999 // 2
        assert "numbers.result" not in references(result)


@pytest.mark.slow
@pytest.mark.e2e
def test_reexecution_after_a_store_restart_names_the_lost_value(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, daemon: Any
) -> None:
    failed = resumable.execute_in_process(instance=instance, raise_on_error=False)
    daemon.stop()
    close_all()
    daemon.start()
    monkeypatch.setenv("GO_ON", "1")
    options = ReexecutionOptions(parent_run_id=failed.run_id, step_selection=["whether", "boom"])
    with execute_job(
        ReconstructableJob.for_file(__file__, "resumable"), instance=instance, reexecution_options=options
    ) as result:
        assert not result.success
        event = next(event for event in result.all_events if event.is_step_failure)
        assert "ended or was killed, and this is a new one" in cause_message(event, ObjectLost)


def test_runs_do_not_mix(instance: DagsterInstance) -> None:
    first, second = (small.execute_in_process(instance=instance) for _ in range(2))
    assert references(first)["numbers.result"].id != references(second)["numbers.result"].id


def lose_output(instance: DagsterInstance, run_id: str, *names: str) -> None:
    output_key = key_of_output([run_id, *names])
    store = session_store(None, default_scope(instance), output_key.session, None)
    assert store.delete(store.derive(output_key.key))


@op
def drop(context: OpExecutionContext, values: np.ndarray) -> None:
    lose_output(context.instance, context.run_id, "numbers", "result")


@op(ins={"after": In(Nothing)})
def add_later(values: np.ndarray) -> int:
    return int(values.sum())


@job(resource_defs={"io_manager": EntrepotIOManager()})
def losing() -> None:
    values = numbers()
    add_later(values, after=drop(values))


def test_a_lost_input_is_an_error_in_process(instance: DagsterInstance) -> None:
    with pytest.raises(ObjectLost, match=r"'op:numbers/result' .* is no longer in the store"):
        losing.execute_in_process(instance=instance)


def test_a_stopped_store_is_an_error(instance: DagsterInstance, daemon: Any) -> None:
    daemon.stop()
    close_all()
    result = small.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    failed = next(event for event in result.all_events if event.is_step_failure)
    assert cause_message(failed, StoreUnavailable)


@pytest.mark.parametrize("settings", [{"session_ttl_seconds": 0.0}, {"session_ttl_seconds": -5.0}])
def test_bad_settings_are_named_where_they_are_defined(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="at least one second"):
        EntrepotIOManager(**settings)


@op
def change(values: np.ndarray) -> int:
    values[0] = 41
    return int(values[0]) + 1


@pytest.mark.parametrize("mode", ["on_write", "always"])
def test_values_may_be_changed_if_asked_for(instance: DagsterInstance, mode: str) -> None:
    @job(resource_defs={"io_manager": EntrepotIOManager(copy=mode)})
    def changing() -> None:
        change(numbers())

    assert changing.execute_in_process(instance=instance).output_for_node("change") == 42


# The first row of the frame that steps write into, by column, and what they write.
FIRST_ROW = {"number": "0", "share": "0.0", "day": "2026-01-01 00:00:00", "text": "a"}
WRITTEN = {"number": "7", "share": "0.5", "day": "2030-01-01 00:00:00", "text": "z"}


def stored_row(result: JobExecutionResult) -> list[str]:
    frame = result.output_for_node("table")
    return [str(frame[column].iloc[0]) for column in FIRST_ROW]


EXECUTORS = [pytest.param("multiprocess", marks=[pytest.mark.slow, pytest.mark.e2e]), "in_process"]
# The multiprocess executor starts an interpreter for each step, so there only one column is written.
WRITING_JOBS = {"multiprocess": ("writing", ["number"]), "in_process": ("writing_each", list(WRITTEN))}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_writing_into_an_input_fails_and_names_the_setting(instance: DagsterInstance, executor: str) -> None:
    name, columns = WRITING_JOBS[executor]
    with run_job(name, instance, executor) as result:
        failed = {event.step_key for event in result.all_events if event.is_step_failure}
        # pandas does not write into a column of strings, but replaces it, so nothing fails.
        assert failed == {f"write_{column}" for column in columns if column != "text"}
        if "text" in columns:
            assert result.output_for_node("write_text") == list((FIRST_ROW | {"text": "z"}).values())
        assert stored_row(result) == list(FIRST_ROW.values())
    messages = [entry.user_message for entry in instance.all_logs(result.run_id) if "Entrepot:" in entry.user_message]
    assert len(messages) == len(failed)
    for message in messages:
        assert 'as EntrepotIOManager(copy="on_write"), or as ENTREPOT_COPY' in message


@pytest.mark.parametrize("executor", EXECUTORS)
def test_with_the_setting_writing_changes_only_the_writers_copy(instance: DagsterInstance, executor: str) -> None:
    name, columns = WRITING_JOBS[executor]
    with run_job(f"{name}_on_write", instance, executor) as result:
        assert result.success
        for column in columns:
            expected = list((FIRST_ROW | {column: WRITTEN[column]}).values())
            assert result.output_for_node(f"write_{column}") == expected
        assert stored_row(result) == list(FIRST_ROW.values())


def test_other_failures_log_no_copy_setting(instance: DagsterInstance) -> None:
    @op
    def refuse(x: np.ndarray) -> None:
        raise ValueError(f"{x.size} values are not enough")

    @job(resource_defs={"io_manager": EntrepotIOManager()})
    def refusing() -> None:
        refuse(numbers())

    result = refusing.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    assert not [entry for entry in instance.all_logs(result.run_id) if "Entrepot:" in entry.user_message]


def test_never_written_differs_from_lost(instance: DagsterInstance) -> None:
    from dagster import build_input_context, build_output_context

    manager = EntrepotIOManager()
    upstream = build_output_context(name="result", step_key="never", run_id="0" * 8)
    with pytest.raises(ObjectNotFound, match="it was never written"):
        manager.load_input(build_input_context(upstream_output=upstream))
