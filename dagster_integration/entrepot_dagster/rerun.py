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
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.events import EngineEventData
from dagster._core.execution.api import create_execution_plan, execute_run
from dagster._core.execution.plan.handle import ResolvedFromDynamicStepHandle, StepHandle
from dagster._core.execution.plan.outputs import StepOutputHandle
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.plan.state import KnownExecutionState, PastExecutionState
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, ROOT_RUN_ID_TAG, TAGS_TO_MAYBE_OMIT_ON_RETRY
from dagster._utils.hosted_user_process import recon_job_from_origin
from entrepot.errors import InvalidArgument
from entrepot_io.policy import NoPlan, ObjectRef
from entrepot_io.policy.definition import DEFAULT_MAX_ATTEMPTS
from entrepot_io.reference import Reference

from entrepot_dagster.at_work import Binding, handles_of
from entrepot_dagster.io_manager import EntrepotIOManager
from entrepot_dagster.reasons import Wanted, wanted_of
from entrepot_dagster.records import recorded_outputs

COUNTS_TAG = "entrepot/reruns"  # for each value, how often this chain of runs has had it recomputed
FOR_TAG = "entrepot/rerun_for"  # the failed run that is waiting for this one
ENDED = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)


@dataclass(frozen=True)
class Recovery:
    """The next re-execution needed to complete a failed run.

    Attributes:
        of: the run whose steps are re-executed.
        steps: their keys.
        made_again: those of the steps that had succeeded, and are rerun for their outputs.
        waits: the failed run that continues after this one; empty: it is this one.
        counts: how often each missed value has been recomputed, including this time.
        reason: explanation, as text.
    """

    of: DagsterRun
    steps: tuple[str, ...]
    made_again: tuple[str, ...] = ()
    waits: str = ""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    reason: str = ""


def policy_of_job(job: JobDefinition, instance: DagsterInstance, run: DagsterRun) -> Binding | None:
    """Return the policy binding that a job's IO manager had in a run; None: it had no policy.

    Raises:
        PolicyError, InvalidArgument: the policy is invalid.
    """
    from dagster import build_resources

    config: Mapping[str, Any] = dict(run.run_config).get("resources", {})  # type: ignore[assignment]
    for key, definition in job.resource_defs.items():
        made_by = getattr(definition, "configurable_resource_cls", None)
        if isinstance(made_by, type) and issubclass(made_by, EntrepotIOManager):
            own = {key: config[key]} if key in config else {}
            with build_resources({key: definition}, instance=instance, resource_config=own) as resources:
                manager: EntrepotIOManager = getattr(resources, key)
                found = manager.at_work()
            if found is not None:
                return found
    return None


def find_recovery(
    instance: DagsterInstance, run: DagsterRun, job: JobDefinition, at_work: Binding | None, *, asked: bool
) -> Recovery | None:
    """Determine what a failed run needs.

    Args:
        instance: the run's instance.
        run: the failed run.
        job: its job definition.
        at_work: its policy's binding.
        asked: whether a user asked for it. If not, only runs are considered in which a step reported that it needs
            others to be rerun; everything else is left to the orchestrator's own retries.

    Returns:
        The next re-execution; None: there is nothing to do.

    Raises:
        InvalidArgument: the run has not failed.
        NoPlan: the policy has no way to recover, or the limit of its rule is reached.
        StoreUnavailable: the store cannot be reached.
    """
    if run.status not in ENDED:
        raise InvalidArgument(f"run {run.run_id} is {run.status.value}: only a run that failed is re-executed")
    events = [
        entry.get_dagster_event() for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE)
    ]
    wanted = wanted_of(events)
    if not wanted and not asked:
        return None
    counts = _counted(run, wanted, at_work)
    retried, _ = KnownExecutionState.build_resume_retry_reexecution(instance, run)
    reruns = {task: makes for one in wanted for task, makes in one.reruns}
    if at_work is not None:
        missing = _missing_inputs(instance, run, job, retried, at_work, {task.name for task in reruns})
        if not asked:  # values that the policy would not have recomputed are left to the step that reads them
            missing = [ref for ref in missing if not at_work.runtime.failover.forbidden(ref)]
        plan = at_work.runtime.plan(missing)
        reruns |= {one.task: one.makes for one in plan.reruns if one.task not in reruns}
    chain = set(_chain(instance, run))
    for task, makes in reruns.items():
        if task.run not in chain and not _there(at_work, makes):
            other = instance.get_run_by_id(task.run)
            if other is None:
                raise NoPlan(f"the step {task} has to run again, but its run {task.run} is not in this instance")
            others = tuple(one.name for one in reruns if one.run == task.run)
            before = RunsFilter(tags={FOR_TAG: run.run_id, PARENT_RUN_ID_TAG: other.run_id})
            if instance.get_runs_count(before) >= DEFAULT_MAX_ATTEMPTS:
                raise NoPlan(f"{', '.join(others)} of run {task.run} ran again several times, and {task} is still lost")
            reason = f"run {run.run_id} misses what {', '.join(others)} made"
            return Recovery(other, others, others, run.run_id, counts, reason)
    steps = tuple(task.name for task in reruns if task.run in chain)
    keys = [key for one in wanted for key in one.keys]
    reason = f"lost: {', '.join(keys)} (policy {wanted[0].rule})" if wanted else "asked for"
    return Recovery(run, tuple(dict.fromkeys([*steps, *retried])), steps, "", counts, reason)


def create(
    instance: DagsterInstance, recovery: Recovery, job: JobDefinition, extra: Iterable[tuple[str, str]] = ()
) -> DagsterRun:
    """Create the run of a recovery without starting it.

    Args:
        instance: the instance to create it in.
        recovery: result of :func:`find_recovery`.
        job: definition of its job.
        extra: additional tags.
    """
    parent = recovery.of
    subset = _subset(job, parent)
    tags = {name: value for name, value in parent.tags.items() if name not in TAGS_TO_MAYBE_OMIT_ON_RETRY}
    root = parent.root_run_id or parent.run_id
    tags |= {PARENT_RUN_ID_TAG: parent.run_id, ROOT_RUN_ID_TAG: root, **dict(extra)}
    tags.pop(FOR_TAG, None)
    if recovery.counts:
        tags[COUNTS_TAG] = json.dumps(recovery.counts)
    if recovery.waits:
        tags[FOR_TAG] = recovery.waits
    made = instance.create_run_for_job(
        job_def=job,
        execution_plan=_plan(instance, parent, subset, recovery.steps, recovery.made_again),
        run_config=parent.run_config,
        tags=tags,
        root_run_id=root,
        parent_run_id=parent.run_id,
        op_selection=list(parent.op_selection) if parent.op_selection else None,
        resolved_op_selection=parent.resolved_op_selection,
        asset_selection=parent.asset_selection,
        remote_job_origin=parent.remote_job_origin,
        job_code_origin=parent.job_code_origin,
    )
    text = f"Entrepot re-executes {', '.join(recovery.steps)} as run {made.run_id}: {recovery.reason}"
    instance.report_engine_event(text, parent, EngineEventData(metadata={}))
    instance.report_engine_event(text, made, EngineEventData(metadata={}))
    return made


def rerun(
    instance: DagsterInstance, run_id: str, job: ReconstructableJob | None = None, *, asked: bool = True
) -> list[JobExecutionResult]:
    """Re-execute a failed run, in this process and the step processes of its executor.

    Re-executions follow each other until one succeeds, or fails for another reason than a lost value.

    Args:
        instance: the run's instance.
        run_id: the failed run.
        job: its job; None: the one recorded in the run, which ``dagster job execute`` does.
        asked: as for :func:`find_recovery`.

    Returns:
        The results in order; the last one is the outcome. Empty if there was nothing to do.

    Raises:
        InvalidArgument: there is no such run, it has not failed, or its job is unknown.
        NoPlan: the policy has no way to recover, or the limit of its rule is reached.
        StoreUnavailable: the store cannot be reached.
    """
    results: list[JobExecutionResult] = []
    run = find_run(instance, run_id)
    code = job or code_of(run)
    while True:
        definition = code.get_definition()
        recovery = find_recovery(instance, run, definition, policy_of_job(definition, instance, run), asked=asked)
        if recovery is None:
            return results
        own = code if recovery.of.job_name == run.job_name else code_of(recovery.of)
        results.append(execute_run(own, create(instance, recovery, own.get_definition()), instance))
        if not results[-1].success:
            results += rerun(instance, results[-1].run_id, own, asked=False)
        # After a run that was re-executed for the failed run's sake, continue with the failed run itself.
        if not results[-1].success or not recovery.waits:
            return results


def find_run(instance: DagsterInstance, run_id: str) -> DagsterRun:
    """Return a run by its ID.

    Raises:
        InvalidArgument: there is no such run.
    """
    found = instance.get_run_by_id(run_id)
    if found is None:
        raise InvalidArgument(f"there is no run {run_id!r} in the Dagster instance {instance.root_directory}")
    return found


def code_of(run: DagsterRun) -> ReconstructableJob:
    """Return the code of a run's job, from the origin recorded in the run.

    Raises:
        InvalidArgument: no origin is recorded.
    """
    if run.job_code_origin is None:
        raise InvalidArgument(f"run {run.run_id} does not say where the code of its job {run.job_name!r} is: name it")
    return recon_job_from_origin(run.job_code_origin)


def _subset(job: JobDefinition, run: DagsterRun) -> JobDefinition:
    if not run.asset_selection and not run.op_selection:
        return job
    return job.get_subset(
        op_selection=list(run.op_selection) if run.op_selection else None,
        asset_selection=run.asset_selection,
    )


def _plan(
    instance: DagsterInstance,
    run: DagsterRun,
    job: JobDefinition,
    steps: Sequence[str],
    made_again: Sequence[str] = (),
) -> ExecutionPlan:
    state = KnownExecutionState.build_for_reexecution(instance, run)
    # A step with dynamic outputs that is rerun for some of them yields the same ones again, so the mapped steps after
    # it that are needed can be selected.
    unknown = [step for step in steps if step not in made_again]
    return create_execution_plan(
        job,
        run.run_config,
        step_keys_to_execute=list(steps),
        known_state=state.update_for_step_selection(unknown),
        tags=run.tags,
    )


def _counted(run: DagsterRun, wanted: Sequence[Wanted], at_work: Binding | None) -> dict[str, int]:
    """Return how often each missed value has been recomputed, including this time; several readers count as one."""
    before: dict[str, int] = json.loads(run.tags.get(COUNTS_TAG, "{}"))
    counts = dict(before)
    for one in wanted:
        rules = () if at_work is None else at_work.runtime.policy.failover
        most = next((rule.max_attempts for rule in rules if rule.mark.short == one.rule), DEFAULT_MAX_ATTEMPTS)
        for key in one.keys:
            counts[key] = before.get(key, 0) + 1
            if counts[key] > most:
                raise NoPlan(f"{key} was made again {before[key]} times, and lost again (policy {one.rule})")
    return counts


def _chain(instance: DagsterInstance, run: DagsterRun) -> Iterable[str]:
    """Yield a run and its ancestors by re-execution: their steps can be selected together."""
    at: DagsterRun | None = run
    while at is not None:
        yield at.run_id
        at = instance.get_run_by_id(at.parent_run_id) if at.parent_run_id else None


def _there(at_work: Binding | None, makes: Sequence[ObjectRef]) -> bool:
    return at_work is not None and all(at_work.runtime.restorer.survival(ref) == "store" for ref in makes)


def _missing_inputs(
    instance: DagsterInstance,
    run: DagsterRun,
    job: JobDefinition,
    steps: Sequence[str],
    at_work: Binding,
    made_anyway: set[str],
) -> list[ObjectRef]:
    """Return what these steps read of other steps' outputs that is neither in the store nor in a checkpoint.

    A step reports only the first value that it misses; this checks all inputs, so that one plan covers them all.
    """
    written: dict[str, dict[tuple[str, ...], Reference]] = {}
    plan = _plan(instance, run, _subset(job, run), steps)
    state = KnownExecutionState.build_for_reexecution(instance, run)
    skipped = made_anyway | set(steps)
    missing = []
    for step in plan.steps:
        if step.key not in plan.step_keys_to_execute:
            continue
        for handle in (handle for one in step.step_inputs for handle in handles_of(one)):
            writer = _writer(state.parent_state, handle)
            if writer is None or not {handle.step_key, _unresolved(handle.step_key)}.isdisjoint(skipped):
                continue
            if writer not in written:
                written[writer] = recorded_outputs(instance, writer)
            parts = [handle.step_key, handle.output_name, *([handle.mapping_key] if handle.mapping_key else [])]
            reference = written[writer].get(tuple(parts))  # None: written by another IO manager
            if reference is not None and not at_work.runtime.survives(ObjectRef.of(reference)):
                missing.append(ObjectRef.of(reference))
    return missing


def _writer(state: PastExecutionState | None, handle: StepOutputHandle) -> str | None:
    while state is not None:
        if handle in state.produced_outputs:
            return state.run_id
        state = state.get_parent_state()
    return None


def _unresolved(step_key: str) -> str:
    handle = StepHandle.parse_from_key(step_key)
    return handle.unresolved_form.to_key() if isinstance(handle, ResolvedFromDynamicStepHandle) else step_key
