"""Airflow cluster policies, registered by the entry point ``airflow.policy``, so that the policy applies to every DAG.

An invalid policy file fails the tasks that run under it, with file and line, before any of their code runs; the DAGs
themselves stay. A ``task_failed`` rule sets a task's retries, which Airflow's scheduler must know before the task
begins. Pods created by Airflow are scheduled near their data.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from airflow.policies import hookimpl

from entrepot_airflow import advising, doubles
from entrepot_airflow.configuration import places_pods, policy_path

log = logging.getLogger(__name__)
_said: set[str] = set()  # errors already logged, each once per process


@hookimpl
def task_policy(task: Any) -> None:
    """Give a task the retries of the first ``task_failed`` rule that matches it; otherwise it keeps its own.

    An invalid policy is reported in the DAG processor's log, and fails each task that runs under it.
    """
    if not policy_path():
        return
    from entrepot.errors import EntrepotError
    from entrepot_io.policy import Subject, Task

    from entrepot_airflow.attempts import HOST, said_of
    from entrepot_airflow.runtimes import checked

    try:
        policy = checked()
    except EntrepotError as error:
        if str(error) not in _said:
            _said.add(str(error))
            log.error("Entrepot: tasks fail till this is mended: %s", error)
        return
    if policy is None:
        return

    class _Parsed:
        """Stands in for a task instance, which does not exist at parse time."""

    parsed: Any = _Parsed()
    parsed.task = task
    rule = policy.failover_rule("task_failed", Subject(Task(HOST, task.dag_id, "", task.task_id), **said_of(parsed)))
    if rule is None:
        return
    step = rule.steps[0]
    if step.name == "retry":
        task.retries = step.attempts
        task.retry_delay = timedelta(seconds=step.delay)
    else:
        task.retries = 0
    if getattr(task, "retry_policy", None) is None and hasattr(type(task), "retry_policy"):
        from entrepot_airflow.retrying import PolicyRetries

        task.retry_policy = PolicyRetries()


@hookimpl(tryfirst=True)
def get_airflow_context_vars(context: Any) -> None:
    """Begin the attempt when Airflow prepares a task's environment; return None, so that other plugins are asked too.

    A run's first tasks probe the targets, because a run that cannot write its checkpoints had better not begin.

    Raises:
        PolicyError: the policy is invalid, or a target is not writable; the task fails, with file and line.
    """
    doubles.begin(bool(getattr(context.get("task"), "multiple_outputs", False)))
    if context.get("task") is not None:
        advising.watch(context["task"])
    if not policy_path():
        return
    from entrepot_airflow.attempts import begin
    from entrepot_airflow.runtimes import probe_targets, runtime

    policy, ti = runtime(), context.get("ti")
    if policy is None or ti is None:
        return
    begin(policy, ti)
    if not context["task"].upstream_task_ids and ti.map_index <= 0:
        probe_targets(policy.policy)


@hookimpl(trylast=True)
def pod_mutation_hook(pod: Any) -> None:
    """Schedule a pod near the inputs of its task instance, after all other hooks; anew for each attempt's pod.

    Raises:
        InvalidArgument: a placement annotation or an option is malformed; the task fails with this message.
    """
    if places_pods():
        from entrepot_airflow.pods import mutate

        mutate(pod)
