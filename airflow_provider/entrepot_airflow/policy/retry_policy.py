"""Airflow retry policy (from 3.3) that follows the policy's ``task_failed`` rules."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import RetryDecision, RetryPolicy

from entrepot_airflow.policy import task_attempts
from entrepot_airflow.policy.policy_runtime import runtime


class PolicyRetries(RetryPolicy):
    """Retries as the policy file says; set automatically on tasks that a ``task_failed`` rule matches.

    Evaluated where a task raises. A task that was killed has the retries that the rule gave it when its DAG was
    imported.
    """

    def evaluate(self, exception: BaseException, try_number: int, max_tries: int, context: Any = None) -> RetryDecision:
        """Decide whether to retry a failed attempt.

        Args:
            exception: why the attempt failed.
            try_number: number of the attempt, from 1.
            max_tries: Airflow's limit.
            context: the task's context.

        Raises:
            PolicyError: the policy is invalid; Airflow then falls back to the task's own retries.
        """
        policy, ti = runtime(), None if context is None else context.get("ti")
        if policy is None or context is None or ti is None:
            return RetryDecision.default()
        attempt = task_attempts.begin_attempt(policy, ti)
        subject = attempt.run.subject
        if policy.policy.failover_rule("task_failed", subject) is None:
            return RetryDecision.default()
        decision = policy.task_failed(
            subject, task_attempts.effective_try_number(try_number, max_tries, context["task"].retries), exception
        )
        attempt.failure_recorded = True
        reason = f"{decision.reason} (policy {decision.rule})"
        return (
            RetryDecision.retry(timedelta(seconds=decision.delay), reason)
            if decision.again
            else RetryDecision.fail(reason)
        )
