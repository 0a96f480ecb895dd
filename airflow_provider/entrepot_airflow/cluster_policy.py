"""Airflow's cluster policies, by the entry point ``airflow.policy``: what the file says reaches every DAG by itself.

A file that is wrong fails the tasks that run under it, with file and line, before anything of theirs is run; the DAGs
stay. A rule about ``task_failed`` sets a task's retries, which Airflow's scheduler has to know before the task begins.
And pods that Airflow makes follow their data.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from airflow.policies import hookimpl

from entrepot_airflow import advising, doubles
from entrepot_airflow.configuration import places_pods, policy_path

log = logging.getLogger(__name__)
_said: set[str] = set()  # what is wrong, each thing once in a process


@hookimpl
def task_policy(task: Any) -> None:
    """Give a task the retries of the first ``task_failed`` rule that matches it; without one it keeps its own.

    A policy that cannot be used is said in the DAG processor's log; the task that runs under it fails with it.
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
        """A task of which there is no instance yet."""

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
    """Begin the attempt, when Airflow puts a task's environment together; says nothing, so that others are asked too.

    The first tasks of a run try the targets, because a run that cannot write its checkpoints is better not begun.

    Raises:
        PolicyError: the policy cannot be used, or a target cannot be written; the task fails with file and line.
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
    """Have a pod follow what its task instance reads, after whatever else changes pods; each attempt's pod anew.

    Raises:
        InvalidArgument: an annotation about placement, or an option, cannot be understood; the task fails with it.
    """
    if places_pods():
        from entrepot_airflow.pods import mutate

        mutate(pod)
