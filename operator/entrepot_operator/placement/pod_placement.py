"""Placement of pods created by an orchestrator: their inputs, where these are now, and the resulting pod.

What is unknown is logged, and the pod is created without it: a task never waits for its placement, and never fails
because of it, unless an annotation written by the pod's author is invalid.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from entrepot.errors import EntrepotError
from entrepot.phrases import human_bytes
from entrepot_io.reference import Reference

from entrepot_operator.placement import placement_hints
from entrepot_operator.placement.cli_options import make_cluster_config
from entrepot_operator.placement.injection.injector import Injection, explain
from entrepot_operator.placement.locations import Locations, MergedLocations
from entrepot_operator.placement.names import LOCALITY, ClusterConfig
from entrepot_operator.placement.sources import Source, open_source

log = logging.getLogger(__name__)
_MAX_SHOWN = 3  # nodes in one log line


@dataclass(frozen=True)
class PlacementConfig:
    """A deployment's placement settings.

    Attributes:
        locations: the source of locations, as for :func:`~entrepot_operator.placement.sources.open_source`.
        cluster_config: configuration of its stores.
    """

    locations: str
    cluster_config: ClusterConfig


def resolve_placement_config(
    lookup: Callable[[str], str | None] | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    default: str | None = None,
) -> PlacementConfig | None:
    """Resolve a deployment's settings: arguments, then ``ENTREPOT_*``, then the orchestrator's configuration.

    Args:
        lookup: looks up ``locations``, ``socket_folder`` and ``shared_memory`` in the orchestrator's configuration.
        arguments: some of them as the user's arguments.
        default: source of locations if none is configured.

    Returns:
        None: there is no source of locations, and pods are left alone.

    Raises:
        InvalidArgument: a setting is out of range.
    """

    def setting(name: str) -> str | None:
        value = (arguments or {}).get(name) or os.environ.get(f"ENTREPOT_{name.upper()}")
        return str(value) if value else (lookup(name) if lookup else None) or None

    locations = setting("locations") or default
    if locations is None:
        return None
    return PlacementConfig(locations, make_cluster_config(setting("socket_folder"), setting("shared_memory")))


class PodPlacer:
    """Injects current locations into pods.

    Args:
        source: of locations; None: only references are used.
        use_references: whether an object unknown to the source is assumed to be on the host that its reference names.
        cluster_config: configuration of the stores.
    """

    def __init__(self, source: Source | None, use_references: bool, cluster_config: ClusterConfig) -> None:
        self._source = source
        self._use_references = use_references
        self._cluster_config = cluster_config

    @classmethod
    def from_config(cls, config: PlacementConfig) -> PodPlacer:
        """Create the placer of a deployment.

        Raises:
            InvalidArgument: there is no such source of locations.
        """
        return cls(*open_source(config.locations), config.cluster_config)

    def place(self, pod: Any, references: Iterable[Reference] = (), ids: Iterable[str] = ()) -> Injection | None:
        """A copy of a pod that is scheduled near its inputs.

        Args:
            pod: pod or pod template, as a dictionary or an object of the Kubernetes client.
            references: of its inputs, in addition to its annotations.
            ids: of further objects.

        Returns:
            The injection, with the pod; None: nothing was done, and the log says why.

        Raises:
            InvalidArgument: a placement annotation is invalid.
        """
        annotations = placement_hints.pod_annotations_of(pod)
        current = self._current_locations()
        must_bind = annotations.get(LOCALITY) == "required"
        required = dict.fromkeys(ids)
        reference_locations: dict[str, dict[str, int]] = {}
        for reference in references:
            oid = str(reference.id)
            required[oid] = None
            if (
                self._use_references
                and oid not in current.objects
                and _is_usable_host(reference.host, current, must_bind)
            ):
                reference_locations[oid] = {reference.host: reference.nbytes}
        locations = MergedLocations(reference_locations, current.objects) if reference_locations else current.objects
        try:
            injection = explain(pod, required, locations, nodes=current.nodes, site=self._cluster_config)
        except EntrepotError as error:
            if placement_hints.has_placement_annotations(annotations):
                raise
            log.warning("Entrepot: pod left unchanged: %s", error)
            return None
        for problem in injection.problems:
            # Not every object is published, and the pod's record mentions it too.
            log.log(
                logging.INFO if problem.code == "unknown-objects" else logging.WARNING, "Entrepot: %s", problem.text
            )
        return injection

    def _current_locations(self) -> Locations:
        if self._source is None:
            return Locations()
        try:
            return self._source.places()
        except EntrepotError as error:
            log.warning("Entrepot: pod created without the locations of its inputs: %s", error)
            return Locations()


def _is_usable_host(host: str, locations: Locations, must_bind: bool) -> bool:
    """Whether a reference's host may stand for a node; a pod must not be bound to a host that is not a node."""
    return bool(host) and (host in locations.nodes if locations.nodes is not None else not must_bind)


def summarize(injection: Injection) -> str:
    """One-line summary of an injection."""
    host_scores = [score for score in injection.pulls if score.kind == "host"]
    if not host_scores:
        return f"reads {injection.inputs.located + len(injection.inputs.unknown)} objects, but no node is preferred"
    shown_hosts = ", ".join(f"{score.value} ({human_bytes(score.nbytes)})" for score in host_scores[:_MAX_SHOWN])
    more = f" and {len(host_scores) - _MAX_SHOWN} more" if len(host_scores) > _MAX_SHOWN else ""
    verb = "bound to" if injection.required else "prefers"
    return f"{verb} {shown_hosts}{more}, which hold its {injection.inputs.located} inputs"


_lock = threading.Lock()
_placers: dict[PlacementConfig, PodPlacer] = {}  # guarded by _lock


def get_pod_placer(
    lookup: Callable[[str], str | None] | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    default: str | None = None,
) -> PodPlacer | None:
    """This process's placer, created once for each configuration; None: pods are left alone.

    Args:
        lookup, arguments, default: as for :func:`resolve_placement_config`.

    Raises:
        InvalidArgument: a setting is out of range, or there is no such source of locations.
    """
    config = resolve_placement_config(lookup, arguments=arguments, default=default)
    if config is None:
        return None
    with _lock:
        if config not in _placers:
            _placers[config] = PodPlacer.from_config(config)
        return _placers[config]


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
