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
    RunsFilter,
    RunStatusSensorContext,
    SensorDefinition,
    SkipReason,
)
from dagster._core.definitions.run_status_sensor_definition import RunStatusSensorDefinition
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext
from dagster._core.storage.tags import PARENT_RUN_ID_TAG
from entrepot.errors import InvalidArgument
from entrepot_io.policy import Subject, Task, find_policy
from entrepot_io.sessions import run_session

from entrepot_dagster.hooks import step_failed
from entrepot_dagster.rerun import COUNTS_TAG, FOR_TAG, create, find_recovery, find_run, policy_of_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from entrepot_io.policy.checkpointing import SettleReport

    from entrepot_dagster.at_work import Binding

KILLED = "ChildProcessCrashException"


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
    kinds = (
        ("entrepot_failover", DagsterRunStatus.FAILURE, run_failed, "Re-executes what a failed run lost."),
        ("entrepot_settled", DagsterRunStatus.SUCCESS, run_ended, "Writes the checkpoints that a run had put off."),
        ("entrepot_canceled", DagsterRunStatus.CANCELED, run_ended, "Writes the checkpoints that a run had put off."),
    )
    return [
        RunStatusSensorDefinition(
            name=name,
            run_status=status,
            run_status_sensor_fn=react,
            minimum_interval_seconds=minimum_interval_seconds,
            description=description,
            monitored_jobs=list(jobs) if jobs is not None else None,
            default_status=default_status,
        )
        for name, status, react, description in kinds
    ]


def run_failed(context: RunStatusSensorContext) -> SkipReason | None:
    """Sensor function of ``entrepot_failover``: handle a failed run.

    Raises:
        NoPlan: the policy has no way to recover, or the limit of its rule is reached.
        StoreUnavailable: the store cannot be reached.
        InvalidArgument: the instance has no run queue.
    """
    run, instance = context.dagster_run, context.instance
    job = _job_of(context, run)
    at_work = policy_of_job(job, instance, run)
    if at_work is None:
        return None
    count_killed(at_work, instance, run)
    try:
        _recover(context, run, job, at_work, asked=False)
    finally:
        settle(at_work, run)
    return None


def run_ended(context: RunStatusSensorContext) -> SkipReason | None:
    """Sensor function of the other sensors: finalize a finished run, and continue the failed run waiting for it."""
    run, instance = context.dagster_run, context.instance
    at_work = policy_of_job(_job_of(context, run), instance, run)
    if at_work is None:
        return None
    settle(at_work, run)
    waiting = run.tags.get(FOR_TAG)
    if waiting and run.status is DagsterRunStatus.SUCCESS:
        failed = find_run(instance, waiting)
        job = _job_of(context, failed)
        _recover(context, failed, job, policy_of_job(job, instance, failed), asked=True)
    return None


def settle(at_work: Binding, run: DagsterRun) -> SettleReport:
    """Finalize the pending checkpoints of a run.

    Args:
        at_work: its policy's binding.
        run: the run, which must be over.

    Raises:
        StoreUnavailable: the store cannot be reached.
    """
    runtime = at_work.runtime
    return runtime.run_ended(runtime.session(run_session("dagster", run.run_id)))


def _recover(
    context: RunStatusSensorContext, run: DagsterRun, job: JobDefinition, at_work: Binding | None, *, asked: bool
) -> None:
    instance = context.instance
    if (
        not asked
        and instance.get_runs_count(RunsFilter(tags={PARENT_RUN_ID_TAG: run.run_id}))
        and any(COUNTS_TAG in one.tags for one in instance.get_runs(RunsFilter(tags={PARENT_RUN_ID_TAG: run.run_id})))
    ):
        return  # an earlier evaluation that was interrupted has already done this
    recovery = find_recovery(instance, run, job, at_work, asked=asked)
    if recovery is None:
        return
    if recovery.of.remote_job_origin is None:
        raise InvalidArgument(
            f"run {recovery.of.run_id} was not launched from a code location, so the run queue cannot launch it again: "
            f"run 'python -m entrepot_dagster rerun {run.run_id}'"
        )
    coordinator = instance.run_coordinator
    if not isinstance(coordinator, QueuedRunCoordinator):
        raise InvalidArgument(
            f"run {run.run_id} is to be re-executed, which a sensor can have done only by a run queue (run_coordinator "
            f"QueuedRunCoordinator), and this instance has {type(coordinator).__name__}: run "
            f"'python -m entrepot_dagster rerun {run.run_id}'"
        )
    own = job if recovery.of.job_name == run.job_name else _job_of(context, recovery.of)
    made = create(instance, recovery, own)
    coordinator.submit_run(SubmitRunContext(made, workspace=None))  # type: ignore[arg-type]
    context.log.info(f"run {made.run_id} re-executes {', '.join(recovery.steps)}: {recovery.reason}")


def _job_of(context: RunStatusSensorContext, run: DagsterRun) -> JobDefinition:
    if context.repository_def is None:
        raise InvalidArgument("the sensor does not know its repository: evaluate it in a code location")
    return context.repository_def.get_job(run.job_name)


def count_killed(at_work: Binding, instance: DagsterInstance, run: DagsterRun) -> None:
    """Count the steps of a failed run whose process was killed, for which no hook was called.

    Args:
        at_work: its policy's binding.
        instance: the run's instance.
        run: the failed run.
    """
    for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE):
        error = entry.get_dagster_event().step_failure_data.error
        if entry.step_key is not None and error is not None and error.cls_name == KILLED:
            subject = Subject(Task("dagster", run.job_name, run.run_id, entry.step_key))
            step_failed(at_work, instance, subject, error.message.strip())
