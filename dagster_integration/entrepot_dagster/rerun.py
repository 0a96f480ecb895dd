"""Re-execution of a failed run: exactly the steps whose values are lost and needed, and those that never finished.

failed run --steps that failed or never ran--> their lost inputs --> the policy's plan --> a re-execution of the run
                                                                        |                  with these steps selected
                                                                        `-- steps of other runs (assets): those first

The decision is based on Dagster's event log and the store, and can be made in any process, so it also works if a step
was killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    JobDefinition,
    JobExecutionResult,
    RunsFilter,
)
from entrepot.errors import InvalidArgument
from entrepot_io.reference import Reference
from entrepot_policy import ObjectRef, PlanningError
from entrepot_policy.schema.constants import DEFAULT_MAX_ATTEMPTS

from entrepot_dagster.compat.events import report_engine_event
from entrepot_dagster.compat.reexecution import (
    PARENT_RUN_ID_TAG,
    ReconstructableJob,
    execute_created_run,
    past_runs,
    recorded_job,
    reexecution_plan,
    reexecution_tags,
    steps_to_execute,
    unfinished_steps,
    unmapped_step_key,
    writing_run_id,
)
from entrepot_dagster.compat.steps import upstream_handles
from entrepot_dagster.io_manager import EntrepotIOManager
from entrepot_dagster.policy.failures import MissingInputs, missing_inputs_of
from entrepot_dagster.policy.policy_runtime import PolicyBinding
from entrepot_dagster.values.reference_log import recorded_outputs

COUNTS_TAG = "entrepot/reruns"  # for each value, how often this chain of runs has had it recomputed
WAITING_RUN_TAG = "entrepot/rerun_for"  # the failed run that is waiting for this one
FAILED_STATUSES = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)


@dataclass(frozen=True)
class Recovery:
    """The next re-execution needed to complete a failed run.

    Attributes:
        run: the run whose steps are re-executed.
        steps: their keys.
        recomputed_steps: those of the steps that had succeeded, and are rerun for their outputs.
        waiting_run_id: the failed run that continues after this one; empty: it is this one.
        counts: how often each missed value has been recomputed, including this time.
        reason: explanation, as text.
    """

    run: DagsterRun
    steps: tuple[str, ...]
    recomputed_steps: tuple[str, ...] = ()
    waiting_run_id: str = ""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    reason: str = ""


def binding_of_job(job: JobDefinition, instance: DagsterInstance, run: DagsterRun) -> PolicyBinding | None:
    """Return the policy binding that a job's IO manager had in a run; None: it had no policy.

    Raises:
        PolicyError, InvalidArgument: the policy is invalid.
    """
    from dagster import build_resources

    config: Mapping[str, Any] = dict(run.run_config).get("resources", {})  # type: ignore[assignment]
    for key, definition in job.resource_defs.items():
        resource_class = getattr(definition, "configurable_resource_cls", None)
        if isinstance(resource_class, type) and issubclass(resource_class, EntrepotIOManager):
            resource_config = {key: config[key]} if key in config else {}
            with build_resources({key: definition}, instance=instance, resource_config=resource_config) as resources:
                manager: EntrepotIOManager = getattr(resources, key)
                binding = manager.policy_binding()
            if binding is not None:
                return binding
    return None


def find_recovery(
    instance: DagsterInstance, run: DagsterRun, job: JobDefinition, binding: PolicyBinding | None, *, requested: bool
) -> Recovery | None:
    """Determine what a failed run needs.

    Args:
        instance: the run's instance.
        run: the failed run.
        job: its job definition.
        binding: its policy's binding.
        requested: whether a user asked for it. If not, only runs are considered in which a step reported that it needs
            others to be rerun; everything else is left to the orchestrator's own retries.

    Returns:
        The next re-execution; None: there is nothing to do.

    Raises:
        InvalidArgument: the run has not failed.
        PlanningError: the policy has no way to recover, or the limit of its rule is reached.
        StoreUnavailable: the store cannot be reached.
    """
    if run.status not in FAILED_STATUSES:
        raise InvalidArgument(f"run {run.run_id} is {run.status.value}: only failed or canceled runs are re-executed")
    events = [
        entry.get_dagster_event() for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE)
    ]
    missing_inputs = missing_inputs_of(events)
    if not missing_inputs and not requested:
        return None
    counts = _recompute_counts(run, missing_inputs, binding)
    steps_to_retry = unfinished_steps(instance, run)
    reruns = {task: makes for item in missing_inputs for task, makes in item.reruns}
    if binding is not None:
        lost_refs = _lost_inputs(instance, run, job, steps_to_retry, binding, {task.name for task in reruns})
        if not requested:  # values that the policy would not have recomputed are left to the step that reads them
            lost_refs = [ref for ref in lost_refs if not binding.runtime.failover.recompute_refusal(ref)]
        plan = binding.runtime.plan(lost_refs)
        reruns |= {item.task: item.outputs for item in plan.reruns if item.task not in reruns}
    run_ids = set(_run_and_ancestor_ids(instance, run))
    for task, makes in reruns.items():
        if task.run not in run_ids and not _all_in_store(binding, makes):
            other_run = instance.get_run_by_id(task.run)
            if other_run is None:
                raise PlanningError(f"step {task} must be rerun, but its run {task.run} is not in this instance")
            other_steps = tuple(item.name for item in reruns if item.run == task.run)
            earlier_reruns = RunsFilter(tags={WAITING_RUN_TAG: run.run_id, PARENT_RUN_ID_TAG: other_run.run_id})
            if instance.get_runs_count(earlier_reruns) >= DEFAULT_MAX_ATTEMPTS:
                raise PlanningError(
                    f"{', '.join(other_steps)} of run {task.run} were rerun several times, but {task}'s output is "
                    "still lost"
                )
            reason = f"run {run.run_id} needs lost outputs of {', '.join(other_steps)}"
            return Recovery(other_run, other_steps, other_steps, run.run_id, counts, reason)
    steps = tuple(task.name for task in reruns if task.run in run_ids)
    keys = [key for item in missing_inputs for key in item.keys]
    reason = f"lost: {', '.join(keys)} (policy {missing_inputs[0].rule})" if missing_inputs else "requested"
    return Recovery(run, tuple(dict.fromkeys([*steps, *steps_to_retry])), steps, "", counts, reason)


def create_run(
    instance: DagsterInstance, recovery: Recovery, job: JobDefinition, extra_tags: Iterable[tuple[str, str]] = ()
) -> DagsterRun:
    """Create the run of a recovery without starting it.

    Args:
        instance: the instance to create it in.
        recovery: result of :func:`find_recovery`.
        job: definition of its job.
        extra_tags: additional tags.
    """
    parent = recovery.run
    subset = _job_subset(job, parent)
    tags = reexecution_tags(parent) | dict(extra_tags)
    tags.pop(WAITING_RUN_TAG, None)
    if recovery.counts:
        tags[COUNTS_TAG] = json.dumps(recovery.counts)
    if recovery.waiting_run_id:
        tags[WAITING_RUN_TAG] = recovery.waiting_run_id
    new_run = instance.create_run_for_job(
        job_def=job,
        execution_plan=reexecution_plan(instance, parent, subset, recovery.steps, recovery.recomputed_steps),
        run_config=parent.run_config,
        tags=tags,
        root_run_id=parent.root_run_id or parent.run_id,
        parent_run_id=parent.run_id,
        op_selection=list(parent.op_selection) if parent.op_selection else None,
        resolved_op_selection=parent.resolved_op_selection,
        asset_selection=parent.asset_selection,
        remote_job_origin=parent.remote_job_origin,
        job_code_origin=parent.job_code_origin,
    )
    text = f"Entrepot re-executes {', '.join(recovery.steps)} as run {new_run.run_id}: {recovery.reason}"
    report_engine_event(instance, text, parent)
    report_engine_event(instance, text, new_run)
    return new_run


def rerun(
    instance: DagsterInstance, run_id: str, job: ReconstructableJob | None = None, *, asked: bool = True
) -> list[JobExecutionResult]:
    """Re-execute a failed run, in this process and the step processes of its executor.

    Re-executions follow each other until one succeeds, or fails for another reason than a lost value.

    Args:
        instance: the run's instance.
        run_id: the failed run.
        job: its job; None: the one recorded in the run, which ``dagster job execute`` does.
        asked: as ``requested`` of :func:`find_recovery`.

    Returns:
        The results in order; the last one is the outcome. Empty if there was nothing to do.

    Raises:
        InvalidArgument: there is no such run, it has not failed, or its job is unknown.
        PlanningError: the policy has no way to recover, or the limit of its rule is reached.
        StoreUnavailable: the store cannot be reached.
    """
    results: list[JobExecutionResult] = []
    run = find_run(instance, run_id)
    reconstructable = job or reconstruct_job(run)
    while True:
        definition = reconstructable.get_definition()
        recovery = find_recovery(instance, run, definition, binding_of_job(definition, instance, run), requested=asked)
        if recovery is None:
            return results
        recovery_job = reconstructable if recovery.run.job_name == run.job_name else reconstruct_job(recovery.run)
        results.append(
            execute_created_run(recovery_job, create_run(instance, recovery, recovery_job.get_definition()), instance)
        )
        if not results[-1].success:
            results += rerun(instance, results[-1].run_id, recovery_job, asked=False)
        # After a run that was re-executed for the failed run's sake, continue with the failed run itself.
        if not results[-1].success or not recovery.waiting_run_id:
            return results


def find_run(instance: DagsterInstance, run_id: str) -> DagsterRun:
    """Return a run by its ID.

    Raises:
        InvalidArgument: there is no such run.
    """
    run = instance.get_run_by_id(run_id)
    if run is None:
        raise InvalidArgument(f"run {run_id!r} does not exist in the Dagster instance {instance.root_directory}")
    return run


def reconstruct_job(run: DagsterRun) -> ReconstructableJob:
    """Return the code of a run's job, from the origin recorded in the run.

    Raises:
        InvalidArgument: no origin is recorded.
    """
    job = recorded_job(run)
    if job is None:
        raise InvalidArgument(f"run {run.run_id} does not record the origin of its job {run.job_name!r}: pass the job")
    return job


def _job_subset(job: JobDefinition, run: DagsterRun) -> JobDefinition:
    if not run.asset_selection and not run.op_selection:
        return job
    return job.get_subset(
        op_selection=list(run.op_selection) if run.op_selection else None,
        asset_selection=run.asset_selection,
    )


def _recompute_counts(
    run: DagsterRun, missing_inputs: Sequence[MissingInputs], binding: PolicyBinding | None
) -> dict[str, int]:
    """Return how often each missed value has been recomputed, including this time; several readers count as one."""
    previous_counts: dict[str, int] = json.loads(run.tags.get(COUNTS_TAG, "{}"))
    counts = dict(previous_counts)
    for item in missing_inputs:
        rules = () if binding is None else binding.runtime.policy.failover
        max_attempts = next(
            (rule.max_attempts for rule in rules if rule.location.short == item.rule), DEFAULT_MAX_ATTEMPTS
        )
        for key in item.keys:
            counts[key] = previous_counts.get(key, 0) + 1
            if counts[key] > max_attempts:
                raise PlanningError(
                    f"{key} was recomputed {previous_counts[key]} times and lost again (policy {item.rule})"
                )
    return counts


def _run_and_ancestor_ids(instance: DagsterInstance, run: DagsterRun) -> Iterable[str]:
    """Yield a run and its ancestors by re-execution: their steps can be selected together."""
    current: DagsterRun | None = run
    while current is not None:
        yield current.run_id
        current = instance.get_run_by_id(current.parent_run_id) if current.parent_run_id else None


def _all_in_store(binding: PolicyBinding | None, makes: Sequence[ObjectRef]) -> bool:
    return binding is not None and all(binding.runtime.restorer.survival(ref) == "store" for ref in makes)


def _lost_inputs(
    instance: DagsterInstance,
    run: DagsterRun,
    job: JobDefinition,
    steps: Sequence[str],
    binding: PolicyBinding,
    recomputed_steps: set[str],
) -> list[ObjectRef]:
    """Return what these steps read of other steps' outputs that is neither in the store nor in a checkpoint.

    A step reports only the first value that it misses; this checks all inputs, so that one plan covers them all.
    """
    outputs_by_run: dict[str, dict[tuple[str, ...], Reference]] = {}
    plan = reexecution_plan(instance, run, _job_subset(job, run), steps)
    past = past_runs(instance, run)
    skipped = recomputed_steps | set(steps)
    lost_refs = []
    for step in steps_to_execute(plan):
        for handle in (handle for step_input in step.step_inputs for handle in upstream_handles(step_input)):
            run_id = writing_run_id(past, handle)
            if run_id is None or not {handle.step_key, unmapped_step_key(handle.step_key)}.isdisjoint(skipped):
                continue
            if run_id not in outputs_by_run:
                outputs_by_run[run_id] = recorded_outputs(instance, run_id)
            output_path = [handle.step_key, handle.output_name, *([handle.mapping_key] if handle.mapping_key else [])]
            reference = outputs_by_run[run_id].get(tuple(output_path))  # None: written by another IO manager
            if reference is not None and not binding.runtime.survives(ObjectRef.of(reference)):
                lost_refs.append(ObjectRef.of(reference))
    return lost_refs
