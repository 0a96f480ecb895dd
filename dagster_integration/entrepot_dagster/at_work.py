"""Execution of a policy in a Dagster process: one runtime, and a ``TaskRun`` for each attempt of a step.

Dagster asks an IO manager for one value at a time, so an attempt begins with its first value and is over when its
outputs have been written. Without a policy, nothing of this module is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagster import DagsterEventType, DagsterInstance, MetadataValue
from dagster._core.execution.plan.inputs import UnresolvedCollectStepInput, UnresolvedMappedStepInput
from dagster._core.execution.plan.outputs import StepOutputHandle
from entrepot.errors import ObjectLost, ObjectNotFound, StoreUnavailable
from entrepot.ids import ObjectID
from entrepot_io.policy import ObjectRef, PolicyError, PolicyRuntime, RerunNeeded, Task, TaskRun, find_policy
from entrepot_io.policy.checks import probe
from entrepot_io.policy.model import Policy
from entrepot_io.reference import Reference

from entrepot_dagster.places import Place
from entrepot_dagster.reasons import gave_up, rerun_needed
from entrepot_dagster.run_log import RunLog, inputs_entry
from entrepot_dagster.telling import Ear, tell_read, tell_write

if TYPE_CHECKING:
    from dagster import InputContext, OutputContext
    from dagster._core.execution.context.system import StepExecutionContext
    from entrepot import Store

HOST = "dagster"
_bindings: dict[tuple[str, str, str, str | None], Binding] = {}
_of_runs: dict[str, Binding] = {}
_MOST_RUNS = 64


class Binding:
    """A policy's runtime in this process, with Dagster-specific additions.

    Attributes:
        runtime: the policy's runtime.
        log: Dagster's own record of which step wrote what.
        ear: receives the runtime's events.
    """

    def __init__(self, policy: Policy, scope: str, address: str | None) -> None:
        self.log = RunLog()
        self.runtime = PolicyRuntime(policy, scope=scope, address=address, graph=self.log, shared_reruns=True)
        self.ear = Ear()
        self.runtime.log.watch(self.ear.hear)


def binding(path: str | None, scope: str, address: str | None, instance: DagsterInstance | None) -> Binding | None:
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
    found = _bindings.get(key)
    if found is None:
        found = _bindings[key] = Binding(policy, scope, address)
    found.log.instance = instance
    return found


def remember_run(run_id: str, at_work: Binding) -> None:
    """Remember which policy applies to a run, for hooks, which have no access to the IO manager."""
    while len(_of_runs) >= _MOST_RUNS:
        del _of_runs[next(iter(_of_runs))]
    _of_runs[run_id] = at_work


def binding_of_run(run_id: str) -> Binding | None:
    """Return what :func:`remember_run` recorded in this process."""
    return _of_runs.get(run_id)


def try_targets(policy: Policy, instance: DagsterInstance, run_id: str) -> None:
    """Check before a run's first step that checkpoints can be written.

    Raises:
        PolicyError: a target is not writable and has no writable fallback; the message has file and line.
    """
    if not policy.enabled or not policy.checkpoints:
        return
    if instance.get_records_for_run(run_id, of_type=DagsterEventType.STEP_SUCCESS, limit=1).records:
        return
    problems = {target.template: probe([target]) for target in policy.all_targets()}
    for rule in policy.checkpoints:
        of_rule = [problems[target.template] for target in rule.targets]
        if of_rule and all(of_rule):
            raise PolicyError([problem for found in of_rule for problem in found])


def task_of(step: StepExecutionContext) -> Task:
    """Return a step's task for the policy: named by the key that re-execution selects it by, mapping key included."""
    return Task(HOST, step.job_name, step.run_id, step.step.key)


class StepRuns:
    """Reads and writes of the steps that one IO manager serves.

    Args:
        at_work: the policy's binding.
    """

    def __init__(self, at_work: Binding) -> None:
        self.at_work = at_work
        self._since = time.monotonic()
        self._key: tuple[str, str, int] | None = None
        self._task: TaskRun | None = None
        self._wrote: set[str] = set()

    def write(
        self, context: OutputContext, place: Place, open_store: Callable[[], Store], put: Callable[[], Reference]
    ) -> tuple[Reference, Mapping[str, MetadataValue[Any]]]:
        """Write an output as the policy says.

        Args:
            context: context of the output.
            place: session and key to write to.
            open_store: opens its session.
            put: writes the output.

        Returns:
            Its reference, and metadata about what the policy did.

        Raises:
            StoreFull, StoreUnavailable: the policy gave up.
        """
        step = _step_of(context)
        if step is None:
            return put(), {}
        task, runtime = self._of(step), self.at_work.runtime
        said: dict[str, Any] = {"tags": _tags(step, context), "fan_out": _fan_out(step, context)}
        if context.has_asset_key:
            said["asset"] = "/".join(context.asset_key.path)
        with self.at_work.ear.listening() as events:
            store = runtime.failover.write(task.subject, lambda: runtime.session(place.session), open_store)
            reference = task.write(store, put, **said)
        self._wrote.add(context.name)
        self._since = time.monotonic()
        if self._wrote == _outputs(step):
            task.__exit__(None, None, None)  # later failures are up to the failure hook
        subject = replace(task.subject, **said)
        rule = runtime.policy.checkpoint_rule(
            subject.of_value(key=place.key, type=reference.type, nbytes=reference.nbytes)
        )
        return reference, {**tell_write(context.log, events, rule), **inputs_entry(task.inputs)}

    def read(
        self,
        context: InputContext,
        place: Place,
        recorded: Reference | None,
        find: Callable[[], Reference | None],
        get: Callable[[Reference | None], Any],
    ) -> Any:
        """Read an input as the policy says.

        Args:
            context: context of the input.
            place: session and key to read from.
            recorded: its reference, if already known.
            find: looks up its reference in Dagster's log.
            get: reads it, and checks it against the recorded reference.

        Raises:
            Failure: other steps must run first, or the policy gave up on a lost value; retrying this step cannot help.
            ObjectNotFound: it was never written.
            StoreUnavailable: the policy gave up.
        """
        step = _step_of(context)
        reader = self.at_work.runtime if step is None else self._of(step)
        try:
            value = get(recorded)
        except (ObjectLost, ObjectNotFound, StoreUnavailable):
            known = recorded or find()
            if step is None:
                return reader.read(self._ref(place, known), lambda: get(known), expected=known is not None)
            return self._recover(context, reader, self._ref(place, known), lambda: get(known), known is not None)
        return reader.read(self._ref(place, recorded), lambda: value)

    def _recover(
        self,
        context: InputContext,
        reader: TaskRun | PolicyRuntime,
        ref: ObjectRef,
        get: Callable[[], Any],
        expected: bool,
    ) -> Any:
        with self.at_work.ear.listening() as events:
            try:
                value = reader.read(ref, get, expected=expected)
            except RerunNeeded as needed:
                raise rerun_needed(needed) from needed
            except (ObjectLost, ObjectNotFound) as error:
                if not events:
                    raise  # it was never written
                raise gave_up(error) from error
            finally:
                metadata = tell_read(context.log, events)
        if metadata:
            context.add_input_metadata(metadata)
        return value

    def _of(self, step: StepExecutionContext) -> TaskRun:
        key = (step.run_id, step.step.key, step.previous_attempt_count)
        if self._task is None or self._key != key:
            self._key, self._wrote = key, set()
            self._task = self.at_work.runtime.task(task_of(step), begun=self._since, tags=_op_tags(step)).__enter__()
        return self._task

    def _ref(self, place: Place, recorded: Reference | None) -> ObjectRef:
        if recorded is not None:
            return ObjectRef.of(recorded)
        return ObjectRef(
            place.session, ObjectID.derive(self.at_work.runtime.scope, place.session, place.key), place.key
        )


def _step_of(context: InputContext | OutputContext) -> StepExecutionContext | None:
    # Contexts built by tests or for loading a value outside of any run have no step context; accessing it raises. When
    # a finished run's result is asked for an output, the step context does not execute and has no known state.
    step: StepExecutionContext | None = getattr(context, "_step_context", None)
    return None if step is None or step._known_state is None else step


def _outputs(step: StepExecutionContext) -> set[str]:
    """Return the outputs that a step must write to be done; empty if that cannot be determined."""
    found = [one for one in step.op_def.output_defs if not one.dagster_type.is_nothing]
    return set() if any(one.is_dynamic for one in found) else {one.name for one in found if one.is_required}


def _op_tags(step: StepExecutionContext) -> frozenset[str]:
    return frozenset(_tag(name, value) for name, value in step.op.tags.items())


def _tags(step: StepExecutionContext, context: OutputContext) -> frozenset[str]:
    tags = _op_tags(step)
    if not context.has_asset_key:
        return tags
    if context.has_asset_partitions:
        tags |= {_tag("partition", key) for key in context.asset_partition_keys}
    known = step.job_def.asset_layer.asset_graph
    if known.has(context.asset_key):
        tags |= {_tag(name, value) for name, value in known.get(context.asset_key).tags.items()}
    return tags


def _tag(name: str, value: object) -> str:
    return f"{name}={value}" if value not in ("", None) else name


def _fan_out(step: StepExecutionContext, context: OutputContext) -> int:
    """Return how many steps of this job read an output; an unresolved mapped step counts once."""
    return sum((step.step.key, context.name) in _reads(one) for one in step.execution_plan.steps)


def _reads(step: Any) -> set[tuple[str, str]]:
    handles = [handle for one in step.step_inputs for handle in handles_of(one)]
    return {(handle.step_key, handle.output_name) for handle in handles}


def handles_of(step_input: Any) -> Sequence[StepOutputHandle]:
    """Return the outputs that a step's input reads; without mapping keys if the input is unresolved."""
    if isinstance(step_input, (UnresolvedMappedStepInput, UnresolvedCollectStepInput)):
        return step_input.get_step_output_handle_deps_with_placeholders()
    handles: Sequence[StepOutputHandle] = step_input.get_step_output_handle_dependencies()
    return handles
