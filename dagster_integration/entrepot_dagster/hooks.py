"""The policy's handling of failed steps: retries, and a hook that counts and explains failures.

Dagster calls a failure hook once, in the process of the last attempt, and not at all if that process was killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dagster import DagsterEventType, Failure, HookContext, RetryPolicy, failure_hook
from entrepot_policy import Subject, Task, find_policy

from entrepot_dagster.values.keys import default_scope

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from entrepot_policy import Retry
    from entrepot_policy.rules.model import Step

    from entrepot_dagster.policy.policy_runtime import PolicyBinding


class PolicyRetries(RetryPolicy):
    """Retries with the delays of a policy's ``retry`` step, which neither of Dagster's back-off modes can express."""

    _step: Step

    @classmethod
    def from_step(cls, step: Step) -> PolicyRetries:
        """Create the retries for a step of a ``task_failed`` rule."""
        retries = cls(max_retries=step.attempts, delay=step.delay)
        retries._step = step
        return retries

    def calculate_delay(self, attempt_num: int) -> float:
        """Return the delay in seconds before a retry; retries are numbered from 1."""
        return min(self._step.delay * self._step.factor ** (attempt_num - 1), self._step.max_delay)


def policy_retries(
    task: str = "", *, job: str = "", tags: Iterable[str] = (), policy: str | None = None
) -> RetryPolicy | None:
    """Return the retries of the policy's ``task_failed`` rules, for ``op_retry_policy`` of a job or of a single op.

    Dagster has retries by op and by job, not by rule: a job's retries follow the first rule that matches any task
    name. An op to which another rule applies needs retries of its own.

    Args:
        task: step key, for rules that match one.
        job: its job, for rules that match pipelines.
        tags: tags of the op, ``name`` or ``name=value``.
        policy: path of the policy file; None: the one named by ENTREPOT_POLICY.

    Returns:
        None if there is no policy, or if it says ``fail``: the step is not retried.

    Raises:
        PolicyError, InvalidArgument: the policy is invalid; the message has file and line.
    """
    loaded_policy = find_policy(policy)
    if loaded_policy is None:
        return None
    rule = loaded_policy.failover_rule("task_failed", Subject(Task("dagster", job, "", task), tags=frozenset(tags)))
    step = (
        None
        if rule is None
        else next((candidate for candidate in rule.steps if candidate.name in ("retry", "fail")), None)
    )
    return None if step is None or step.name == "fail" else PolicyRetries.from_step(step)


@failure_hook(name="entrepot_policy")
def policy_failure_hook(context: HookContext) -> None:
    """Count a failed step, and write the policy's decision to its log."""
    binding = _binding_of(context.instance, context.run_id)
    if binding is None:
        return
    error = context.op_exception
    if isinstance(error, Failure) and not error.allow_retries and isinstance(error.__cause__, Exception):
        error = error.__cause__
    task = Task("dagster", context.job_name, context.run_id, context.step_key)
    tags = frozenset(f"{name}={value}" if value else name for name, value in context.op.tags.items())
    decision = count_step_failure(binding, context.instance, Subject(task, tags=tags), error or "no error was recorded")
    if decision is None:
        return
    if decision.again:
        context.log.warning(
            f"entrepot: the policy ({decision.rule}) retries {context.step_key} ({decision.reason}), but the step's "
            f"own retry policy does not: set retry_policy=policy_retries({context.step_key!r})"
        )
    else:
        context.log.error(f"entrepot: {context.step_key} failed for good: {decision.reason} (policy {decision.rule})")


def count_step_failure(
    binding: PolicyBinding, instance: DagsterInstance, subject: Subject, error: BaseException | str
) -> Retry | None:
    """Count a step whose last attempt failed.

    Args:
        binding: the policy's binding.
        instance: the run's instance.
        subject: the step.
        error: why it failed.

    Returns:
        The policy's decision; None: it failed because of a lost value, which the read has already reported.
    """
    from entrepot.errors import ObjectLost, ObjectNotFound

    if isinstance(error, (ObjectLost, ObjectNotFound)):
        return None
    retry_events = instance.all_logs(subject.task.run, of_type=DagsterEventType.STEP_UP_FOR_RETRY)
    attempt = 1 + sum(entry.step_key == subject.task.name for entry in retry_events)
    return binding.runtime.task_failed(subject, attempt, error)


def _binding_of(instance: DagsterInstance, run_id: str) -> PolicyBinding | None:
    """Return the binding of the run's IO manager; if the step has none, that of the environment."""
    from entrepot_dagster.policy.policy_runtime import binding_of_run, get_binding

    registered_binding = binding_of_run(run_id)
    if registered_binding is not None:
        return registered_binding
    from entrepot_io.settings import resolve

    settings = resolve()
    return get_binding(None, settings.scope or default_scope(instance), settings.address, instance)
