"""``k8s_job_executor`` with data locality: each step's pod is scheduled near the nodes that hold the step's inputs.

Everything that dagster-k8s derives from configuration is kept; only the finished job is modified on its way to
Kubernetes. The decision is made at each launch of a step, so again for each attempt. Requires dagster-k8s
(``pip install 'entrepot[dagster-k8s]'``).
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any

from dagster import DagsterEvent, ExecutorDefinition, Field, InitExecutorContext, MetadataValue, Noneable, StringSource
from dagster._core.definitions.executor_definition import multiple_process_executor_requirements
from dagster._core.events import EngineEventData
from dagster._core.executor.base import Executor
from dagster._core.executor.step_delegating import (
    CheckStepHealthResult,
    StepDelegatingExecutor,
    StepHandler,
    StepHandlerContext,
)
from dagster_k8s import k8s_job_executor
from dagster_k8s.executor import K8sStepHandler
from entrepot.errors import EntrepotError, InvalidArgument
from entrepot_io.placement import wishes
from entrepot_io.placement.hosted import Placer, brief, placer
from entrepot_io.placement.sources import REFERENCES
from entrepot_io.reference import Reference

from entrepot_dagster.step_inputs import references_of

log = logging.getLogger(__name__)
_OWN = {
    "locations": Field(
        Noneable(StringSource),
        is_required=False,
        description="Where objects are: references (the default), a file's absolute path, or a source's NAME:REST.",
    ),
    "socket_folder": Field(
        Noneable(StringSource), is_required=False, description="Folder of the store's socket on the nodes."
    ),
    "shared_memory": Field(
        Noneable(StringSource), is_required=False, description="Limit of /dev/shm in pods, such as 4Gi; or none."
    ),
}
_CLIENT, _HANDLER = "_api_client", "_step_handler"  # private attributes of dagster-k8s and Dagster


def _make(init_context: InitExecutorContext) -> Executor:
    """Create ``k8s_job_executor``'s executor, and wrap its step handler."""
    create = k8s_job_executor.executor_creation_fn
    made = None if create is None else create(init_context)
    inner = getattr(made, _HANDLER, None)
    if not isinstance(made, StepDelegatingExecutor) or not isinstance(inner, K8sStepHandler):
        raise InvalidArgument(
            f"this dagster-k8s makes its executor as a {type(made).__name__} with a {type(inner).__name__}, which "
            "entrepot does not know: use another version of one of them"
        )
    by = placer(given=init_context.executor_config, default=REFERENCES)
    if by is not None:
        setattr(made, _HANDLER, FollowingStepHandler(inner, by))
    return made


def _schema() -> dict[str, Any]:
    theirs: Any = k8s_job_executor.config_schema.as_field().config_type
    return {**theirs.fields, **_OWN}


entrepot_k8s_job_executor = ExecutorDefinition(
    name="entrepot_k8s",
    config_schema=_schema(),
    requirements=multiple_process_executor_requirements(),
    executor_creation_fn=_make,
    description="k8s_job_executor whose steps run where what they read is.",
)
"""Replacement for ``k8s_job_executor`` that takes all of its configuration, plus ``locations``, ``socket_folder`` and
``shared_memory``; settings not given there come from ``ENTREPOT_...``."""


class FollowingStepHandler(StepHandler):
    """Launches steps as dagster-k8s does, in pods scheduled near their data.

    Args:
        inner: dagster-k8s's own handler.
        placer: knows where objects are.

    Raises:
        InvalidArgument: this version of dagster-k8s is not supported.
    """

    def __init__(self, inner: K8sStepHandler, placer: Placer) -> None:
        if not hasattr(getattr(inner, _CLIENT, None), "create_namespaced_job_with_retries"):
            raise InvalidArgument(
                "this dagster-k8s makes the jobs of steps in a way that entrepot does not know: use another version of "
                "one of them"
            )
        super().__init__()
        self._inner = inner
        self._placer = placer

    @property
    def name(self) -> str:
        """Name in the event log."""
        return "FollowingStepHandler"

    def launch_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        """Launch a step near most of its input data.

        Raises:
            InvalidArgument: a placement annotation of the pod is malformed; the run fails with this message.
        """
        step_key = next(iter(step_handler_context.execute_step_args.step_keys_to_execute or ()))
        client = _FollowingClient(getattr(self._inner, _CLIENT), self._placer, step_handler_context, step_key)
        launching = copy.copy(self._inner)  # a copy for this step: other threads may use the original meanwhile
        setattr(launching, _CLIENT, client)
        yield from launching.launch_step(step_handler_context)
        if client.told:
            yield DagsterEvent.engine_event(
                step_handler_context.get_step_context(step_key),
                f"Step {step_key} {client.told}",
                EngineEventData(metadata={"entrepot/placement": MetadataValue.text(client.told)}),
            )

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        """Delegate to dagster-k8s."""
        return self._inner.check_step_health(step_handler_context)

    def terminate_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        """Delegate to dagster-k8s."""
        return self._inner.terminate_step(step_handler_context)


class _FollowingClient:
    """Wrapper of dagster-k8s's client for the launch of one step."""

    def __init__(self, client: Any, placer: Placer, context: StepHandlerContext, step_key: str) -> None:
        self._client = client
        self._placer = placer
        self._context = context
        self._step_key = step_key
        self.told = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_namespaced_job_with_retries(self, body: Any, namespace: str, **options: Any) -> None:
        """Create the job with its pod modified."""
        said = wishes.of_pod(body.spec.template)
        keyed = wishes.keyed(said)
        done = self._placer.place(
            body.spec.template, self._references(wishes.reads(said)), () if keyed is None else keyed.ids(None)
        )
        if done is not None:
            body.spec.template = done.pod
            self.told = brief(done)
        self._client.create_namespaced_job_with_retries(body=body, namespace=namespace, **options)

    def _references(self, reads: tuple[str, ...] | None) -> list[Reference]:
        step_context = self._context.get_step_context(self._step_key)
        known_state = self._context.execute_step_args.known_state
        try:
            return references_of(self._context.instance, step_context, known_state, reads)
        except EntrepotError as error:
            log.warning("Entrepot: what step %s reads cannot be known: %s", self._step_key, error)
            return []
