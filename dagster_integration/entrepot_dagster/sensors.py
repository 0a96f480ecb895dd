"""Sensors for a user's definitions: re-execute what a failed run lost, and finalize checkpoints when a run ends.

Definitions(jobs=[...], resources={"io_manager": EntrepotIOManager()}, sensors=policy_sensors())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultSensorStatus,
    JobDefinition,
    QueuedRunCoordinator,
    RunsFilter,
    RunStatusSensorContext,
    RunStatusSensorDefinition,
    SensorDefinition,
    SkipReason,
    SubmitRunContext,
)
from entrepot.errors import InvalidArgument
from entrepot_io.sessions import run_session
from entrepot_policy import Subject, Task, find_policy

from entrepot_dagster.compat.reexecution import PARENT_RUN_ID_TAG
from entrepot_dagster.hooks import count_step_failure
from entrepot_dagster.rerun import COUNTS_TAG, WAITING_RUN_TAG, binding_of_job, create_run, find_recovery, find_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from entrepot_policy.checkpoints.checkpointer import FinalizeReport

    from entrepot_dagster.policy.policy_runtime import PolicyBinding

CRASH_ERROR_NAME = "ChildProcessCrashException"


def policy_sensors(
    *,
    policy: str | None = None,
    jobs: Sequence[JobDefinition] | None = None,
    minimum_interval_seconds: int | None = None,
    default_status: DefaultSensorStatus = DefaultSensorStatus.RUNNING,
) -> list[SensorDefinition]:
    """Return the sensors of the policy; an empty list without one.

    ``entrepot_failover`` handles failed runs: if a step misses values that other steps must recompute, it queues a
    re-execution of exactly these steps, the reader itself, and the steps that never ran. This sensor,
    ``entrepot_settled`` and ``entrepot_canceled`` write a run's pending checkpoints when the run is over.

    Args:
        policy: path of the policy file; None: the one named by ENTREPOT_POLICY.
        jobs: jobs to monitor; None: all jobs of the code location.
        minimum_interval_seconds: interval between evaluations; None: Dagster's default, 30.
        default_status: whether they run from the start.

    Raises:
        PolicyError, InvalidArgument: the policy is invalid; the message has file and line.
    """
    if find_policy(policy) is None:
        return []
    sensor_specs = (
        (
            "entrepot_failover",
            DagsterRunStatus.FAILURE,
            handle_failed_run,
            "Re-executes the steps that a failed run needs.",
        ),
        ("entrepot_settled", DagsterRunStatus.SUCCESS, handle_ended_run, "Writes the pending checkpoints of a run."),
        ("entrepot_canceled", DagsterRunStatus.CANCELED, handle_ended_run, "Writes the pending checkpoints of a run."),
    )
    return [
        RunStatusSensorDefinition(
            name=name,
            run_status=status,
            run_status_sensor_fn=sensor_function,
            minimum_interval_seconds=minimum_interval_seconds,
            description=description,
            monitored_jobs=list(jobs) if jobs is not None else None,
            default_status=default_status,
        )
        for name, status, sensor_function, description in sensor_specs
    ]


def handle_failed_run(context: RunStatusSensorContext) -> SkipReason | None:
    """Sensor function of ``entrepot_failover``: handle a failed run.

    Raises:
        PlanningError: the policy has no way to recover, or the limit of its rule is reached.
        StoreUnavailable: the store cannot be reached.
        InvalidArgument: the instance has no run queue.
    """
    run, instance = context.dagster_run, context.instance
    job = _job_of(context, run)
    binding = binding_of_job(job, instance, run)
    if binding is None:
        return None
    count_killed_steps(binding, instance, run)
    try:
        _submit_recovery(context, run, job, binding, requested=False)
    finally:
        finalize_run(binding, run)
    return None


def handle_ended_run(context: RunStatusSensorContext) -> SkipReason | None:
    """Sensor function of the other sensors: finalize a finished run, and continue the failed run waiting for it."""
    run, instance = context.dagster_run, context.instance
    binding = binding_of_job(_job_of(context, run), instance, run)
    if binding is None:
        return None
    finalize_run(binding, run)
    waiting_run_id = run.tags.get(WAITING_RUN_TAG)
    if waiting_run_id and run.status is DagsterRunStatus.SUCCESS:
        failed_run = find_run(instance, waiting_run_id)
        job = _job_of(context, failed_run)
        _submit_recovery(context, failed_run, job, binding_of_job(job, instance, failed_run), requested=True)
    return None


def finalize_run(binding: PolicyBinding, run: DagsterRun) -> FinalizeReport:
    """Finalize the pending checkpoints of a run.

    Args:
        binding: its policy's binding.
        run: the run, which must be over.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    runtime = binding.runtime
    return runtime.run_ended(runtime.session(run_session("dagster", run.run_id)))


def _submit_recovery(
    context: RunStatusSensorContext,
    run: DagsterRun,
    job: JobDefinition,
    binding: PolicyBinding | None,
    *,
    requested: bool,
) -> None:
    instance = context.instance
    if (
        not requested
        and instance.get_runs_count(RunsFilter(tags={PARENT_RUN_ID_TAG: run.run_id}))
        and any(
            COUNTS_TAG in child_run.tags
            for child_run in instance.get_runs(RunsFilter(tags={PARENT_RUN_ID_TAG: run.run_id}))
        )
    ):
        return  # an earlier evaluation that was interrupted has already done this
    recovery = find_recovery(instance, run, job, binding, requested=requested)
    if recovery is None:
        return
    if recovery.run.remote_job_origin is None:
        raise InvalidArgument(
            f"run {recovery.run.run_id} was not launched from a code location, so the run queue cannot relaunch it: "
            f"use 'python -m entrepot_dagster rerun {run.run_id}'"
        )
    coordinator = instance.run_coordinator
    if not isinstance(coordinator, QueuedRunCoordinator):
        raise InvalidArgument(
            f"a sensor can re-execute run {run.run_id} only through a run queue (run_coordinator "
            f"QueuedRunCoordinator), but this instance has {type(coordinator).__name__}: use "
            f"'python -m entrepot_dagster rerun {run.run_id}'"
        )
    recovery_job = job if recovery.run.job_name == run.job_name else _job_of(context, recovery.run)
    new_run = create_run(instance, recovery, recovery_job)
    coordinator.submit_run(SubmitRunContext(new_run, workspace=None))  # type: ignore[arg-type]
    context.log.info(f"run {new_run.run_id} re-executes {', '.join(recovery.steps)}: {recovery.reason}")


def _job_of(context: RunStatusSensorContext, run: DagsterRun) -> JobDefinition:
    if context.repository_def is None:
        raise InvalidArgument("the sensor has no repository: evaluate it in a code location")
    return context.repository_def.get_job(run.job_name)


def count_killed_steps(binding: PolicyBinding, instance: DagsterInstance, run: DagsterRun) -> None:
    """Count the steps of a failed run whose process was killed, for which no hook was called.

    Args:
        binding: its policy's binding.
        instance: the run's instance.
        run: the failed run.
    """
    for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE):
        error = entry.get_dagster_event().step_failure_data.error
        if entry.step_key is not None and error is not None and error.cls_name == CRASH_ERROR_NAME:
            subject = Subject(Task("dagster", run.job_name, run.run_id, entry.step_key))
            count_step_failure(binding, instance, subject, error.message.strip())
