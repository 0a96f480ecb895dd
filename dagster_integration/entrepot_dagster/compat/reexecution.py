"""Plan, tags and job of a re-execution, and what the runs before it produced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dagster import DagsterInstance, DagsterRun, JobDefinition, JobExecutionResult
from dagster._core.definitions.reconstruct import ReconstructableJob as ReconstructableJob
from dagster._core.execution.api import create_execution_plan, execute_run
from dagster._core.execution.plan.handle import ResolvedFromDynamicStepHandle, StepHandle
from dagster._core.execution.plan.plan import ExecutionPlan as ExecutionPlan
from dagster._core.execution.plan.state import KnownExecutionState, PastExecutionState
from dagster._core.storage.tags import PARENT_RUN_ID_TAG as PARENT_RUN_ID_TAG
from dagster._core.storage.tags import ROOT_RUN_ID_TAG, TAGS_TO_MAYBE_OMIT_ON_RETRY
from dagster._utils.hosted_user_process import recon_job_from_origin

from entrepot_dagster.compat.steps import StepOutputHandle


def unfinished_steps(instance: DagsterInstance, run: DagsterRun) -> Sequence[str]:
    """Return the keys of the steps of a failed run that failed or never ran."""
    steps, _ = KnownExecutionState.build_resume_retry_reexecution(instance, run)
    return steps


def reexecution_tags(parent: DagsterRun) -> dict[str, str]:
    """Return the tags that a re-execution gets from the run that it repeats, its parent."""
    tags = {name: value for name, value in parent.tags.items() if name not in TAGS_TO_MAYBE_OMIT_ON_RETRY}
    return tags | {PARENT_RUN_ID_TAG: parent.run_id, ROOT_RUN_ID_TAG: parent.root_run_id or parent.run_id}


def reexecution_plan(
    instance: DagsterInstance,
    parent: DagsterRun,
    job: JobDefinition,
    steps: Sequence[str],
    recomputed_steps: Sequence[str] = (),
) -> ExecutionPlan:
    """Return the plan of a re-execution with exactly these steps.

    Args:
        instance: the run's instance.
        parent: the run that is repeated.
        job: definition of its job.
        steps: keys of the steps.
        recomputed_steps: those of them that had succeeded, and are rerun for their outputs.
    """
    state = KnownExecutionState.build_for_reexecution(instance, parent)
    # A step with dynamic outputs that is rerun for some of them yields the same ones again, so the mapped steps after
    # it that are needed can be selected.
    steps_not_recomputed = [step for step in steps if step not in recomputed_steps]
    return create_execution_plan(
        job,
        parent.run_config,
        step_keys_to_execute=list(steps),
        known_state=state.update_for_step_selection(steps_not_recomputed),
        tags=parent.tags,
    )


def steps_to_execute(plan: ExecutionPlan) -> Iterator[Any]:
    """Yield the steps that a plan executes."""
    return (step for step in plan.steps if step.key in plan.step_keys_to_execute)


def known_past_runs(known_state: Any) -> Iterator[PastExecutionState]:
    """Yield the runs before one, latest first, with ``run_id`` and the ``produced_outputs`` of each.

    Args:
        known_state: what a run knows about the steps that ran before; None: nothing.
    """
    past = None if known_state is None else known_state.parent_state
    while past is not None:
        yield past
        past = past.parent_state


def past_runs(instance: DagsterInstance, run: DagsterRun) -> list[PastExecutionState]:
    """Return a run and those that it re-executes, latest first, as a re-execution of it would see them."""
    return list(known_past_runs(KnownExecutionState.build_for_reexecution(instance, run)))


def writing_run_id(past: Sequence[PastExecutionState], handle: StepOutputHandle) -> str | None:
    """Return the ID of the latest run that produced an output; None: none of them did."""
    return next((state.run_id for state in past if handle in state.produced_outputs), None)


def unmapped_step_key(step_key: str) -> str:
    """Return the key of a mapped step before it was expanded; that of any other step is returned as it is."""
    handle = StepHandle.parse_from_key(step_key)
    return handle.unresolved_form.to_key() if isinstance(handle, ResolvedFromDynamicStepHandle) else step_key


def recorded_job(run: DagsterRun) -> ReconstructableJob | None:
    """Return the code of a run's job, from the origin recorded in the run; None: none is recorded."""
    return None if run.job_code_origin is None else recon_job_from_origin(run.job_code_origin)


def execute_created_run(job: ReconstructableJob, run: DagsterRun, instance: DagsterInstance) -> JobExecutionResult:
    """Execute a run that was created, in this process and the step processes of its executor."""
    return execute_run(job, run, instance)
