"""Execution of a policy in a Dagster process: one runtime, and a ``TaskRun`` for each attempt of a step.

Dagster asks an IO manager for one value at a time, so an attempt begins with its first value and is over when its
outputs have been written. Without a policy, nothing of this module is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagster import DagsterEventType, DagsterInstance, MetadataValue
from entrepot.errors import ObjectLost, ObjectNotFound, StoreUnavailable
from entrepot.ids import ObjectID
from entrepot_io.reference import Reference
from entrepot_policy import ObjectRef, PolicyError, PolicyRuntime, RerunNeeded, Task, TaskRun, find_policy
from entrepot_policy.rules.model import Policy
from entrepot_policy.rules.validation import probe_targets

from entrepot_dagster.compat.steps import add_loaded_metadata, executing_step, upstream_handles
from entrepot_dagster.policy.event_metadata import EventCollector, report_read, report_write
from entrepot_dagster.policy.failures import gave_up_failure, rerun_needed_failure
from entrepot_dagster.policy.run_log import RunLog, inputs_metadata
from entrepot_dagster.values.keys import OutputKey

if TYPE_CHECKING:
    from dagster import InputContext, OutputContext, StepExecutionContext
    from entrepot import Store

ORCHESTRATOR = "dagster"
_bindings: dict[tuple[str, str, str, str | None], PolicyBinding] = {}
_bindings_of_runs: dict[str, PolicyBinding] = {}
_MAX_RUNS = 64


class PolicyBinding:
    """A policy's runtime in this process, with Dagster-specific additions.

    Attributes:
        runtime: the policy's runtime.
        run_log: Dagster's own record of which step wrote what.
        event_collector: receives the runtime's events.
    """

    def __init__(self, policy: Policy, scope: str, address: str | None) -> None:
        self.run_log = RunLog()
        self.runtime = PolicyRuntime(policy, scope=scope, address=address, graph=self.run_log, shared_reruns=True)
        self.event_collector = EventCollector()
        self.runtime.log.watch(self.event_collector.add)


def get_binding(
    path: str | None, scope: str, address: str | None, instance: DagsterInstance | None
) -> PolicyBinding | None:
    """Return this process's binding of the policy in force; None: there is no policy.

    Args:
        path: path of its file; None: the one named by ENTREPOT_POLICY.
        scope, address: scope and address of the store.
        instance: instance whose event log records what was written.

    Raises:
        PolicyError, InvalidArgument: the policy is invalid.
    """
    policy = find_policy(path)
    if policy is None:
        return None
    # The key has the digest, so that a long-lived process (a code server) notices changes of the file.
    key = (policy.source, policy.digest, scope, address)
    existing = _bindings.get(key)
    if existing is None:
        existing = _bindings[key] = PolicyBinding(policy, scope, address)
    existing.run_log.instance = instance
    return existing


def register_run(run_id: str, binding: PolicyBinding) -> None:
    """Remember which policy applies to a run, for hooks, which have no access to the IO manager."""
    while len(_bindings_of_runs) >= _MAX_RUNS:
        del _bindings_of_runs[next(iter(_bindings_of_runs))]
    _bindings_of_runs[run_id] = binding


def binding_of_run(run_id: str) -> PolicyBinding | None:
    """Return what :func:`register_run` recorded in this process."""
    return _bindings_of_runs.get(run_id)


def check_targets(policy: Policy, instance: DagsterInstance, run_id: str) -> None:
    """Check before a run's first step that checkpoints can be written.

    Raises:
        PolicyError: a target is not writable and has no writable fallback; the message has file and line.
    """
    if not policy.enabled or not policy.checkpoints:
        return
    if instance.get_records_for_run(run_id, of_type=DagsterEventType.STEP_SUCCESS, limit=1).records:
        return
    problems = {target.template: probe_targets([target]) for target in policy.all_targets()}
    for rule in policy.checkpoints:
        rule_problems = [problems[target.template] for target in rule.targets]
        if rule_problems and all(rule_problems):
            raise PolicyError([problem for target_problems in rule_problems for problem in target_problems])


def task_for(step: StepExecutionContext) -> Task:
    """Return a step's task for the policy: named by the key that re-execution selects it by, mapping key included."""
    return Task(ORCHESTRATOR, step.job_name, step.run_id, step.step.key)


class StepPolicy:
    """Reads and writes of the steps that one IO manager serves.

    Args:
        binding: the policy's binding.
    """

    def __init__(self, binding: PolicyBinding) -> None:
        self.binding = binding
        self._started_at = time.monotonic()
        self._attempt_key: tuple[str, str, int] | None = None
        self._task_run: TaskRun | None = None
        self._written_outputs: set[str] = set()

    def write(
        self,
        context: OutputContext,
        output_key: OutputKey,
        open_store: Callable[[], Store],
        put: Callable[[], Reference],
    ) -> tuple[Reference, Mapping[str, MetadataValue[Any]]]:
        """Write an output as the policy says.

        Args:
            context: context of the output.
            output_key: session and key to write to.
            open_store: opens its session.
            put: writes the output.

        Returns:
            Its reference, and metadata about what the policy did.

        Raises:
            StoreFull, StoreUnavailable: the policy gave up.
        """
        step = executing_step(context)
        if step is None:
            return put(), {}
        task_run, runtime = self._task_run_for(step), self.binding.runtime
        subject_fields: dict[str, Any] = {"tags": _tags(step, context), "fan_out": _fan_out(step, context)}
        if context.has_asset_key:
            subject_fields["asset"] = "/".join(context.asset_key.path)
        with self.binding.event_collector.collect() as events:
            store = runtime.failover.write(task_run.subject, lambda: runtime.session(output_key.session), open_store)
            reference = task_run.write(store, put, **subject_fields)
        self._written_outputs.add(context.name)
        self._started_at = time.monotonic()
        if self._written_outputs == _required_outputs(step):
            task_run.__exit__(None, None, None)  # later failures are up to the failure hook
        subject = replace(task_run.subject, **subject_fields)
        rule = runtime.policy.checkpoint_rule(
            subject.of_value(key=output_key.key, type=reference.type, nbytes=reference.nbytes)
        )
        return reference, {**report_write(context.log, events, rule), **inputs_metadata(task_run.inputs)}

    def read(
        self,
        context: InputContext,
        output_key: OutputKey,
        recorded: Reference | None,
        find: Callable[[], Reference | None],
        get: Callable[[Reference | None], Any],
    ) -> Any:
        """Read an input as the policy says.

        Args:
            context: context of the input.
            output_key: session and key to read from.
            recorded: its reference, if already known.
            find: looks up its reference in Dagster's log.
            get: reads it, and checks it against the recorded reference.

        Raises:
            Failure: other steps must run first, or the policy gave up on a lost value; retrying this step cannot help.
            ObjectNotFound: it was never written.
            StoreUnavailable: the policy gave up.
        """
        step = executing_step(context)
        reader = self.binding.runtime if step is None else self._task_run_for(step)
        try:
            value = get(recorded)
        except (ObjectLost, ObjectNotFound, StoreUnavailable):
            reference = recorded or find()
            if step is None:
                return reader.read(
                    self._object_ref(output_key, reference), lambda: get(reference), expected=reference is not None
                )
            return self._recover(
                context, reader, self._object_ref(output_key, reference), lambda: get(reference), reference is not None
            )
        return reader.read(self._object_ref(output_key, recorded), lambda: value)

    def _recover(
        self,
        context: InputContext,
        reader: TaskRun | PolicyRuntime,
        ref: ObjectRef,
        get: Callable[[], Any],
        expected: bool,
    ) -> Any:
        with self.binding.event_collector.collect() as events:
            try:
                value = reader.read(ref, get, expected=expected)
            except RerunNeeded as error_needing_rerun:
                raise rerun_needed_failure(error_needing_rerun) from error_needing_rerun
            except (ObjectLost, ObjectNotFound) as error:
                if not events:
                    raise  # it was never written
                raise gave_up_failure(error) from error
            finally:
                metadata = report_read(context.log, events)
        if (
            metadata
            and context.has_asset_key
            and context.has_asset_partitions
            and len(context.asset_partition_keys) > 1
        ):
            add_loaded_metadata(context, metadata)  # an observation would be of a single partition
        elif metadata:
            context.add_input_metadata(metadata)
        return value

    def _task_run_for(self, step: StepExecutionContext) -> TaskRun:
        key = (step.run_id, step.step.key, step.previous_attempt_count)
        if self._task_run is None or self._attempt_key != key:
            self._attempt_key, self._written_outputs = key, set()
            self._task_run = self.binding.runtime.task(
                task_for(step), started=self._started_at, tags=_op_tags(step)
            ).__enter__()
        return self._task_run

    def _object_ref(self, output_key: OutputKey, recorded: Reference | None) -> ObjectRef:
        if recorded is not None:
            return ObjectRef.of(recorded)
        return ObjectRef(
            output_key.session,
            ObjectID.derive(self.binding.runtime.scope, output_key.session, output_key.key),
            output_key.key,
        )


def _required_outputs(step: StepExecutionContext) -> set[str]:
    """Return the outputs that a step must write to be done; empty if that cannot be determined."""
    output_defs = [output_def for output_def in step.op_def.output_defs if not output_def.dagster_type.is_nothing]
    return (
        set()
        if any(output_def.is_dynamic for output_def in output_defs)
        else {output_def.name for output_def in output_defs if output_def.is_required}
    )


def _op_tags(step: StepExecutionContext) -> frozenset[str]:
    return frozenset(_tag(name, value) for name, value in step.op.tags.items())


def _tags(step: StepExecutionContext, context: OutputContext) -> frozenset[str]:
    tags = _op_tags(step)
    if not context.has_asset_key:
        return tags
    if context.has_asset_partitions:
        tags |= {_tag("partition", key) for key in context.asset_partition_keys}
    asset_graph = step.job_def.asset_layer.asset_graph
    if asset_graph.has(context.asset_key):
        tags |= {_tag(name, value) for name, value in asset_graph.get(context.asset_key).tags.items()}
    return tags


def _tag(name: str, value: object) -> str:
    return f"{name}={value}" if value not in ("", None) else name


def _fan_out(step: StepExecutionContext, context: OutputContext) -> int:
    """Return how many steps of this job read an output; an unresolved mapped step counts once."""
    return sum((step.step.key, context.name) in _outputs_read_by(reader) for reader in step.execution_plan.steps)


def _outputs_read_by(step: Any) -> set[tuple[str, str]]:
    handles = [handle for step_input in step.step_inputs for handle in upstream_handles(step_input)]
    return {(handle.step_key, handle.output_name) for handle in handles}
