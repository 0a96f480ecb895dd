"""The step handler of dagster-k8s and its client, which a handler of this plugin wraps."""

from __future__ import annotations

import copy
from typing import Any

from dagster import Executor, InitExecutorContext
from dagster._core.executor.step_delegating import CheckStepHealthResult as CheckStepHealthResult
from dagster._core.executor.step_delegating import StepDelegatingExecutor
from dagster._core.executor.step_delegating import StepHandler as StepHandler
from dagster._core.executor.step_delegating import StepHandlerContext as StepHandlerContext
from dagster_k8s import k8s_job_executor
from dagster_k8s.executor import K8sStepHandler as K8sStepHandler
from entrepot.errors import InvalidArgument

# Set by name, because their types are those of dagster-k8s's own handler and client.
_CLIENT_ATTRIBUTE, _HANDLER_ATTRIBUTE = "_api_client", "_step_handler"


def create_k8s_executor(init_context: InitExecutorContext) -> tuple[Executor, K8sStepHandler]:
    """Create the executor of ``k8s_job_executor``; return it and its step handler.

    Raises:
        InvalidArgument: this version of dagster-k8s is not supported.
    """
    create = k8s_job_executor.executor_creation_fn
    executor = None if create is None else create(init_context)
    handler = getattr(executor, _HANDLER_ATTRIBUTE, None)
    if not isinstance(executor, StepDelegatingExecutor) or not isinstance(handler, K8sStepHandler):
        raise InvalidArgument(
            f"unsupported version of dagster-k8s: its executor is a {type(executor).__name__} with a "
            f"{type(handler).__name__}; use another version of dagster-k8s or entrepot"
        )
    return executor, handler


def replace_step_handler(executor: Executor, handler: StepHandler) -> None:
    """Have an executor launch its steps by another handler."""
    setattr(executor, _HANDLER_ATTRIBUTE, handler)


def client_of(handler: K8sStepHandler) -> Any:
    """Return the client by which a handler creates jobs, with ``create_namespaced_job_with_retries(body, namespace)``.

    Raises:
        InvalidArgument: this version of dagster-k8s is not supported.
    """
    client = getattr(handler, _CLIENT_ATTRIBUTE, None)
    if not hasattr(client, "create_namespaced_job_with_retries"):
        raise InvalidArgument(
            "unsupported version of dagster-k8s: its client has no create_namespaced_job_with_retries; use another "
            "version of dagster-k8s or entrepot"
        )
    return client


def with_client(handler: K8sStepHandler, client: Any) -> K8sStepHandler:
    """Return a copy of a handler that creates jobs by another client; other threads may use the original meanwhile."""
    changed = copy.copy(handler)
    setattr(changed, _CLIENT_ATTRIBUTE, client)
    return changed
