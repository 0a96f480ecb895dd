"""Runs that failed because of the store: the hook, and the run-failure sensor."""

# Annotations are not postponed here: Dagster looks at those of ops.
import os
import signal
from typing import Any

import numpy as np
import pytest
from dagster import (
    DagsterEventType,
    DagsterInstance,
    Failure,
    JobDefinition,
    OpExecutionContext,
    RunFailureSensorContext,
    SensorDefinition,
    SkipReason,
    build_run_status_sensor_context,
    execute_job,
    job,
    op,
    reconstructable,
)
from entrepot_dagster import EntrepotIOManager, StepFailure, store_failure_hook, store_failure_sensor
from entrepot_dagster.values.keys import default_scope, key_of_output
from entrepot_io.connections import session_store

# Each step is a new interpreter: on a busy machine, a job of three steps takes two minutes.
pytestmark = [pytest.mark.usefixtures("own_store"), pytest.mark.timeout(400)]


@op
def numbers() -> Any:
    return np.arange(10)


@op
def lose(context: OpExecutionContext, numbers: Any) -> Any:
    output_key = key_of_output([context.run_id, "numbers", "result"])
    store = session_store(None, default_scope(context.instance), output_key.session, None)
    assert store.delete(store.derive(output_key.key))
    return 1


@op
def read(numbers: Any, after: Any) -> None:
    pass


@op
def boom() -> None:
    raise ValueError("nothing to do with the store")


@op
def with_a_cause() -> None:
    try:
        int("no number")
    except ValueError as error:
        raise Failure("no such thing") from error


@op
def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@job(resource_defs={"io_manager": EntrepotIOManager()}, hooks={store_failure_hook})
def losing() -> None:
    made = numbers()
    read(made, lose(made))


@job(hooks={store_failure_hook})
def others() -> None:
    boom()
    with_a_cause()


@job
def killing() -> None:
    killed()


def run_failed(job_definition: JobDefinition, instance: DagsterInstance) -> str:
    result = job_definition.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    return result.run_id


def evaluate(sensor: SensorDefinition, run_id: str, instance: DagsterInstance) -> Any:
    """Evaluate the sensor for a failed run, as the daemon does."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    (entry,) = instance.all_logs(run_id, of_type=DagsterEventType.RUN_FAILURE)
    event = entry.get_dagster_event()
    context = build_run_status_sensor_context(
        sensor_name=sensor.name, dagster_event=event, dagster_instance=instance, dagster_run=run
    )
    return sensor(context.for_run_failure())


def log_of(instance: DagsterInstance, run_id: str) -> list[str]:
    return [entry.user_message for entry in instance.all_logs(run_id)]


def engine_events(instance: DagsterInstance, run_id: str) -> list[str]:
    return [entry.get_dagster_event().message or "" for entry in instance.all_logs(run_id) if entry.dagster_event]


def test_the_hook_says_what_to_do(instance: DagsterInstance) -> None:
    run_id = run_failed(losing, instance)
    (line,) = [line for line in log_of(instance, run_id) if line.startswith("entrepot: read: ObjectLost")]
    assert "is no longer in the store" in line
    assert line.endswith("What to do: re-execute with the step that wrote the value; a policy does it for you")


def test_the_hook_says_nothing_of_other_failures(instance: DagsterInstance) -> None:
    assert not [line for line in log_of(instance, run_failed(others, instance)) if line.startswith("entrepot")]


def test_the_sensor_explains_a_run_and_tells_someone(instance: DagsterInstance) -> None:
    reports: list[tuple[str, list[StepFailure]]] = []

    def on_failure(context: RunFailureSensorContext, failures: list[StepFailure]) -> None:
        reports.append((context.dagster_run.job_name, failures))

    run_id = run_failed(losing, instance)
    sensor = store_failure_sensor(on_failure, name="tell")
    assert sensor.name == "tell"
    assert evaluate(sensor, run_id, instance) is None
    ((name, (failure,)),) = reports
    assert (name, failure.step_key, failure.error) == ("losing", "read", "ObjectLost")
    assert f"entrepot: {failure}" in engine_events(instance, run_id)


def test_the_sensor_skips_other_failures(instance: DagsterInstance) -> None:
    reason = evaluate(store_failure_sensor(), run_failed(others, instance), instance)
    assert isinstance(reason, SkipReason)
    assert "failed for another reason" in str(reason.skip_message)


@pytest.mark.slow
@pytest.mark.e2e
def test_the_sensor_explains_a_killed_step(instance: DagsterInstance) -> None:
    with execute_job(reconstructable(killing), instance=instance) as result:
        assert not result.success
        run_id = result.run_id
    assert evaluate(store_failure_sensor(), run_id, instance) is None
    (line,) = [line for line in engine_events(instance, run_id) if line.startswith("entrepot: killed: ")]
    assert "the process of the step ended before the step" in line
    assert "what it had stored is still in the store" in line
