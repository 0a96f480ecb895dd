"""Airflow's retry policy (from 3.3) by the policy's ``task_failed`` rules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy

from entrepot_airflow import attempts
from entrepot_airflow.runtimes import runtime


def counted(try_number: int, max_tries: int, retries: int) -> int:
    """Which attempt this is, from 1 on, of those that a rule counts.

    Airflow allows one attempt more for each that was no failure: where a task was rescheduled to come after others, or
    somebody cleared it.

    Args:
        try_number: which attempt, from 1 on.
        max_tries: what Airflow allows by now.
        retries: what the task was given.
    """
    return max(1, try_number - max(0, max_tries - retries))


class PolicyRetries(RetryPolicy):
    """Retries as the policy's file says; tasks get it by themselves where a ``task_failed`` rule matches them.

    It is asked where a task raises. A task that was killed has the retries that the rule gave it when its DAG was
    imported.
    """

    def evaluate(self, exception: BaseException, try_number: int, max_tries: int, context: Any = None) -> RetryDecision:
        """Decide.

        Args:
            exception: why the attempt failed.
            try_number: which attempt, from 1 on.
            max_tries: what Airflow allows.
            context: the task's.

        Raises:
            PolicyError: the policy cannot be used; Airflow then falls back to the task's own retries.
        """
        policy, ti = runtime(), None if context is None else context.get("ti")
        if policy is None or context is None or ti is None:
            return RetryDecision.default()
        attempt = attempts.begin(policy, ti)
        subject = attempt.run.subject
        if policy.policy.failover_rule("task_failed", subject) is None:
            return RetryDecision.default()
        said = policy.task_failed(subject, counted(try_number, max_tries, context["task"].retries), exception)
        attempt.failure_told = True
        words = f"{said.reason} (policy {said.rule})"
        return RetryDecision.retry(timedelta(seconds=said.delay), words) if said.again else RetryDecision.fail(words)
