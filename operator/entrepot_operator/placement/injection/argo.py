"""Pods of Argo workflows: each template that runs containers is one.

A template's affinity replaces the workflow's. So the inherited affinity is copied into the template before anything is
added, and removed again together with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_operator.placement.injection import pod_validation, record
from entrepot_operator.placement.injection.injector import Injection, WorkloadContext

WORKFLOW_KINDS = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
_MAIN_CONTAINER = "main"  # the name that Argo gives to a template's container
_STEP_SHAPE: dict[str, Any] = {"name": str, "inline": {}}
_TEMPLATE_SHAPE: dict[str, Any] = {
    "name": str,
    "metadata": {"annotations": {}},
    "affinity": pod_validation.AFFINITY_SHAPE,
    "nodeSelector": {},
    "tolerations": [{}],
    "volumes": [{"name": str}],
    "container": pod_validation.CONTAINER_SHAPE,
    "script": pod_validation.CONTAINER_SHAPE,
    "containerSet": {"containers": [pod_validation.CONTAINER_SHAPE]},
    "initContainers": [pod_validation.CONTAINER_SHAPE],
    "sidecars": [pod_validation.CONTAINER_SHAPE],
    "steps": [[_STEP_SHAPE]],
    "dag": {"tasks": [_STEP_SHAPE]},
}
_WORKFLOW_SHAPE: dict[str, Any] = {
    "templates": [_TEMPLATE_SHAPE],
    "templateDefaults": _TEMPLATE_SHAPE,
    "podMetadata": {"annotations": {}},
    "affinity": pod_validation.AFFINITY_SHAPE,
    "nodeSelector": {},
    "tolerations": [{}],
    "volumes": [{"name": str}],
    "volumeClaimTemplates": [{"metadata": {"name": str}}],
}
_CONSTRAINTS = ("nodeSelector", "tolerations")

InjectPod = Callable[[dict[str, Any], WorkloadContext], Injection]


def inject_workflow(document: dict[str, Any], workload: str, inject_pod: InjectPod) -> dict[str, Injection]:
    """Inject every template of a workflow that runs containers, in place; returns the injections by template.

    Raises:
        InvalidArgument: a part of the workflow does not have the form that Argo defines.
    """
    path = ["spec", "workflowSpec"] if document.get("kind") == "CronWorkflow" else ["spec"]
    spec: Any = document
    for step in path:
        spec = spec.get(step)
        if not isinstance(spec, dict):
            raise InvalidArgument(f"a {document.get('kind')} must have {'.'.join(path)}, but its {step} is {spec!r}")
    pod_validation.validate_shape(spec, _WORKFLOW_SHAPE, ".".join(path))
    defaults: dict[str, Any] = spec.get("templateDefaults") or {}
    volumes = (
        _volume_names(spec.get("volumes"))
        | _volume_names(defaults.get("volumes"))
        | _claim_names(spec.get("volumeClaimTemplates"))
    )
    annotations = {**_annotations(spec.get("podMetadata")), **_annotations(defaults.get("metadata"))}
    injections: dict[str, Injection] = {}
    for name, template in _iter_templates(spec.get("templates"), ""):
        containers = _containers(template)
        if containers:
            injections[f"{workload}/{name}"] = _inject_template(
                template, containers, [template, defaults, spec], volumes, annotations, inject_pod
            )
    return injections


def _inject_template(
    template: dict[str, Any],
    containers: list[dict[str, Any]],
    levels: list[Mapping[str, Any]],
    volumes: set[str],
    annotations: dict[str, Any],
    inject_pod: InjectPod,
) -> Injection:
    pod: dict[str, Any] = {"spec": {"containers": [{"name": _MAIN_CONTAINER, **container} for container in containers]}}
    for key in ("initContainers", "volumes", "affinity"):
        if template.get(key) is not None:
            pod["spec"][key] = template[key]
    if template.get("metadata") is not None:
        pod["metadata"] = template["metadata"]
    for key in _CONSTRAINTS:
        constraint = next((level[key] for level in levels if level.get(key) is not None), None)
        if constraint is not None:
            pod["spec"][key] = constraint
    had_inherited_copy = record.INHERITED_AFFINITY in record.created_entries(pod)
    record.remove_injection(pod)
    if had_inherited_copy:
        pod["spec"].pop("affinity", None)
    own_affinity = pod["spec"].get("affinity")
    inherited_affinity = next((level["affinity"] for level in levels[1:] if level.get("affinity") is not None), None)
    context = WorkloadContext(volumes, annotations)
    if own_affinity is None and inherited_affinity is not None:
        pod["spec"]["affinity"] = copy.deepcopy(inherited_affinity)
        injection = inject_pod(copy.deepcopy(pod), WorkloadContext(volumes, annotations, (record.INHERITED_AFFINITY,)))
        if injection.pod["spec"].get("affinity") == inherited_affinity:  # nothing was added, so the copy is not needed
            injection = inject_pod(pod, context)
            injection.pod["spec"].pop("affinity", None)
    else:
        injection = inject_pod(pod, context)
    _write_back(template, containers, injection.pod)
    return injection


def _write_back(template: dict[str, Any], containers: list[dict[str, Any]], pod: dict[str, Any]) -> None:
    for original, injected in zip(containers, pod["spec"]["containers"], strict=True):
        if "name" not in original:
            del injected["name"]
        original.clear()
        original.update(injected)
    for key, holder in (("initContainers", "spec"), ("volumes", "spec"), ("affinity", "spec"), ("metadata", "")):
        source = pod[holder] if holder else pod
        if key in source:
            template[key] = source[key]
        elif template.get(key) is not None:
            del template[key]


def _containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    """Containers of the template's pod, except init containers; empty: it has no pod of its own."""
    main_containers: list[Any] = []
    for key in ("container", "script"):
        if template.get(key) is not None:
            main_containers.append(template[key])
    main_containers += (template.get("containerSet") or {}).get("containers") or []
    return [*main_containers, *(template.get("sidecars") or [])] if main_containers else []


def _iter_templates(templates: list[dict[str, Any]] | None, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, template in enumerate(templates or []):
        name = f"{prefix}{template.get('name') or f'templates[{index}]'}"
        yield name, template
        steps = [step for group in template.get("steps") or [] for step in group]
        for step in [*steps, *((template.get("dag") or {}).get("tasks") or [])]:
            inline = step.get("inline")
            if inline is not None:
                pod_validation.validate_shape(
                    inline, _TEMPLATE_SHAPE, f"the inline template of {name}/{step.get('name')}"
                )
                yield from (
                    (f"{name}/{step.get('name')}", inner_template)
                    for _, inner_template in _iter_templates([inline], "")
                )


def _annotations(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict((metadata or {}).get("annotations") or {})


def _volume_names(volumes: list[dict[str, Any]] | None) -> set[str]:
    return {str(volume.get("name")) for volume in volumes or []}


def _claim_names(claims: list[dict[str, Any]] | None) -> set[str]:
    return {str((claim.get("metadata") or {}).get("name")) for claim in claims or []}
