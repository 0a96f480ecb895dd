"""Pods of Argo workflows: each template that runs containers is one.

A template's affinity replaces the workflow's. So the inherited affinity is copied into the template before anything is
added, and removed again together with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from entrepot.errors import InvalidArgument

from entrepot_io.placement import record, shapes
from entrepot_io.placement.injecting import Injection, Surroundings

WORKFLOWS = ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
_MAIN = "main"  # the name that Argo gives to a template's container
_STEP: dict[str, Any] = {"name": str, "inline": {}}
_TEMPLATE: dict[str, Any] = {
    "name": str,
    "metadata": {"annotations": {}},
    "affinity": shapes.AFFINITY,
    "nodeSelector": {},
    "tolerations": [{}],
    "volumes": [{"name": str}],
    "container": shapes.CONTAINER,
    "script": shapes.CONTAINER,
    "containerSet": {"containers": [shapes.CONTAINER]},
    "initContainers": [shapes.CONTAINER],
    "sidecars": [shapes.CONTAINER],
    "steps": [[_STEP]],
    "dag": {"tasks": [_STEP]},
}
_WORKFLOW: dict[str, Any] = {
    "templates": [_TEMPLATE],
    "templateDefaults": _TEMPLATE,
    "podMetadata": {"annotations": {}},
    "affinity": shapes.AFFINITY,
    "nodeSelector": {},
    "tolerations": [{}],
    "volumes": [{"name": str}],
    "volumeClaimTemplates": [{"metadata": {"name": str}}],
}
_CONSTRAINTS = ("nodeSelector", "tolerations")

Run = Callable[[dict[str, Any], Surroundings], Injection]


def inject_workflow(document: dict[str, Any], named: str, run: Run) -> dict[str, Injection]:
    """Inject every template of a workflow that runs containers, in place; returns the injections by template.

    Raises:
        InvalidArgument: a part of the workflow does not have the form that Argo defines.
    """
    path = ["spec", "workflowSpec"] if document.get("kind") == "CronWorkflow" else ["spec"]
    spec: Any = document
    for step in path:
        spec = spec.get(step)
        if not isinstance(spec, dict):
            raise InvalidArgument(f"a {document.get('kind')} has {'.'.join(path)}, but its {step} is {spec!r}")
    shapes.walk(spec, _WORKFLOW, ".".join(path))
    defaults: dict[str, Any] = spec.get("templateDefaults") or {}
    volumes = _names(spec.get("volumes")) | _names(defaults.get("volumes")) | _claims(spec.get("volumeClaimTemplates"))
    annotations = {**_annotations(spec.get("podMetadata")), **_annotations(defaults.get("metadata"))}
    done: dict[str, Injection] = {}
    for name, template in _templates(spec.get("templates"), ""):
        containers = _containers(template)
        if containers:
            done[f"{named}/{name}"] = _inject(
                template, containers, [template, defaults, spec], volumes, annotations, run
            )
    return done


def _inject(
    template: dict[str, Any],
    containers: list[dict[str, Any]],
    levels: list[Mapping[str, Any]],
    volumes: set[str],
    annotations: dict[str, Any],
    run: Run,
) -> Injection:
    pod: dict[str, Any] = {"spec": {"containers": [{"name": _MAIN, **one} for one in containers]}}
    for key in ("initContainers", "volumes", "affinity"):
        if template.get(key) is not None:
            pod["spec"][key] = template[key]
    if template.get("metadata") is not None:
        pod["metadata"] = template["metadata"]
    for key in _CONSTRAINTS:
        found = next((level[key] for level in levels if level.get(key) is not None), None)
        if found is not None:
            pod["spec"][key] = found
    written_before = record.INHERITED in record.created(pod)
    record.strip(pod)
    if written_before:
        pod["spec"].pop("affinity", None)
    own = pod["spec"].get("affinity")
    inherited = next((level["affinity"] for level in levels[1:] if level.get("affinity") is not None), None)
    around = Surroundings(volumes, annotations)
    if own is None and inherited is not None:
        pod["spec"]["affinity"] = copy.deepcopy(inherited)
        injection = run(copy.deepcopy(pod), Surroundings(volumes, annotations, (record.INHERITED,)))
        if injection.pod["spec"].get("affinity") == inherited:  # nothing was added, so the copy is not needed
            injection = run(pod, around)
            injection.pod["spec"].pop("affinity", None)
    else:
        injection = run(pod, around)
    _write_back(template, containers, injection.pod)
    return injection


def _write_back(template: dict[str, Any], containers: list[dict[str, Any]], pod: dict[str, Any]) -> None:
    for mine, made in zip(containers, pod["spec"]["containers"], strict=True):
        if "name" not in mine:
            del made["name"]
        mine.clear()
        mine.update(made)
    for key, holder in (("initContainers", "spec"), ("volumes", "spec"), ("affinity", "spec"), ("metadata", "")):
        source = pod[holder] if holder else pod
        if key in source:
            template[key] = source[key]
        elif template.get(key) is not None:
            del template[key]


def _containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    """Containers of the template's pod, except init containers; empty: it has no pod of its own."""
    found: list[Any] = []
    for key in ("container", "script"):
        if template.get(key) is not None:
            found.append(template[key])
    found += (template.get("containerSet") or {}).get("containers") or []
    return [*found, *(template.get("sidecars") or [])] if found else []


def _templates(listed: list[dict[str, Any]] | None, inside: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for place, template in enumerate(listed or []):
        name = f"{inside}{template.get('name') or f'templates[{place}]'}"
        yield name, template
        steps = [step for group in template.get("steps") or [] for step in group]
        for step in [*steps, *((template.get("dag") or {}).get("tasks") or [])]:
            inline = step.get("inline")
            if inline is not None:
                shapes.walk(inline, _TEMPLATE, f"the inline template of {name}/{step.get('name')}")
                yield from ((f"{name}/{step.get('name')}", one) for _, one in _templates([inline], ""))


def _annotations(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict((metadata or {}).get("annotations") or {})


def _names(listed: list[dict[str, Any]] | None) -> set[str]:
    return {str(one.get("name")) for one in listed or []}


def _claims(listed: list[dict[str, Any]] | None) -> set[str]:
    return {str((one.get("metadata") or {}).get("name")) for one in listed or []}
