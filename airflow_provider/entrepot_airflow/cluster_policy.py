"""Airflow cluster policies, registered by the entry point ``airflow.policy``, so that the policy applies to every DAG.

An invalid policy file fails the tasks that run under it, with file and line, before any of their code runs; the DAGs
themselves stay. A ``task_failed`` rule sets a task's retries, which Airflow's scheduler must know before the task
begins. Pods created by Airflow are scheduled near their data.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.policies import hookimpl
from entrepot_io.plain_log import plain_logger

from entrepot_airflow.configuration import pod_placement_enabled, policy_path
from entrepot_airflow.values import multiple_outputs, read_only_advice

log = plain_logger(__name__)
_logged_errors: set[str] = set()  # errors already logged, each once per process


@hookimpl
def task_policy(task: Any) -> None:
    """Give a task the retries of the first ``task_failed`` rule that matches it; otherwise it keeps its own.

    An invalid policy is reported in the DAG processor's log, and fails each task that runs under it.
    """
    if not policy_path():
        return
    from entrepot.errors import EntrepotError
    from entrepot_policy import Subject, Task

    from entrepot_airflow.policy.policy_runtime import validated_policy
    from entrepot_airflow.policy.task_attempts import ORCHESTRATOR, match_attributes

    try:
        policy = validated_policy()
    except EntrepotError as error:
        if str(error) not in _logged_errors:
            _logged_errors.add(str(error))
            log.error("Entrepot: tasks will fail until this is fixed: %s", error)
        return
    if policy is None:
        return

    class _Parsed:
        """Stands in for a task instance, which does not exist at parse time."""

    parsed: Any = _Parsed()
    parsed.task = task
    rule = policy.failover_rule(
        "task_failed", Subject(Task(ORCHESTRATOR, task.dag_id, "", task.task_id), **match_attributes(parsed))
    )
    if rule is None:
        return
    step = rule.steps[0]
    if step.name == "retry":
        task.retries = step.attempts
        task.retry_delay = timedelta(seconds=step.delay)
    else:
        task.retries = 0
    if getattr(task, "retry_policy", None) is None and hasattr(type(task), "retry_policy"):
        from entrepot_airflow.policy.retry_policy import PolicyRetries

        task.retry_policy = PolicyRetries()


@hookimpl(tryfirst=True)
def get_airflow_context_vars(context: Any) -> None:
    """Begin the attempt when Airflow prepares a task's environment; return None, so that other plugins are asked too.

    A run's first tasks probe the targets, because a run that cannot write its checkpoints had better not begin.

    Raises:
        PolicyError: the policy is invalid, or a target is not writable; the task fails, with file and line.
    """
    multiple_outputs.begin_task(bool(getattr(context.get("task"), "multiple_outputs", False)))
    if context.get("task") is not None:
        read_only_advice.add_callbacks(context["task"])
    if not policy_path():
        return
    from entrepot_airflow.policy.policy_runtime import probe_targets, runtime
    from entrepot_airflow.policy.task_attempts import begin_attempt

    policy, ti = runtime(), context.get("ti")
    if policy is None or ti is None:
        return
    begin_attempt(policy, ti)
    if not context["task"].upstream_task_ids and ti.map_index <= 0:
        probe_targets(policy.policy)


@hookimpl(trylast=True)
def pod_mutation_hook(pod: Any) -> None:
    """Schedule a pod near the inputs of its task instance, after all other hooks; again for each attempt's pod.

    Raises:
        InvalidArgument: a placement annotation or an option is malformed; the task fails with this message.
    """
    if pod_placement_enabled():
        from entrepot_airflow.pods.pod_placement import mutate

        mutate(pod)
