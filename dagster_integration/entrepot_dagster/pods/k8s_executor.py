"""``k8s_job_executor`` with data locality: each step's pod is scheduled near the nodes that hold the step's inputs.

Everything that dagster-k8s derives from configuration is kept; only the finished job is modified on its way to
Kubernetes. The decision is made at each launch of a step, so again for each attempt. Requires dagster-k8s
(``pip install 'entrepot[dagster-k8s]'``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from dagster import (
    DagsterEvent,
    Executor,
    ExecutorDefinition,
    Field,
    InitExecutorContext,
    MetadataValue,
    Noneable,
    StringSource,
    multiple_process_executor_requirements,
)
from dagster_k8s import k8s_job_executor
from entrepot.errors import EntrepotError
from entrepot_io.reference import Reference
from entrepot_operator.placement import placement_hints
from entrepot_operator.placement.pod_placement import PodPlacer, get_pod_placer, summarize
from entrepot_operator.placement.sources import REFERENCES

from entrepot_dagster.compat.events import engine_event
from entrepot_dagster.compat.step_handlers import (
    CheckStepHealthResult,
    K8sStepHandler,
    StepHandler,
    StepHandlerContext,
    client_of,
    create_k8s_executor,
    replace_step_handler,
    with_client,
)
from entrepot_dagster.pods.step_inputs import references_of

log = logging.getLogger(__name__)
_EXTRA_CONFIG = {
    "locations": Field(
        Noneable(StringSource),
        is_required=False,
        description="Object locations: references (default), a file's absolute path, or a source as NAME:REST.",
    ),
    "socket_folder": Field(
        Noneable(StringSource), is_required=False, description="Folder of the store's socket on the nodes."
    ),
    "shared_memory": Field(
        Noneable(StringSource), is_required=False, description="Size limit of /dev/shm in pods, such as 4Gi, or none."
    ),
}


def _create_executor(init_context: InitExecutorContext) -> Executor:
    """Create ``k8s_job_executor``'s executor, and wrap its step handler."""
    executor, inner = create_k8s_executor(init_context)
    pod_placer = get_pod_placer(arguments=init_context.executor_config, default=REFERENCES)
    if pod_placer is not None:
        replace_step_handler(executor, DataLocalityStepHandler(inner, pod_placer))
    return executor


def _config_schema() -> dict[str, Any]:
    base_config: Any = k8s_job_executor.config_schema.as_field().config_type
    return {**base_config.fields, **_EXTRA_CONFIG}


entrepot_k8s_job_executor = ExecutorDefinition(
    name="entrepot_k8s",
    config_schema=_config_schema(),
    requirements=multiple_process_executor_requirements(),
    executor_creation_fn=_create_executor,
    description="k8s_job_executor that schedules each step near its input data.",
)
"""Replacement for ``k8s_job_executor`` that takes all of its configuration, plus ``locations``, ``socket_folder`` and
``shared_memory``; settings not given there come from ``ENTREPOT_...``."""


class DataLocalityStepHandler(StepHandler):
    """Launches steps as dagster-k8s does, in pods scheduled near their data.

    Args:
        inner: dagster-k8s's own handler.
        placer: knows where objects are.

    Raises:
        InvalidArgument: this version of dagster-k8s is not supported.
    """

    def __init__(self, inner: K8sStepHandler, placer: PodPlacer) -> None:
        client_of(inner)  # raises if it is not as expected, before the first step
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
        client = _PlacementClient(client_of(self._inner), self._placer, step_handler_context, step_key)
        yield from with_client(self._inner, client).launch_step(step_handler_context)
        if client.placement_text:
            yield engine_event(
                step_handler_context.get_step_context(step_key),
                f"Step {step_key} {client.placement_text}",
                {"entrepot/placement": MetadataValue.text(client.placement_text)},
            )

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        """Delegate to dagster-k8s."""
        return self._inner.check_step_health(step_handler_context)

    def terminate_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        """Delegate to dagster-k8s."""
        return self._inner.terminate_step(step_handler_context)


class _PlacementClient:
    """Wrapper of dagster-k8s's client for the launch of one step."""

    def __init__(self, client: Any, placer: PodPlacer, context: StepHandlerContext, step_key: str) -> None:
        self._client = client
        self._placer = placer
        self._context = context
        self._step_key = step_key
        self.placement_text = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_namespaced_job_with_retries(self, body: Any, namespace: str, **options: Any) -> None:
        """Create the job with its pod modified."""
        pod_annotations = placement_hints.pod_annotations_of(body.spec.template)
        keyed_objects = placement_hints.parse_keyed_objects(pod_annotations)
        placement = self._placer.place(
            body.spec.template,
            self._references(placement_hints.parse_reads(pod_annotations)),
            () if keyed_objects is None else keyed_objects.ids(None),
        )
        if placement is not None:
            body.spec.template = placement.pod
            self.placement_text = summarize(placement)
        self._client.create_namespaced_job_with_retries(body=body, namespace=namespace, **options)

    def _references(self, reads: tuple[str, ...] | None) -> list[Reference]:
        step_context = self._context.get_step_context(self._step_key)
        known_state = self._context.execute_step_args.known_state
        try:
            return references_of(self._context.instance, step_context, known_state, reads)
        except EntrepotError as error:
            log.warning("Entrepot: cannot determine the inputs of step %s: %s", self._step_key, error)
            return []
